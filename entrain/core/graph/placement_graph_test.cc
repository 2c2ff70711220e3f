#include "entrain/core/graph/placement_graph.h"

#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>

#include "entrain/core/graph/groups.h"

#include "tests/oracle/placements.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

auto fields(const GraphGroup& group) {
  return std::tie(group.module,
                  group.slot,
                  group.group,
                  group.first_unit,
                  group.first_backward,
                  group.turn,
                  group.completing,
                  group.served_begin,
                  group.served_end);
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) {
    return fields(x) == fields(y);
  });
}

bool same_costs(const StageGraph& stages, const ReplicaGraph& a, const ReplicaGraph& b) {
  for (std::size_t group = 0; group < a.groups.size(); ++group) {
    const int module = a.groups[group].module;
    const int first = stages.first_stage[static_cast<std::size_t>(module)];
    for (int stage = first; stage < first + stages.num_stages(module); ++stage) {
      if (a.cost(a.groups[group], stage) != b.cost(b.groups[group], stage)) {
        return false;
      }
    }
  }
  return true;
}

ReplicaGraph through_groups(const oracle::RandomCase& of, int replica) {
  return replica_graph(
      stage_graph(of.plan, of.costs.link),
      of.costs,
      build_groups(of.assignment.replicas[static_cast<std::size_t>(replica)], of.costs));
}

// One object builds graph after graph: nothing of an earlier one may stay.
TEST(PlacementGraph, EqualsTheGraphThatGroupsGive) {
  constexpr std::uint64_t kSeed = 20261123;
  int of_fewer_kinds = 0;
  for (int i = 0; i < 1500; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng, {.alike = i % 2 == 0});
    const Placement placement = oracle::placement_of(of.assignment, of.costs);
    PlacementGraph builder(of.plan, of.costs);
    for (int replica = of.plan.replicas - 1; replica >= 0; --replica) {
      const ReplicaGraph& built = builder.build(placement, replica);
      const ReplicaGraph expected = through_groups(of, replica);
      const std::string what = "case " + std::to_string(i) + "\n" + oracle::describe(of);
      ASSERT_EQ(built.num_slots, expected.num_slots) << what;
      ASSERT_EQ(built.first_group, expected.first_group) << what;
      ASSERT_TRUE(same(built.groups, expected.groups)) << what;
      ASSERT_EQ(built.num_units, expected.num_units) << what;
      ASSERT_TRUE(same_costs(builder.stages(), built, expected)) << what;
      of_fewer_kinds += built.costs.size() < expected.costs.size() ? 1 : 0;
      ASSERT_EQ(built.served, expected.served) << what;
      ASSERT_EQ(built.sources.begin, expected.sources.begin) << what;
      ASSERT_EQ(built.sources.groups, expected.sources.groups) << what;
      ASSERT_EQ(built.backward_order, expected.backward_order) << what;
    }
  }
  EXPECT_GT(of_fewer_kinds, 20) << "stages that cost the same have to be among the cases";
}

}  // namespace
}  // namespace entrain
