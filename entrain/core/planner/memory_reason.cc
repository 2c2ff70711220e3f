#include "entrain/core/planner/memory_reason.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

// A shape of a module and what its most crowded lane lacks.
struct Shortage {
  int replicas = 0;
  ModuleShape shape;
  MemoryShortage memory;
};

class Reason {
 public:
  Reason(const PlanScorer& scorer, const PlanSearchRequest& request)
      : scorer_(scorer), request_(request) {}

  // The replicas under which the worst module lacks least: that module.
  [[nodiscard]] std::optional<Shortage> nearest() const {
    std::optional<Shortage> nearest;
    for (const int replicas : scorer_.space().replica_counts()) {
      std::optional<Shortage> worst;
      for (int module = 0; module < request_.model->num_modules(); ++module) {
        const std::optional<Shortage> of = best_shape(replicas, module, devices(replicas));
        if (of.has_value() &&
            (!worst.has_value() || of->memory.missing_bytes > worst->memory.missing_bytes)) {
          worst = of;
        }
      }
      if (worst.has_value() &&
          (!nearest.has_value() || worst->memory.missing_bytes < nearest->memory.missing_bytes)) {
        nearest = worst;
      }
    }
    return nearest;
  }

  // Devices of a replica with which the module would fit, and the shape; none where no number does.
  [[nodiscard]] std::optional<ModuleShape> fitting_shape(int replicas, int module) const {
    std::optional<ModuleShape> result;
    for_each_shape(module, [&](const ModuleShape& shape, int index) {
      const bool fits =
          scorer_.bounds().module_bound(replicas, module, index, shape.stages).cause !=
          BoundCause::kMemory;
      if (fits && (!result.has_value() || devices_of(shape) < devices_of(*result))) {
        result = shape;
      }
    });
    return result;
  }

 private:
  static int devices_of(const ModuleShape& shape) { return shape.degrees.devices() * shape.stages; }
  [[nodiscard]] int devices(int replicas) const { return scorer_.space().num_devices() / replicas; }

  template <class Visit>
  void for_each_shape(int module, const Visit& visit) const {
    const std::vector<Degrees>& degrees = scorer_.space().degrees()[at(module)];
    for (std::size_t index = 0; index < degrees.size(); ++index) {
      for (int stages = 1; stages <= num_layers(*request_.model, module); ++stages) {
        visit(ModuleShape{degrees[index], stages}, static_cast<int>(index));
      }
    }
  }

  // The module's shape on at most this many devices that lacks the fewest bytes; maybe none.
  [[nodiscard]] std::optional<Shortage> best_shape(int replicas, int module, int most) const {
    std::optional<Shortage> best;
    for_each_shape(module, [&](const ModuleShape& shape, int) {
      if (devices_of(shape) > most) {
        return;
      }
      const MemoryShortage memory = scorer_.bounds().shortage(replicas, module, shape);
      if (!best.has_value() || memory.missing_bytes < best->memory.missing_bytes) {
        best = Shortage{replicas, shape, memory};
      }
    });
    return best;
  }

  const PlanScorer& scorer_;
  const PlanSearchRequest& request_;
};

// The configurations that were tried, and the one of them that came nearest to fitting.
std::string tried_reason(const PlanSearchRequest& request,
                         const std::vector<PlanCandidate>& no_fit) {
  const PlanCandidate* nearest = &no_fit.front();
  for (const PlanCandidate& candidate : no_fit) {
    const bool first = nearest->missing_bytes == 0;
    if (candidate.missing_bytes > 0 &&
        (first || candidate.missing_bytes < nearest->missing_bytes)) {
      nearest = &candidate;
    }
  }
  std::string text = fmt::format("none of {} configurations that were tried fits; {}{}: {}",
                                 no_fit.size(),
                                 nearest->missing_bytes > 0 ? "the nearest, " : "",
                                 describe(nearest->config, *request.model),
                                 nearest->reason);
  if (nearest->missing_bytes > 0) {
    text +=
        fmt::format("; what would fit there: devices of {}{}",
                    format_bytes(request.cluster->memory_bytes + nearest->missing_bytes),
                    request.recompute == RecomputeRule::kNever ? ", or layers that recompute" : "");
  }
  return text;
}

}  // namespace

std::string memory_reason(const PlanScorer& scorer,
                          const PlanSearchRequest& request,
                          const std::vector<PlanCandidate>& no_fit) {
  const ClusterSpec& cluster = *request.cluster;
  const Reason reason(scorer, request);
  const std::optional<Shortage> nearest = reason.nearest();
  if (cluster.memory_bytes == 0 || !nearest.has_value() || nearest->memory.missing_bytes <= 0) {
    if (!no_fit.empty()) {
      return tried_reason(request, no_fit);
    }
    return fmt::format("cluster '{}' has {}, too few for any layout of {}",
                       cluster.name,
                       counted(scorer.space().num_devices(), "device"),
                       counted(request.model->num_modules(), "module"));
  }
  const MemoryShortage& memory = nearest->memory;
  const std::string module = module_name(*request.model, memory.module);
  std::string text = fmt::format(
      "{} misses least, with {} replica{}: its stage {} needs {} a device ({} of parameters, "
      "gradients and optimizer states, {} of activations of the largest sample{}), a device has "
      "{}: "
      "{} short ({} bytes)",
      describe(nearest->shape, *request.model, memory.module),
      nearest->replicas,
      nearest->replicas == 1 ? "" : "s",
      memory.stage,
      format_bytes(memory.bytes),
      format_bytes(memory.state_bytes),
      format_bytes(memory.bytes - memory.state_bytes),
      request.recompute == RecomputeRule::kNever ? "" : " even with every layer recomputed",
      format_bytes(cluster.memory_bytes - request.reserve_bytes),
      format_bytes(memory.missing_bytes),
      memory.missing_bytes);
  text += fmt::format("; what would fit: devices of {}",
                      format_bytes(memory.bytes + request.reserve_bytes));
  if (const auto shape = reason.fitting_shape(nearest->replicas, memory.module)) {
    text += fmt::format(", or {} devices a replica for '{}' alone ({})",
                        shape->degrees.devices() * shape->stages,
                        module,
                        describe(*shape, *request.model, memory.module));
  }
  return text;
}

}  // namespace entrain
