#include "entrain/core/planner/memory_check.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/parallel.h"
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

SharedVector<SampleWork> MemoryCheck::work_of(std::int64_t step, bool keep) {
  const auto found = kept_.find(step);
  if (found != kept_.end()) {
    return found->second;
  }
  SharedVector<SampleWork> work;
  work.own() = inputs_.further->draw(step);
  if (keep) {
    kept_[step] = work;
  }
  return work;
}

FurtherMiss MemoryCheck::check(const Plan& plan, std::size_t count, bool may_stop) {
  FurtherMiss result;
  if (inputs_.cluster->memory_bytes == 0 && plan.limits.bytes_per_lane == 0) {
    return result;
  }
  const Profile profile = cluster_profile(*inputs_.profile, *inputs_.cluster, plan.replicas);
  std::int64_t units = 0;
  count = std::min(count, order_.size());
  std::vector<Checked> checked;
  for (std::size_t index = 0; index < count; ++index) {
    if (may_stop && result.batches >= kLeastCheckBatches && units >= kMostCheckUnits) {
      break;
    }
    if (checked.empty()) {
      checked = check_from(plan, profile, index, count);
    }
    Checked& here = checked.back();
    units += here.units;
    ++result.batches;
    if (inputs_.on_batch) {
      inputs_.on_batch();
    }
    if (here.miss) {
      result.step = order_[index];
      result.miss = std::move(*here.miss);
      const auto place = order_.begin() + static_cast<std::ptrdiff_t>(index);
      if (index >= num_known_) {
        ++num_known_;
      }
      std::rotate(order_.begin(), place, place + 1);
      break;
    }
    checked.pop_back();
  }
  return result;
}

// Of as many batches as threads, the last one first.
std::vector<MemoryCheck::Checked> MemoryCheck::check_from(const Plan& plan,
                                                          const Profile& profile,
                                                          std::size_t first,
                                                          std::size_t end) {
  std::vector<Checked> result(std::min(end - first, static_cast<std::size_t>(inputs_.threads)));
  std::vector<SharedVector<SampleWork>> works;
  for (std::size_t index = first; index < first + result.size(); ++index) {
    works.push_back(work_of(order_[index], index < std::max(num_known_, kFewBatches)));
  }
  parallel_for(std::ssize(works), inputs_.threads, [&](std::int64_t number) {
    const auto index = static_cast<std::size_t>(number);
    const StepCosts costs = step_costs(*inputs_.model, plan, profile, works[index]);
    const AssignRequest request{
        .plan = &plan, .costs = &costs, .step = order_[first + index], .seed = inputs_.seed};
    result[result.size() - 1 - index] = {unit_stages(plan, costs),
                                         memory_miss(plan.policy, request)};
  });
  return result;
}

std::string describe(const FurtherBatches& further, std::int64_t step) {
  return fmt::format("one of {} further batches (step {})", further.count(), step);
}

}  // namespace entrain
