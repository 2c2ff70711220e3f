// The bound, and how near `entrain` comes, against the best of all assignments of tiny batches:
// per schedule and per freedom to defer.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/random.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/exhaustive_assignment.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

constexpr std::uint64_t kSeed = 20261121;
constexpr int kCases = 2'160;
constexpr int kSlots = 3;
constexpr std::array kSchedules = {"1f1b", "1f1b-eager", "entrain"};
constexpr std::array kDeferrals = {0, 1, -1};

// Over the instances of one schedule and one freedom.
struct Class {
  int checked = 0;
  int bound_met = 0;
  int optimum_found = 0;
  double ratio_sum = 0;  // of `entrain` over the optimum
  double worst = 0;

  void add(std::int64_t ours, std::int64_t best, std::int64_t bound) {
    const double ratio = best > 0 ? static_cast<double>(ours) / static_cast<double>(best) : 1.0;
    ++checked;
    bound_met += bound == best ? 1 : 0;
    optimum_found += ours <= best ? 1 : 0;
    ratio_sum += ratio;
    worst = std::max(worst, ratio);
  }
};

// A small instance, every twentieth a larger one; false when the enumeration would be too long.
bool draw(std::int64_t index, oracle::RandomCase& instance) {
  oracle::RandomCaseOptions options;
  options.max_samples = 4;
  Rng rng(kSeed, static_cast<std::uint64_t>(index));
  instance = oracle::make_random_case(rng, options);
  const std::int64_t most = index % 20 == 0 ? 10'000 : 400;
  return oracle::exhaustive_size(instance.plan, instance.costs, kSlots) <= most;
}

std::int64_t entrain_step_ns(const oracle::RandomCase& instance) {
  AssignRequest request;
  request.plan = &instance.plan;
  request.costs = &instance.costs;
  const StepAssignment assignment = assign("entrain", request);
  validate_assignment(assignment, instance.plan, instance.costs);
  const Program program =
      build_program(instance.plan, assignment, instance.costs, instance.plan.schedule);
  return simulate(program, instance.costs).makespan.count();
}

TEST(Optimum, IsBoundedAndNearlyReached) {
  std::array<Class, kSchedules.size() * kDeferrals.size()> classes;
  oracle::RandomCase instance;
  int checked = 0;
  for (std::int64_t i = 0; checked < kCases; ++i) {
    ASSERT_LT(i, 100 * kCases);
    if (!draw(i, instance)) {
      continue;
    }
    const std::size_t of = static_cast<std::size_t>(checked++) % classes.size();
    instance.plan.schedule = kSchedules[of % kSchedules.size()];
    instance.plan.limits.max_deferral = kDeferrals[of / kSchedules.size()];
    const oracle::ExhaustiveResult best =
        oracle::exhaustive_assignment(instance.plan, instance.costs, kSlots);
    const std::int64_t bound =
        step_lower_bound(instance.plan, instance.costs, instance.plan.schedule).count();
    ASSERT_LE(bound, best.step_ns) << "seed " << kSeed << ", case " << i << "\n"
                                   << describe(instance);
    // More slots than the enumeration's can only help.
    classes[of].add(entrain_step_ns(instance), best.step_ns, bound);
  }
  double ratio_sum = 0;
  for (std::size_t of = 0; of < classes.size(); ++of) {
    const Class& result = classes[of];
    std::printf(
        "%-10s max_deferral %2d: %d instances, mean %.4f, worst %.3f of the optimum; found %d, "
        "bound met %d\n",
        kSchedules[of % kSchedules.size()],
        kDeferrals[of / kSchedules.size()],
        result.checked,
        result.ratio_sum / result.checked,
        result.worst,
        result.optimum_found,
        result.bound_met);
    ratio_sum += result.ratio_sum;
    EXPECT_LT(result.ratio_sum / result.checked, 1.02);
  }
  EXPECT_LT(ratio_sum / kCases, 1.01);
}

}  // namespace
}  // namespace entrain
