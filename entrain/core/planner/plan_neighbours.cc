#include "entrain/core/planner/plan_neighbours.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"
#include "entrain/core/planner/plan_scorer.h"

namespace entrain {
namespace {

class Neighbours {
 public:
  Neighbours(const PlanScorer& scorer, const ModelSpec& model, const PlanShape& config)
      : scorer_(scorer), model_(model), config_(config) {}

  std::vector<PlanNeighbour> list() {
    move_lanes();
    change_degrees();
    change_virtual_stages();
    change_replicas();
    change_layout();
    return std::move(result_);
  }

 private:
  void add(const PlanShape& config, const std::string& change) {
    PlanShape other = config;
    if (other.replicas != config_.replicas) {
      const std::set<int> counts = scorer_.space().slot_counts(other.replicas);
      const int wanted = config_.num_slots * config_.replicas / other.replicas;
      other.num_slots = *std::min_element(counts.begin(), counts.end(), [&](int a, int b) {
        return std::abs(a - wanted) < std::abs(b - wanted);
      });
    }
    const bool known =
        other == config_ || std::any_of(result_.begin(), result_.end(), [&](const auto& neighbour) {
          return neighbour.config == other;
        });
    if (!known && scorer_.space().contains(other)) {
      PlanNeighbour& neighbour = result_.emplace_back();
      neighbour.config = other;
      neighbour.change = change;
    }
  }

  [[nodiscard]] std::string name(std::size_t module) const {
    return module_name(model_, static_cast<int>(module));
  }

  // Modules that share lanes with the first one change with it.
  [[nodiscard]] bool follows_first(std::size_t module) const {
    return module > 0 && (config_.layout == ModuleLayout::kColocated ||
                          (config_.layout == ModuleLayout::kSharedEncoders &&
                           module + 1 < config_.modules.size()));
  }

  void change_stages(PlanShape& config, std::size_t module, int by) const {
    config.modules[module].stages += by;
    for (std::size_t other = 1; other < config.modules.size() && module == 0; ++other) {
      config.modules[other].stages += follows_first(other) ? by : 0;
    }
  }

  void move_lanes() {
    for (std::size_t from = 0; from < config_.modules.size(); ++from) {
      for (std::size_t to = 0; to < config_.modules.size(); ++to) {
        if (from == to || follows_first(from) || follows_first(to)) {
          continue;
        }
        const int given = config_.modules[from].degrees.devices();
        const int taken = config_.modules[to].degrees.devices();
        const int devices = std::lcm(given, taken);
        PlanShape other = config_;
        change_stages(other, from, -devices / given);
        change_stages(other, to, devices / taken);
        if (other.modules[from].stages >= 1) {
          add(other,
              fmt::format("{} device{} of {} to {}",
                          devices,
                          devices == 1 ? "" : "s",
                          name(from),
                          name(to)));
        }
      }
    }
  }

  void change_degrees() {
    for (std::size_t module = 0; module < config_.modules.size(); ++module) {
      const ModuleShape& own = config_.modules[module];
      for (const Degrees& degrees : scorer_.space().degrees()[module]) {
        const bool near =
            degrees != own.degrees && (degrees.tensor_parallel == own.degrees.tensor_parallel ||
                                       degrees.context_parallel == own.degrees.context_parallel ||
                                       degrees.devices() == own.degrees.devices());
        const int devices = own.degrees.devices() * own.stages;
        if (!near || devices % degrees.devices() != 0) {
          continue;
        }
        PlanShape other = config_;
        other.modules[module].degrees = degrees;
        other.modules[module].stages = devices / degrees.devices();
        add(other, describe(other.modules[module], model_, static_cast<int>(module)));
      }
    }
  }

  void change_virtual_stages() {
    for (std::size_t module = 0; module < config_.modules.size(); ++module) {
      for (const int by : {-1, 1}) {
        PlanShape other = config_;
        other.modules[module].virtual_stages += by;
        add(other, describe(other.modules[module], model_, static_cast<int>(module)));
      }
    }
  }

  void change_replicas() {
    for (const bool more : {true, false}) {
      if (!more && config_.replicas % 2 != 0) {
        continue;
      }
      PlanShape stages = config_;
      stages.replicas = more ? config_.replicas * 2 : config_.replicas / 2;
      PlanShape tensor = stages;
      for (std::size_t module = 0; module < config_.modules.size(); ++module) {
        int& number = stages.modules[module].stages;
        number = more ? number / 2 : number * 2;
        int& degree = tensor.modules[module].degrees.tensor_parallel;
        degree = more ? degree / 2 : degree * 2;
      }
      add(stages, fmt::format("{} replicas, stages to match", stages.replicas));
      add(tensor, fmt::format("{} replicas, tensor parallelism to match", tensor.replicas));
    }
  }

  void change_layout() {
    const std::size_t llm = config_.modules.size() - 1;
    const auto modules = static_cast<int>(config_.modules.size());
    PlanShape other = config_;
    if (config_.layout == ModuleLayout::kColocated) {
      other = on_own_lanes(at(modules));
      add(other, "lanes of each module's own");
      other = config_;
      other.layout = ModuleLayout::kOwnLanes;
      if (config_.replicas % modules == 0) {
        other.replicas = config_.replicas / modules;
        add(other, fmt::format("{} replicas, a lane for each module", other.replicas));
      }
      return;
    }
    if (modules > 1 && lanes_of(config_) == modules) {
      other.layout = ModuleLayout::kColocated;
      other.replicas = config_.replicas * modules;
      add(other, fmt::format("{} replicas, all modules on one lane", other.replicas));
      other = config_;
    }
    other.layout = ModuleLayout::kColocated;
    const Degrees degrees = config_.modules[0].degrees;
    other.modules.assign(at(modules), {degrees, devices_per_replica(config_) / degrees.devices()});
    add(other, "all modules share lanes");
    other = config_;
    if (llm < 2) {
      return;
    }
    if (config_.layout == ModuleLayout::kOwnLanes) {
      int stages = 0;
      for (std::size_t module = 0; module < llm; ++module) {
        stages += config_.modules[module].stages;
      }
      other.layout = ModuleLayout::kSharedEncoders;
      for (std::size_t module = 0; module < llm; ++module) {
        other.modules[module] = {config_.modules[0].degrees, stages};
      }
      add(other, "encoders share lanes");
      return;
    }
    add(on_own_lanes(llm), "encoders on lanes of their own");
  }

  // The first modules, which share lanes, get about as many of them each.
  [[nodiscard]] PlanShape on_own_lanes(std::size_t count) const {
    PlanShape other = config_;
    other.layout = ModuleLayout::kOwnLanes;
    const int lanes = config_.modules[0].stages;
    const auto modules = static_cast<int>(count);
    for (std::size_t module = 0; module < count; ++module) {
      const auto index = static_cast<int>(module);
      other.modules[module].stages = lanes / modules + (index < lanes % modules ? 1 : 0);
    }
    return other;
  }

  const PlanScorer& scorer_;
  const ModelSpec& model_;
  const PlanShape& config_;
  std::vector<PlanNeighbour> result_;
};

}  // namespace

std::vector<PlanNeighbour> judge_neighbours(const PlanSearchRequest& request,
                                            const PlanShape& config,
                                            std::int64_t best_total_ns) {
  PlanScorer scorer(request);
  scorer.set_lead(best_total_ns);
  std::vector<PlanNeighbour> result = Neighbours(scorer, *request.model, config).list();
  for (PlanNeighbour& neighbour : result) {
    neighbour.bound = scorer.bounds().bound(neighbour.config);
    if (neighbour.bound.cause == BoundCause::kMemory) {
      const ModuleShape& shape =
          neighbour.config.modules[static_cast<std::size_t>(neighbour.bound.module)];
      const MemoryShortage shortage =
          scorer.bounds().shortage(neighbour.config.replicas, neighbour.bound.module, shape);
      neighbour.reason =
          fmt::format("stage {} of {} needs {} a device, {} short",
                      shortage.stage,
                      describe(shape, *request.model, neighbour.bound.module),
                      format_bytes(shortage.bytes),
                      format_bytes(std::max<std::int64_t>(0, shortage.missing_bytes)));
      continue;
    }
    PlanCandidate& candidate = neighbour.candidate.emplace(scorer.score(neighbour.config, kNoStop));
    if (candidate.reason.empty() && total_ns(candidate) <= best_total_ns) {
      scorer.check_all(candidate);
    }
    neighbour.reason = candidate.reason;
  }
  std::stable_sort(
      result.begin(), result.end(), [](const PlanNeighbour& a, const PlanNeighbour& b) {
        return std::pair(!a.fits(), a.fits() ? total_ns(*a.candidate) : 0) <
               std::pair(!b.fits(), b.fits() ? total_ns(*b.candidate) : 0);
      });
  return result;
}

}  // namespace entrain
