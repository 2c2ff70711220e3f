#include "entrain/engine/train/run_state.h"

#include <chrono>
#include <map>

#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/weights.h"
#include "entrain/engine/train/model_folder.h"

namespace entrain::engine {

Run::Run(const RunSetup& run_setup,
         const std::atomic<bool>& flag,
         const std::function<void()>& check_others,
         Comm* process)
    : setup(run_setup),
      places(run_setup.plan),
      interrupted(flag),
      in_processes(process != nullptr),
      first_step(run_setup.resume.has_value() ? run_setup.resume->manifest.step : 0),
      source(run_setup,
             first_step,
             run_setup.config.steps,
             process != nullptr ? 1 : places.num_ranks()),
      dumps(run_setup.config.output,
            run_setup.plan,
            process != nullptr ? process->rank() : 0,
            process != nullptr ? 1 : places.num_ranks()),
      lane_parameters(static_cast<std::size_t>(run_setup.plan.num_lanes())) {
  const RunConfig& config = run_setup.config;
  const int rank = process != nullptr ? process->rank() : 0;
  if (rank == 0) {
    record.emplace(run_setup, first_step);
  }
  if (process != nullptr) {
    log = RankLog(config.output, rank);
  }
  if (config.execution.paced) {  // without weights there is nothing to validate or to keep
    return;
  }
  validation = prepare_validation(run_setup);
  const RankPlace place = places.place_of(rank);
  if (place.replica == 0 && place.tensor_rank == 0) {
    checkpoints.emplace(checkpoint_folder(config),
                        config.checkpoint.keep,
                        run_setup.plan.num_lanes(),
                        run_setup.identity,
                        process != nullptr ? std::optional(place.lane) : std::nullopt,
                        std::chrono::milliseconds(
                            static_cast<std::int64_t>(1e3 * config.execution.deadline_seconds)),
                        check_others);
  }
}

std::string open_folder(const RunSetup& setup) {
  const std::filesystem::path folder(setup.config.output);
  const std::string note = prepare_folders(setup.config, setup.resume);
  keep_dumps(folder);
  write_file(folder / "config.json", to_json(setup.config).dump(1) + "\n");
  write_file(folder / "plan.json", to_json(setup.plan).dump(1) + "\n");
  write_file(folder / "model.json", to_json(setup.model).dump(1) + "\n");
  return note;
}

RunFiles write_all_weights(Run& run) {
  RunFiles files;
  if (!run.checkpoints.has_value()) {
    return files;
  }
  std::vector<NamedParameter> parameters;
  for (const auto& lane : run.lane_parameters) {
    parameters.insert(parameters.end(), lane.begin(), lane.end());
  }
  const std::filesystem::path path = std::filesystem::path(run.setup.config.output) / kWeightsName;
  const auto finish = [&] {
    run.checkpoints->finish();
    files.checkpoint = run.checkpoints->last_written();
  };
  if (run.stopped) {
    finish();
  }
  std::map<std::string, std::string> metadata;
  if (!run.stopped) {
    metadata[kStepKey] = std::to_string(run.setup.config.steps);
  }
  write_weights(path, parameters, metadata);
  files.weights = path;
  if (std::filesystem::is_directory(run.setup.config.model_file)) {
    const RunConfig& config = run.setup.config;
    const bool adapter = config.lora.has_value() && config.lora->export_as == kExportAdapter;
    files.folder =
        std::filesystem::path(config.output) / (adapter ? kAdapterFolderName : kModelFolderName);
    write_model_folder(config, run.setup.model, parameters, files.folder);
  }
  finish();
  return files;
}

RunFiles write_weights_together(Run& run, Comm& comm) {
  const RunSetup& setup = run.setup;
  const std::filesystem::path parts(std::filesystem::path(setup.config.output) /
                                    ".weights.partial");
  const auto part = [&](int lane) { return parts / concat("lane-", lane, ".safetensors"); };
  const bool leads = comm.rank() == 0;
  RunFiles files;
  // After the barrier the others' part of the last checkpoint is written.
  if (run.checkpoints.has_value() && !leads) {
    run.checkpoints->finish();
    const int lane = run.places.place_of(comm.rank()).lane;
    write_weights(part(lane), run.lane_parameters[static_cast<std::size_t>(lane)]);
  }
  comm.barrier(run.places.all());
  if (leads && run.checkpoints.has_value()) {
    for (int lane = 1; lane < setup.plan.num_lanes(); ++lane) {
      run.lane_parameters[static_cast<std::size_t>(lane)] = read_weights(part(lane)).tensors;
    }
    files = write_all_weights(run);
    std::filesystem::remove_all(parts);
  }
  if (run.stopped) {  // a rank that ends with another code than 0 makes torchrun end the rest
    comm.barrier(run.places.all());
  }
  return files;
}

}  // namespace entrain::engine
