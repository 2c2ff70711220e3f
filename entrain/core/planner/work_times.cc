#include "entrain/core/planner/work_times.h"

#include <algorithm>
#include <numeric>

#include "entrain/core/cost/analytic.h"
#include "entrain/core/spec/plan.h"

namespace entrain {
namespace {

// An hour of video has thousands of units.
constexpr int kBlock = 64;

}  // namespace

WorkTimes work_times(const StepCosts& costs) {
  WorkTimes result;
  for (const ModuleCosts& module : costs.modules) {
    std::vector<std::int64_t>& samples =
        result.emplace_back(static_cast<std::size_t>(costs.num_samples), 0);
    for (const StageCosts& stage : module.stages) {
      for (std::size_t sample = 0; sample < samples.size(); ++sample) {
        const auto end = static_cast<std::size_t>(module.first_unit[sample + 1]);
        for (auto unit = static_cast<std::size_t>(module.first_unit[sample]); unit < end; ++unit) {
          const OperationTimes& time = stage.units[unit].time;
          samples[sample] += (time.forward + time.backward()).count();
        }
      }
    }
  }
  return result;
}

WorkTimes work_times(int num_samples,
                     const std::function<StepCosts(int begin, int end)>& costs_of) {
  WorkTimes result;
  for (int begin = 0; begin < num_samples; begin += kBlock) {
    const WorkTimes block = work_times(costs_of(begin, std::min(num_samples, begin + kBlock)));
    result.resize(block.size());
    for (std::size_t module = 0; module < block.size(); ++module) {
      result[module].insert(result[module].end(), block[module].begin(), block[module].end());
    }
  }
  return result;
}

WorkTimes work_times(const ModelSpec& model,
                     const Profile& profile,
                     std::span<const SampleWork> work) {
  const std::vector<int> one_stage(static_cast<std::size_t>(model.num_modules()), 1);
  const Plan plan = even_plan(model, one_stage, 1, 1);
  return work_times(static_cast<int>(work.size()), [&](int begin, int end) {
    return step_costs(
        model,
        plan,
        profile,
        work.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  });
}

std::vector<std::int64_t> hold_weights(const ModelSpec& model, std::span<const SampleWork> work) {
  const Profile profile = analytic_profile(model, device_model("a40"));
  std::vector<std::int64_t> weights(work.size(), 0);
  for (const std::vector<std::int64_t>& module : work_times(model, profile, work)) {
    std::transform(
        module.begin(), module.end(), weights.begin(), weights.begin(), std::plus<std::int64_t>());
  }
  return weights;
}

std::vector<std::int64_t> total_work(const WorkTimes& work_ns) {
  std::vector<std::int64_t> result;
  for (const std::vector<std::int64_t>& samples : work_ns) {
    result.push_back(std::accumulate(samples.begin(), samples.end(), std::int64_t{0}));
  }
  return result;
}

std::vector<std::int64_t> total_work(const WorkTimes& work_ns, std::span<const int> rows) {
  std::vector<std::int64_t> result;
  for (const std::vector<std::int64_t>& samples : work_ns) {
    std::int64_t& sum = result.emplace_back(0);
    for (const int row : rows) {
      sum += samples[static_cast<std::size_t>(row)];
    }
  }
  return result;
}

}  // namespace entrain
