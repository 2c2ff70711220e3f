#include "entrain/core/cost/memory.h"

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/cost/dtype.h"
#include "entrain/core/spec/parameters.h"

namespace entrain {
namespace {

constexpr std::int64_t kFloat32Bytes = 4;

}  // namespace

std::vector<StateBytes> lane_states(const ModelSpec& model,
                                    const Plan& plan,
                                    const StateOptions& options) {
  const std::int64_t parameter_bytes = dtype_bytes(options.parameter_dtype, "parameters");
  const bool master = options.parameter_dtype != "float32";
  const std::int64_t optimizer_bytes = (2 + (master ? 1 : 0)) * kFloat32Bytes;
  std::vector<StateBytes> result;
  for (const std::vector<StageRef>& lane : plan.lanes) {
    StateBytes& state = result.emplace_back();
    for (const StageRef& ref : lane) {
      const ModulePlan& module = plan.modules[at(ref.module)];
      const auto [begin, end] = module.stages[at(ref.stage)];
      std::int64_t trained = 0;
      for (int layer = begin; layer < end; ++layer) {
        const LayerCounts counts = count_parameters(model, ref.module, layer);
        state.parameter_bytes += counts.per_device(module.tensor_parallel) * parameter_bytes;
        trained += counts.trained_per_device(module.tensor_parallel);
      }
      const std::int64_t sharers =
          options.shard_optimizer ? std::int64_t{plan.replicas} * module.context_parallel : 1;
      state.gradient_bytes += trained * kFloat32Bytes;
      state.optimizer_bytes += (trained * optimizer_bytes + sharers - 1) / sharers;
    }
  }
  return result;
}

ActivationRoom activation_room(std::span<const StateBytes> states,
                               std::int64_t memory_bytes,
                               std::int64_t reserve_bytes) {
  if (memory_bytes < 0 || reserve_bytes < 0) {
    throw InvalidInput(
        fmt::format("memory of {} bytes with a reserve of {} given; at least 0 is needed",
                    memory_bytes,
                    reserve_bytes));
  }
  ActivationRoom room;
  if (memory_bytes == 0) {
    return room;
  }
  for (std::size_t lane = 0; lane < states.size(); ++lane) {
    const std::int64_t left = memory_bytes - reserve_bytes - states[lane].total_bytes();
    room.lane_bytes.push_back(left);
    if (left < 1) {
      room.short_lanes.push_back({static_cast<int>(lane), 1 - left});
    }
  }
  if (!room.fits()) {
    room.lane_bytes.clear();
  }
  return room;
}

}  // namespace entrain
