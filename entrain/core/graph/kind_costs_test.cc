#include "entrain/core/graph/kind_costs.h"

#include <gtest/gtest.h>

#include "tests/oracle/paper_costs.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Whether a stage's costs of every unit are those of its kind, and its launch constants, too.
bool is_kind(const KindCosts& costs, const StageCosts& stage, int kind) {
  const auto index = static_cast<std::size_t>(kind);
  const auto times_equal = [](const GraphUnit& flat, const OperationTimes& expected) {
    return flat.forward == expected.forward.count() &&
           flat.backward_input == expected.backward_input.count() &&
           flat.backward_weight == expected.backward_weight.count() &&
           flat.split == expected.split.count();
  };
  bool same = times_equal(costs.launch[index], stage.launch);
  for (std::size_t unit = 0; unit < stage.units.size(); ++unit) {
    const GraphUnit cost = costs.cost(unit, index);
    const UnitCost& expected = stage.units[unit];
    same = same && times_equal(cost, expected.time) &&
           cost.activation_bytes == expected.activation_bytes &&
           cost.output_bytes == expected.output_bytes && cost.recompute == expected.recompute;
  }
  return same;
}

// A sample's number costs what its units cost, and works as much.
void expect_sums(const ModuleCosts& from, const KindCosts& costs) {
  const auto num_units = static_cast<std::size_t>(from.first_unit.back());
  for (std::size_t sample = 0; sample + 1 < from.first_unit.size(); ++sample) {
    const auto begin = static_cast<std::size_t>(from.first_unit[sample]);
    const auto end = static_cast<std::size_t>(from.first_unit[sample + 1]);
    std::int64_t work = 0;
    for (std::size_t unit = begin; unit < end; ++unit) {
      for (const StageCosts& stage : from.stages) {
        work += (stage.units[unit].time.forward + stage.units[unit].time.backward()).count();
      }
    }
    ASSERT_EQ(costs.work[num_units + sample], work);
    for (std::size_t kind = 0; kind < costs.kinds.size(); ++kind) {
      GraphUnit sum;
      for (std::size_t unit = begin; unit < end; ++unit) {
        add(costs.cost(unit, kind), sum);
      }
      ASSERT_EQ(costs.cost(num_units + sample, kind), sum);
      for (std::size_t unit = begin; unit < end; ++unit) {
        subtract(costs.cost(unit, kind), sum);
      }
      ASSERT_EQ(sum, GraphUnit{});
    }
  }
}

TEST(KindCosts, HaveWhatEveryStageCosts) {
  int fewer = 0;
  for (int i = 0; i < 1000; ++i) {
    Rng rng(20261129, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng, {.alike = i % 2 == 0});
    for (const ModuleCosts& from : of.costs.modules) {
      std::vector<int> kinds;
      const KindCosts costs(from, kinds);
      ASSERT_EQ(kinds.size(), from.stages.size());
      for (std::size_t stage = 0; stage < kinds.size(); ++stage) {
        ASSERT_TRUE(is_kind(costs, from.stages[stage], kinds[stage])) << "case " << i;
      }
      expect_sums(from, costs);
      ASSERT_FALSE(HasFatalFailure()) << "case " << i;
      fewer += costs.kinds.size() < kinds.size() ? 1 : 0;
    }
  }
  EXPECT_GT(fewer, 20) << "stages that cost the same have to be among the cases";
}

TEST(KindCosts, CountEveryUnitOfARun) {
  const StepCosts of = step_costs(oracle::paper_model(),
                                  oracle::paper_plan(),
                                  oracle::paper_profile(),
                                  oracle::batch_of_runs());
  ASSERT_EQ(of.modules[0].runs.size(), 5U);
  for (const ModuleCosts& from : of.modules) {
    std::vector<int> kinds;
    expect_sums(from, KindCosts(from, kinds));
  }
}

}  // namespace
}  // namespace entrain
