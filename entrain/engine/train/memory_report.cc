#include "entrain/engine/train/memory_report.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {
namespace {

constexpr int kParts = 3;

void add(const StateBytes& bytes, const std::string& prefix, Json& record) {
  record[prefix + "parameter_bytes"] = bytes.parameter_bytes;
  record[prefix + "gradient_bytes"] = bytes.gradient_bytes;
  record[prefix + "optimizer_bytes"] = bytes.optimizer_bytes;
}

}  // namespace

std::string report_memory(const RunSetup& setup, const StateBytes& held, Comm& comm) {
  const RankPlaces places(setup.plan);
  const at::Tensor own =
      at::tensor({held.parameter_bytes, held.gradient_bytes, held.optimizer_bytes}, at::kLong);
  const at::Tensor of_all = comm.all_gather(own.to(at::kDouble), places.all()).to(at::kLong);
  if (comm.rank() != 0) {
    return "";
  }
  const std::vector<StateBytes> predicted =
      lane_states(setup.model, setup.plan, state_options(setup));
  Json records = Json::array();
  std::vector<std::string> held_texts;
  std::vector<std::string> predicted_texts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::int64_t* bytes = of_all.const_data_ptr<std::int64_t>() + kParts * rank;
    const StateBytes state{bytes[0], bytes[1], bytes[2]};
    const RankPlace place = places.place_of(rank);
    const StateBytes& expected = predicted[static_cast<std::size_t>(place.lane)];
    Json& record = records.emplace_back();
    record["replica"] = place.replica;
    record["lane"] = place.lane;
    record["tensor_rank"] = place.tensor_rank;
    add(state, "", record);
    add(expected, "predicted_", record);
    if (place.replica == 0 && place.tensor_rank == 0) {
      held_texts.push_back(format_bytes(state.total_bytes()));
      predicted_texts.push_back(format_bytes(expected.total_bytes()));
    }
  }
  write_file(std::filesystem::path(setup.config.output) / kMemoryReportName,
             records.dump(1) + "\n");
  const bool shared = places.ranks_per_replica() > places.num_lanes();
  return concat("parameters, gradients and optimizer state per lane",
                shared ? ", on each of its ranks: " : ": ",
                join(held_texts),
                " (predicted ",
                join(predicted_texts),
                ")");
}

}  // namespace entrain::engine
