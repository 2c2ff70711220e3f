// entrain checkpoint: shows, verifies and exports what `entrain train` writes on its way.
#include <algorithm>
#include <iostream>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/checkpoint/read.h"
#include "entrain/engine/comm/torch_errors.h"
#include "entrain/engine/train/model_folder.h"

namespace entrain::cli {
namespace {

struct CheckpointFlags {
  std::string path;
  std::string output;
  std::string model_folder;
  bool force = false;
  bool json = false;
};

// The checkpoints that a path names, rising.
std::vector<std::filesystem::path> checkpoints_at(const engine::CheckpointPlace& place) {
  if (!place.checkpoint.empty()) {
    return {place.checkpoint};
  }
  std::vector<std::filesystem::path> paths;
  for (const std::int64_t step : engine::checkpoint_steps(place.folder)) {
    paths.push_back(place.folder / engine::checkpoint_name(step));
  }
  return paths;
}

Json summary_of(const engine::Manifest& manifest) {
  std::int64_t bytes = 0;
  std::size_t tensors = 0;
  for (const engine::LaneFiles& lane : manifest.lanes) {
    tensors += lane.tensors.size();
    for (const engine::CheckpointFile& file : lane.files) {
      bytes += file.bytes;
    }
  }
  return {{"step", manifest.step},
          {"bytes", bytes},
          {"tensors", tensors},
          {"lanes", manifest.lanes.size()},
          {"seed", manifest.run.seed},
          {"global_batch", manifest.run.global_batch},
          {"index_digest", manifest.run.index_digest},
          {"model_digest", manifest.run.model_digest},
          {"plan_digest", manifest.run.plan_digest},
          {"config_digest", manifest.run.config_digest},
          {"entrain_version", manifest.entrain_version},
          {"torch_version", manifest.torch_version}};
}

void show_one(const std::filesystem::path& checkpoint, bool json) {
  const engine::Manifest manifest = engine::read_manifest(checkpoint);
  Json summary = summary_of(manifest);
  Table table({"file", "size", "tensors", "digest"});
  summary["files"] = Json::array();
  for (const engine::LaneFiles& lane : manifest.lanes) {
    for (const engine::CheckpointFile& file : lane.files) {
      const auto tensors = std::ranges::count(
          lane.tensors, file.name, [](const engine::CheckpointTensor& t) { return t.file; });
      table.add_row({file.name, format_bytes(file.bytes), std::to_string(tensors), file.digest});
      summary["files"].push_back({{"name", file.name},
                                  {"bytes", file.bytes},
                                  {"tensors", tensors},
                                  {"digest", file.digest}});
    }
  }
  if (json) {
    print_json(summary);
    return;
  }
  for (const auto& [key, value] : summary.items()) {
    if (!value.is_array()) {
      std::cout << key << ": " << (value.is_string() ? value.get<std::string>() : value.dump())
                << (key == "tensors" ? " (weights, and their moments)" : "") << "\n";
    }
  }
  std::cout << table.to_text();
}

int show(const CheckpointFlags& options) {
  const engine::CheckpointPlace place = engine::checkpoint_place(options.path);
  if (!place.checkpoint.empty()) {
    show_one(place.checkpoint, options.json);
    return 0;
  }
  std::optional<engine::Latest> latest;
  if (engine::verify_latest(place.folder).empty()) {
    latest = engine::read_latest(place.folder);
  }
  Json list = Json::array();
  Table table({"checkpoint", "step", "size", "weights, moments", "lanes", "note"});
  for (const std::filesystem::path& checkpoint : checkpoints_at(place)) {
    const std::string name = checkpoint.filename().string();
    try {
      Json summary = summary_of(engine::read_manifest(checkpoint));
      const bool is_latest = latest.has_value() && latest->step == summary["step"];
      table.add_row({name,
                     summary["step"].dump(),
                     format_bytes(summary["bytes"].get<std::int64_t>()),
                     summary["tensors"].dump(),
                     summary["lanes"].dump(),
                     is_latest ? "latest" : ""});
      summary["checkpoint"] = checkpoint.string();
      summary["latest"] = is_latest;
      list.push_back(std::move(summary));
    } catch (const InvalidInput& error) {
      table.add_row({name, "-", "-", "-", "-", "damaged; see `entrain checkpoint verify`"});
      list.push_back({{"checkpoint", checkpoint.string()}, {"damaged", error.what()}});
    }
  }
  if (options.json) {
    print_json({{"folder", place.folder.string()}, {"checkpoints", list}});
  } else {
    std::cout << place.folder.string() << "\n" << table.to_text();
  }
  return 0;
}

int verify(const CheckpointFlags& options) {
  const engine::CheckpointPlace place = engine::checkpoint_place(options.path);
  Json report = Json::array();
  bool ok = true;
  const auto add = [&](const std::string& name,
                       const std::vector<engine::CheckpointProblem>& problems) {
    Json messages = Json::array();
    for (const engine::CheckpointProblem& problem : problems) {
      messages.push_back({{"file", problem.file.string()}, {"message", problem.message}});
      if (!options.json) {
        std::cout << problem.file.string() << ": " << problem.message << "\n";
      }
    }
    if (problems.empty() && !options.json) {
      std::cout << name << ": whole\n";
    }
    report.push_back({{"checkpoint", name}, {"ok", problems.empty()}, {"problems", messages}});
    ok = ok && problems.empty();
  };
  std::set<std::string> damaged;
  for (const std::filesystem::path& checkpoint : checkpoints_at(place)) {
    const auto problems = engine::verify_checkpoint(checkpoint).problems;
    add(checkpoint.string(), problems);
    if (!problems.empty()) {
      damaged.insert(checkpoint.filename().string());
    }
  }
  if (!place.folder.empty()) {
    const std::filesystem::path path = place.folder / engine::kLatestName;
    std::vector<engine::CheckpointProblem> problems = engine::verify_latest(place.folder);
    if (problems.empty()) {
      const std::string name = engine::checkpoint_name(engine::read_latest(place.folder)->step);
      if (damaged.contains(name)) {
        problems.push_back({path, concat("names ", name, ", which is damaged")});
      }
    }
    add(path.string(), problems);
  }
  if (options.json) {
    print_json({{"ok", ok}, {"checked", report}});
  }
  return ok ? 0 : kExitSystem;
}

// As the run itself writes it at its end. Returns the number of tensors.
std::size_t export_folder(const engine::UsableCheckpoint& checkpoint,
                          const std::filesystem::path& target) {
  const std::filesystem::path run =
      std::filesystem::weakly_canonical(checkpoint.path).parent_path().parent_path();
  const engine::RunConfig config = engine::read_run_config(run / "config.json", {});
  if (!std::filesystem::is_directory(config.model_file)) {
    throw InvalidInput(concat("--model-folder: the run's model '",
                              config.model_file,
                              "' is no Hugging Face folder, of which this would be a copy with "
                              "other weights; write the weights alone with -o FILE.safetensors"));
  }
  const std::vector<engine::NamedParameter> weights =
      engine::checkpoint_weights(checkpoint.path, checkpoint.manifest);
  const ModelSpec model = model_from_json(checkpoint.manifest.run.model, "the checkpoint's model");
  engine::write_model_folder(config, model, weights, target);
  return weights.size();
}

// --force, too, replaces no folder: what else lies in it is not known.
void check_new_folder(const std::string& target) {
  if (std::filesystem::exists(target)) {
    throw InvalidInput(concat("--model-folder: '",
                              target,
                              "' is there, and --force replaces files alone; name a folder that is "
                              "not, or remove it first"));
  }
  check_outside_checkpoints("--model-folder", target);
}

int export_to(const CheckpointFlags& options) {
  const bool folder = !options.model_folder.empty();
  if (folder && !options.output.empty()) {
    throw InvalidInput("--output and --model-folder: only one can be given");
  }
  if (folder) {
    check_new_folder(options.model_folder);
  } else if (options.output.empty()) {
    throw InvalidInput("--output: one of --output and --model-folder is needed");
  }
  Outputs outputs({options.path}, options.force);
  const Output output = outputs.open("--output", options.output, OutputKind::kWeights);
  const engine::UsableCheckpoint checkpoint = engine::usable_at(options.path);
  print_warnings(checkpoint.warnings);
  const std::size_t tensors =
      folder ? export_folder(checkpoint, options.model_folder)
             : engine::export_weights(checkpoint.path, checkpoint.manifest, output.path());
  const std::string& written = folder ? options.model_folder : options.output;
  if (options.json) {
    print_json({{"checkpoint", checkpoint.path.string()},
                {"step", checkpoint.manifest.step},
                {"tensors", tensors},
                {"output", written}});
  } else {
    std::cout << written << ": " << tensors << " tensors of step " << checkpoint.manifest.step
              << " from " << checkpoint.path.string() << "\n";
  }
  return 0;
}

}  // namespace

void add_checkpoint_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<CheckpointFlags>();
  CLI::App* command = add_command(app,
                                  "checkpoint",
                                  "Shows, verifies or exports a run's checkpoints.",
                                  "entrain checkpoint verify runs/demo");
  command->require_subcommand(1);
  const auto add = [&](const char* name,
                       const char* description,
                       const char* example,
                       int (*call)(const CheckpointFlags&)) {
    CLI::App* chosen = add_command(*command, name, description, example);
    chosen
        ->add_option(
            "path", options->path, "run folder, its checkpoints folder or one checkpoint in it")
        ->required();
    chosen->add_flag("--json", options->json, "print the result as one line of JSON");
    chosen->callback([options, call, &action] {
      action = [options, call] {
        return engine::without_torch_errors([&] { return call(*options); });
      };
    });
    return chosen;
  };
  add("show",
      "Lists checkpoints, or the files of one.",
      "entrain checkpoint show runs/demo\n"
      "  entrain checkpoint show runs/demo/checkpoints/step-00000050",
      show);
  add("verify",
      "Reads every byte and says what is damaged or missing; exit code 3 if anything is.",
      "entrain checkpoint verify runs/demo",
      verify);
  CLI::App* chosen = add(
      "export",
      "Writes the weights of a checkpoint, the latest by default, into one safetensors file, or\n"
      "as the Hugging Face folder that the run's model is.",
      "entrain checkpoint export runs/demo -o model.safetensors\n"
      "  entrain checkpoint export runs/x/checkpoints/step-00000050 --model-folder halfway",
      export_to);
  chosen->add_option("--output,-o", options->output, "file to write");
  chosen->add_option(
      "--model-folder", options->model_folder, "instead: Hugging Face folder to write, a new one");
  add_force(*chosen, options->force);
}

}  // namespace entrain::cli
