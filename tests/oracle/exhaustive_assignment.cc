#include "tests/oracle/exhaustive_assignment.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain::oracle {
namespace {

class Enumeration {
 public:
  Enumeration(const Plan& plan, const StepCosts& costs) : plan_(plan), costs_(costs) {
    best_.step_ns = std::numeric_limits<std::int64_t>::max();
  }

  void run(const std::vector<int>& num_slots) {
    StepAssignment assignment;
    for (const int slots : num_slots) {
      ReplicaAssignment& replica = assignment.replicas.emplace_back();
      replica.num_slots = slots;
      replica.modules.assign(costs_.modules.size(), ModuleSlots(at(slots)));
    }
    place_sample(0, assignment);
  }

  [[nodiscard]] ExhaustiveResult result() const { return best_; }

 private:
  void place_sample(int sample, StepAssignment& assignment) {
    if (sample == costs_.num_samples) {
      consider(assignment);
      return;
    }
    for (int r = 0; r < plan_.replicas; ++r) {
      for (int slot = 0; slot < assignment.replicas[at(r)].num_slots; ++slot) {
        Slot& llm = assignment.replicas[at(r)].modules[at(costs_.llm_module())][at(slot)];
        llm.push_back({.sample = sample});
        place_segment(sample, 0, 0, r, slot, assignment);
        llm.pop_back();
      }
    }
  }

  void place_segment(
      int sample, int module, int segment, int replica, int llm_slot, StepAssignment& assignment) {
    if (module == costs_.llm_module()) {
      place_sample(sample + 1, assignment);
      return;
    }
    const auto& segments = costs_.work[at(sample)].segments[at(module)];
    if (at(segment) == segments.size()) {
      place_segment(sample, module + 1, 0, replica, llm_slot, assignment);
      return;
    }
    const int limit = plan_.limits.max_deferral;
    for (int slot = limit < 0 ? 0 : std::max(0, llm_slot - limit); slot <= llm_slot; ++slot) {
      Slot& items = assignment.replicas[at(replica)].modules[at(module)][at(slot)];
      items.push_back({.sample = sample, .segment = segment});
      place_segment(sample, module, segment + 1, replica, llm_slot, assignment);
      items.pop_back();
    }
  }

  void consider(const StepAssignment& assignment) {
    for (const ReplicaAssignment& replica : assignment.replicas) {
      const ModuleSlots& slots = replica.modules.back();
      if (std::all_of(slots.begin(), slots.end(), [](const Slot& s) { return s.empty(); })) {
        return;
      }
    }
    const Program program = build_program(plan_, assignment, costs_, plan_.schedule);
    const std::int64_t step_ns = simulate(program, costs_).makespan.count();
    ++best_.tried;
    if (step_ns < best_.step_ns) {
      best_.step_ns = step_ns;
      best_.assignment = assignment;
    }
  }

  const Plan& plan_;
  const StepCosts& costs_;
  ExhaustiveResult best_;
};

}  // namespace

ExhaustiveResult exhaustive_assignment(const Plan& plan, const StepCosts& costs, int max_slots) {
  ENTRAIN_INVARIANT(max_slots >= 1, "no slots to try");
  Enumeration enumeration(plan, costs);
  std::vector<int> num_slots(at(plan.replicas), 1);
  bool more = true;
  while (more) {
    enumeration.run(num_slots);
    more = false;
    for (int& slots : num_slots) {
      if (slots < max_slots) {
        ++slots;
        more = true;
        break;
      }
      slots = 1;
    }
  }
  return enumeration.result();
}

std::int64_t exhaustive_size(const Plan& plan, const StepCosts& costs, int max_slots) {
  constexpr std::int64_t kMost = 1'000'000'000;
  std::int64_t size = 1;
  for (int r = 0; r < plan.replicas; ++r) {
    size *= max_slots;
  }
  for (int sample = 0; sample < costs.num_samples; ++sample) {
    size = std::min(kMost, size * plan.replicas * max_slots);
    for (const auto& segments : costs.work[at(sample)].segments) {
      for (std::size_t i = 0; i < segments.size(); ++i) {
        size = std::min(kMost, size * max_slots);
      }
    }
  }
  return size;
}

}  // namespace entrain::oracle
