// The generator behind the property tests: its cases are valid, and wild enough to matter.
#include "tests/oracle/random_cases.h"

#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"

namespace entrain {
namespace {

using oracle::make_random_case;
using oracle::RandomCase;

constexpr std::uint64_t kSeed = 5;
constexpr int kCases = 1000;

TEST(RandomCases, AreValid) {
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Rng rng(kSeed, i);
    const RandomCase instance = make_random_case(rng);
    const std::string where = "seed 5 case " + std::to_string(i);
    ASSERT_NO_THROW(validate(instance.model, where)) << describe(instance);
    ASSERT_NO_THROW(validate(instance.plan, instance.model, where)) << describe(instance);
    ASSERT_NO_THROW(validate_assignment(instance.assignment, instance.plan, instance.costs))
        << where << "\n"
        << describe(instance);
  }
}

TEST(RandomCases, CoverWhatPoliciesNeverDo) {
  int far_deferrals = 0;
  int spread_samples = 0;
  int empty_slots = 0;
  int text_only_samples = 0;
  int unequal_slots = 0;
  int shared_lanes = 0;
  for (std::uint64_t i = 0; i < kCases; ++i) {
    Rng rng(kSeed, i);
    const RandomCase instance = make_random_case(rng);
    const auto llm = static_cast<std::size_t>(instance.costs.llm_module());
    for (const ReplicaAssignment& replica : instance.assignment.replicas) {
      std::set<std::tuple<int, int>> seen;  // module and sample
      for (const Deferral& deferral : deferrals(replica)) {
        far_deferrals += deferral.to_slot - deferral.from_slot > 1 ? 1 : 0;
        spread_samples += seen.emplace(deferral.module, deferral.sample).second ? 0 : 1;
      }
      for (const Slot& slot : replica.modules[llm]) {
        empty_slots += slot.empty() ? 1 : 0;
      }
    }
    for (const SampleWork& sample : instance.costs.work) {
      bool text_only = true;
      for (const auto& segments : sample.segments) {
        text_only = text_only && segments.empty();
      }
      text_only_samples += text_only ? 1 : 0;
    }
    const auto& replicas = instance.assignment.replicas;
    unequal_slots += replicas.front().num_slots != replicas.back().num_slots ? 1 : 0;
    shared_lanes += instance.plan.num_lanes() > 1 && instance.plan.lanes[0].size() > 1 ? 1 : 0;
  }
  EXPECT_GE(far_deferrals, 500);
  EXPECT_GE(spread_samples, 300);
  EXPECT_GE(empty_slots, 500);
  EXPECT_GE(text_only_samples, 500);
  EXPECT_GE(unequal_slots, 100);
  EXPECT_GE(shared_lanes, 50);
}

}  // namespace
}  // namespace entrain
