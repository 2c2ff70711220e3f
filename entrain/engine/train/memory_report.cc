#include "entrain/engine/train/memory_report.h"

#include <filesystem>
#include <numeric>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

constexpr int kParts = 3;

void add(const LaneState& bytes, const std::string& prefix, Json& record) {
  record[prefix + "parameter_bytes"] = bytes.parameter_bytes;
  record[prefix + "gradient_bytes"] = bytes.gradient_bytes;
  record[prefix + "optimizer_bytes"] = bytes.optimizer_bytes;
}

}  // namespace

std::string report_memory(const RunSetup& setup, const LaneState& held, Comm& comm) {
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor own =
      at::tensor({held.parameter_bytes, held.gradient_bytes, held.optimizer_bytes}, at::kLong);
  const at::Tensor of_all = comm.all_gather(own.to(at::kDouble), all).to(at::kLong);
  if (comm.rank() != 0) {
    return "";
  }
  const std::vector<LaneState> predicted =
      lane_states(setup.model, setup.plan, state_options(setup));
  Json records = Json::array();
  std::vector<std::string> held_texts;
  std::vector<std::string> predicted_texts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::int64_t* bytes = of_all.const_data_ptr<std::int64_t>() + kParts * rank;
    const LaneState state{bytes[0], bytes[1], bytes[2]};
    const int lane = rank % setup.plan.num_lanes();
    const LaneState& expected = predicted[static_cast<std::size_t>(lane)];
    Json& record = records.emplace_back();
    record["replica"] = rank / setup.plan.num_lanes();
    record["lane"] = lane;
    add(state, "", record);
    add(expected, "predicted_", record);
    if (rank < setup.plan.num_lanes()) {
      held_texts.push_back(format_bytes(state.total_bytes()));
      predicted_texts.push_back(format_bytes(expected.total_bytes()));
    }
  }
  write_file(std::filesystem::path(setup.config.output) / kMemoryReportName,
             records.dump(1) + "\n");
  return concat("parameters, gradients and optimizer state per lane: ",
                join(held_texts),
                " (predicted ",
                join(predicted_texts),
                ")");
}

}  // namespace entrain::engine
