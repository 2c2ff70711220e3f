#include "entrain/core/report/alternatives.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/step/step.h"

namespace entrain {
namespace {

constexpr std::array<std::string_view, 4> kNames = {
    "other_slot", "llm_slot", "not_deferred", "other_replica"};

struct Place {
  int replica = -1;
  int llm_slot = -1;
  int first_encoder_slot = -1;  // of its segments; -1 without any
  int last_encoder_slot = -1;
  bool chunks = false;
};

Place find_place(const StepAssignment& assignment, int sample) {
  Place place;
  for (int replica = 0; replica < static_cast<int>(assignment.replicas.size()); ++replica) {
    const ReplicaAssignment& part = assignment.replicas[at(replica)];
    for (std::size_t module = 0; module < part.modules.size(); ++module) {
      for (int slot = 0; slot < part.num_slots; ++slot) {
        for (const WorkItem& item : part.modules[module][at(slot)]) {
          if (item.sample != sample) {
            continue;
          }
          place.replica = replica;
          if (module + 1 == part.modules.size()) {
            place.llm_slot = slot;
            place.chunks = place.chunks || item.is_chunk();
          } else {
            place.last_encoder_slot = std::max(place.last_encoder_slot, slot);
            place.first_encoder_slot =
                place.first_encoder_slot < 0 ? slot : std::min(place.first_encoder_slot, slot);
          }
        }
      }
    }
  }
  ENTRAIN_INVARIANT(place.replica >= 0, "the sample is not in its assignment");
  return place;
}

// Takes the sample's work out of the modules [first_module, end).
void take_out(int sample, std::size_t first_module, ReplicaAssignment& replica) {
  for (std::size_t module = first_module; module < replica.modules.size(); ++module) {
    for (Slot& slot : replica.modules[module]) {
      std::erase_if(slot, [&](const WorkItem& item) { return item.sample == sample; });
    }
  }
}

void put_in(const StepCosts& costs, int sample, int slot, ReplicaAssignment& replica) {
  for (int module = 0; module < costs.llm_module(); ++module) {
    const std::vector<int>& first = costs.modules[at(module)].first_unit;
    for (int segment = 0; segment < first[at(sample) + 1] - first[at(sample)]; ++segment) {
      replica.modules[at(module)][at(slot)].push_back({.sample = sample, .segment = segment});
    }
  }
  replica.modules.back()[at(slot)].push_back({.sample = sample});
}

// What one replica takes before it meets the others.
struct ReplicaEnd {
  std::int64_t total_ns = 0;  // latest finish of a lane including its reduction
  bool fits = true;
};

// Times replicas by their own programs: they meet only at the end of a step.
class ReplicaTimer {
 public:
  ReplicaTimer(const Plan& plan, const StepCosts& costs) : plan_(plan), costs_(costs) {
    for (const std::vector<StageRef>& lane : plan.lanes) {
      std::int64_t optimizer = 0;
      reduce_ns_.push_back(0);
      for (const StageRef& ref : lane) {
        const StageCosts& stage = costs.modules[at(ref.module)].stages[at(ref.stage)];
        optimizer += stage.optimizer.count();
        reduce_ns_.back() += plan.replicas > 1 ? stage.reduce.count() : 0;
      }
      optimizer_ns_ = std::max(optimizer_ns_, optimizer);
    }
    plan_.replicas = 1;
    assignment_.replicas.resize(1);
  }

  ReplicaEnd time(const ReplicaAssignment& replica) {
    assignment_.replicas[0] = replica;
    const SimulatedStep step = simulate_step(assignment_, plan_, costs_, {.prove = false});
    ReplicaEnd end;
    end.fits = !step.excess.has_value();
    for (int lane = 0; lane < plan_.num_lanes(); ++lane) {
      const LaneUsage& usage = step.timeline.lanes[0][at(lane)];
      end.total_ns = std::max(end.total_ns, usage.finish.count() + reduce_ns_[at(lane)]);
    }
    return end;
  }

  // The step time that simulate() gives for the program of all replicas, reductions at the end.
  [[nodiscard]] std::int64_t step_ns(const std::vector<ReplicaEnd>& replicas) const {
    std::int64_t latest = 0;
    for (const ReplicaEnd& replica : replicas) {
      latest = std::max(latest, replica.total_ns);
    }
    return latest + optimizer_ns_;
  }

 private:
  Plan plan_;  // of one replica
  const StepCosts& costs_;
  std::vector<std::int64_t> reduce_ns_;  // [lane]
  std::int64_t optimizer_ns_ = 0;        // of the slowest lane
  StepAssignment assignment_;            // of one replica
};

class AlternativeSearch {
 public:
  AlternativeSearch(const Plan& plan,
                    const StepCosts& costs,
                    const StepAssignment& assignment,
                    int sample)
      : plan_(plan),
        costs_(costs),
        assignment_(assignment),
        sample_(sample),
        place_(find_place(assignment, sample)),
        timer_(plan, costs) {}

  std::vector<Alternative> run() {
    if (place_.chunks) {
      return {};
    }
    for (const ReplicaAssignment& replica : assignment_.replicas) {
      now_.push_back(timer_.time(replica));
    }
    within_replica();
    if (place_.first_encoder_slot >= 0 && place_.first_encoder_slot < place_.llm_slot) {
      consider_within(AlternativeKind::kNotDeferred, place_.llm_slot, 0);
    }
    to_other_replicas();
    std::vector<Alternative> result;
    for (const std::optional<Alternative>& best : best_) {
      if (best) {
        result.push_back(*best);
      }
    }
    return result;
  }

 private:
  void within_replica() {
    const int num_slots = assignment_.replicas[at(place_.replica)].num_slots;
    for (int slot = 0; slot < num_slots; ++slot) {
      if (slot == place_.llm_slot) {
        continue;
      }
      consider_within(AlternativeKind::kOtherSlot, slot, 0);
      const int distance = slot - place_.first_encoder_slot;
      const bool near = plan_.limits.max_deferral < 0 || distance <= plan_.limits.max_deferral;
      if (place_.first_encoder_slot >= 0 && slot >= place_.last_encoder_slot && near) {
        consider_within(AlternativeKind::kLlmSlot, slot, at(costs_.llm_module()));
      }
    }
  }

  void consider_within(AlternativeKind kind, int slot, std::size_t first_module) {
    ReplicaAssignment changed = assignment_.replicas[at(place_.replica)];
    take_out(sample_, first_module, changed);
    if (first_module == 0) {
      put_in(costs_, sample_, slot, changed);
    } else {
      changed.modules.back()[at(slot)].push_back({.sample = sample_});
    }
    std::vector<ReplicaEnd> times = now_;
    times[at(place_.replica)] = timer_.time(changed);
    keep(kind, place_.replica, slot, times);
  }

  void to_other_replicas() {
    ReplicaAssignment rest = assignment_.replicas[at(place_.replica)];
    take_out(sample_, 0, rest);
    const bool empty = std::all_of(rest.modules.back().begin(),
                                   rest.modules.back().end(),
                                   [](const Slot& slot) { return slot.empty(); });
    if (empty) {
      return;
    }
    std::vector<ReplicaEnd> times = now_;
    times[at(place_.replica)] = timer_.time(rest);
    for (int replica = 0; replica < static_cast<int>(now_.size()); ++replica) {
      if (replica == place_.replica) {
        continue;
      }
      for (int slot = 0; slot < assignment_.replicas[at(replica)].num_slots; ++slot) {
        ReplicaAssignment changed = assignment_.replicas[at(replica)];
        put_in(costs_, sample_, slot, changed);
        times[at(replica)] = timer_.time(changed);
        keep(AlternativeKind::kOtherReplica, replica, slot, times);
      }
      times[at(replica)] = now_[at(replica)];
    }
  }

  void keep(AlternativeKind kind, int replica, int slot, const std::vector<ReplicaEnd>& times) {
    Alternative alternative;
    alternative.kind = kind;
    alternative.replica = replica;
    alternative.slot = slot;
    alternative.step_change_ns = timer_.step_ns(times) - timer_.step_ns(now_);
    alternative.replica_change_ns =
        std::max(times[at(place_.replica)].total_ns, times[at(replica)].total_ns) -
        std::max(now_[at(place_.replica)].total_ns, now_[at(replica)].total_ns);
    alternative.fits = times[at(place_.replica)].fits && times[at(replica)].fits;
    std::optional<Alternative>& best = best_[static_cast<std::size_t>(kind)];
    const auto rank = [](const Alternative& a) {
      return std::tuple(!a.fits, a.step_change_ns, a.replica_change_ns);
    };
    if (!best || rank(alternative) < rank(*best)) {
      best = alternative;
    }
  }

  const Plan& plan_;
  const StepCosts& costs_;
  const StepAssignment& assignment_;
  int sample_;
  Place place_;
  ReplicaTimer timer_;
  std::vector<ReplicaEnd> now_;                                 // [replica]
  std::array<std::optional<Alternative>, kNames.size()> best_;  // [kind]
};

}  // namespace

std::string_view name_of(AlternativeKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<Alternative> best_alternatives(const Plan& plan,
                                           const StepCosts& costs,
                                           const StepAssignment& assignment,
                                           int sample) {
  return AlternativeSearch(plan, costs, assignment, sample).run();
}

}  // namespace entrain
