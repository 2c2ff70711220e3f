#include "entrain/core/planner/memory_check.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/plan_shape.h"
#include "entrain/core/planner/plan_units.h"

namespace entrain {
namespace {

constexpr std::size_t kFewBatches = 8;

}  // namespace

MemoryCheck::MemoryCheck(const MemoryCheckInputs& inputs)
    : inputs_(inputs), order_(inputs.further->steps) {}

FurtherMiss MemoryCheck::known(const Plan& plan) {
  return check(plan, num_known_, false);
}

FurtherMiss MemoryCheck::few(const Plan& plan) {
  return check(plan, std::max(num_known_, kFewBatches), false);
}

void MemoryCheck::forget() {
  order_ = inputs_.further->steps;
  num_known_ = 0;
}

FurtherMiss MemoryCheck::all(const Plan& plan) {
  return check(plan, order_.size(), inputs_.further->may_stop);
}

const SharedVector<SampleWork>& MemoryCheck::work_of(std::int64_t step, bool keep) {
  const auto found = kept_.find(step);
  if (found != kept_.end()) {
    return found->second;
  }
  SharedVector<SampleWork>& place = keep ? kept_[step] : last_;
  place.own() = inputs_.further->draw(step);
  return place;
}

FurtherMiss MemoryCheck::check(const Plan& plan, std::size_t count, bool may_stop) {
  FurtherMiss result;
  if (inputs_.cluster->memory_bytes == 0 && plan.limits.bytes_per_lane == 0) {
    return result;
  }
  const Profile profile = cluster_profile(*inputs_.profile, *inputs_.cluster, plan.replicas);
  std::int64_t units = 0;
  count = std::min(count, order_.size());
  for (std::size_t index = 0; index < count; ++index) {
    if (may_stop && result.batches >= kLeastCheckBatches && units >= kMostCheckUnits) {
      break;
    }
    const std::int64_t step = order_[index];
    const bool keep = index < std::max(num_known_, kFewBatches);
    const StepCosts costs = step_costs(*inputs_.model, plan, profile, work_of(step, keep));
    units += unit_stages(plan, costs);
    ++result.batches;
    if (inputs_.on_batch) {
      inputs_.on_batch();
    }
    const AssignRequest request{.plan = &plan, .costs = &costs, .step = step, .seed = inputs_.seed};
    if (std::optional<MemoryMiss> miss = memory_miss(plan.policy, request)) {
      result.step = step;
      result.miss = std::move(*miss);
      const auto place = order_.begin() + static_cast<std::ptrdiff_t>(index);
      if (index >= num_known_) {
        ++num_known_;
      }
      std::rotate(order_.begin(), place, place + 1);
      break;
    }
  }
  return result;
}

std::string describe(const FurtherBatches& further, std::int64_t step) {
  return fmt::format("one of {} further batches (step {})", further.count(), step);
}

}  // namespace entrain
