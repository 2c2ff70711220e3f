#include "entrain/core/graph/placement_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "entrain/core/graph/groups.h"

#include "tests/oracle/case_count.h"
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

// Whether `built` is the graph that groups give.
void expect_equal(const StageGraph& stages,
                  const ReplicaGraph& built,
                  const ReplicaGraph& expected,
                  const std::string& what) {
  ASSERT_EQ(built.num_slots, expected.num_slots) << what;
  ASSERT_EQ(built.first_group, expected.first_group) << what;
  ASSERT_TRUE(same(built.groups, expected.groups)) << what;
  ASSERT_EQ(built.num_units, expected.num_units) << what;
  ASSERT_TRUE(same_costs(stages, built, expected)) << what;
  ASSERT_EQ(built.served, expected.served) << what;
  ASSERT_EQ(built.sources.begin, expected.sources.begin) << what;
  ASSERT_EQ(built.sources.groups, expected.sources.groups) << what;
  ASSERT_EQ(built.backward_order, expected.backward_order) << what;
}

const ReplicaGraph& built_by(PlacementGraph& builder, const Placement& placement, int replica) {
  builder.place(placement, replica);
  return builder.graph(replica);
}

TEST(PlacementGraph, EqualsTheGraphThatGroupsGive) {
  constexpr std::uint64_t kSeed = 20261123;
  int of_fewer_kinds = 0;
  for (int i = 0; i < 1500; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng, {.alike = i % 2 == 0});
    const Placement placement = oracle::placement_of(of.assignment, of.costs);
    PlacementGraph builder(of.plan, of.costs);
    for (int replica = of.plan.replicas - 1; replica >= 0; --replica) {
      const ReplicaGraph& built = built_by(builder, placement, replica);
      const ReplicaGraph expected = through_groups(of, replica);
      expect_equal(builder.stages(),
                   built,
                   expected,
                   "case " + std::to_string(i) + "\n" + oracle::describe(of));
      ASSERT_FALSE(HasFatalFailure());
      of_fewer_kinds += built.costs.size() < expected.costs.size() ? 1 : 0;
    }
  }
  EXPECT_GT(of_fewer_kinds, 20) << "stages that cost the same have to be among the cases";
}

int below(Rng& rng, int bound) {
  return static_cast<int>(rng.below(static_cast<std::uint64_t>(bound)));
}

// Another slot for a sample's LLM work, and slots before it for its segments.
void move_a_sample(Rng& rng, const StepCosts& costs, int replica, Placement& placement) {
  const std::vector<int>& samples = placement.samples[static_cast<std::size_t>(replica)];
  const int sample = samples[rng.below(samples.size())];
  const int slot = below(rng, placement.num_slots[static_cast<std::size_t>(replica)]);
  place_sample(costs, sample, slot, placement);
  for (int module = 0; module < costs.llm_module(); ++module) {
    const std::vector<int>& first = costs.modules[static_cast<std::size_t>(module)].first_unit;
    for (int unit = first[static_cast<std::size_t>(sample)];
         unit < first[static_cast<std::size_t>(sample) + 1] && rng.below(2) == 0;
         ++unit) {
      placement.encoder_slot[static_cast<std::size_t>(module)][static_cast<std::size_t>(unit)] =
          below(rng, slot + 1);
    }
  }
}

// Graphs are kept between calls: those of a walk on which some placements are never built, some
// moves are undone and others change the number of slots are as if built anew. Placements have the
// same shape if their graphs have.
TEST(PlacementGraph, ChangesWithThePlacement) {
  constexpr std::uint64_t kSeed = 20261125;
  int of_a_known_shape = 0;
  for (int i = 0; i < 150; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng, {.min_slots = 2});
    Placement placement = oracle::placement_of(of.assignment, of.costs);
    PlacementGraph builder(of.plan, of.costs);
    std::map<std::uint64_t, std::uint64_t> shapes;
    std::set<std::uint64_t> of_graphs;
    for (int step = 0; step < 40; ++step) {
      const Placement before = placement;
      const int replica = step % of.plan.replicas;
      if (step % 7 == 0) {
        ++placement.num_slots[static_cast<std::size_t>(replica)];
      }
      move_a_sample(rng, of.costs, replica, placement);
      const std::uint64_t shape = builder.place(placement, replica);
      const ReplicaGraph expected =
          replica_graph(builder.stages(),
                        of.costs,
                        build_groups(to_assignment(of.costs, placement, replica), of.costs));
      if (rng.below(3) != 0) {
        expect_equal(
            builder.stages(), builder.graph(replica), expected, "case " + std::to_string(i));
        ASSERT_FALSE(HasFatalFailure()) << "step " << step;
      }
      of_a_known_shape += shapes.count(shape) > 0 ? 1 : 0;
      const std::uint64_t& of_graph = shapes.emplace(shape, expected.shape()).first->second;
      of_graphs.insert(expected.shape());
      ASSERT_EQ(of_graph, expected.shape());
      ASSERT_EQ(shapes.size(), of_graphs.size());
      if (rng.below(2) == 0) {
        placement = before;
      }
    }
  }
  EXPECT_GT(of_a_known_shape, 100);
}

// Stages of one kind share their costs; chunks have kinds of stages, too.
TEST(PlacementGraph, HasKindsOfStagesThatCostTheSameForChunks) {
  int fewer = 0;
  for (int i = 0; i < oracle::case_count(200); ++i) {
    Rng rng(20261130, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng, {.chunks = true, .alike = true});
    const PlacementGraph builder(of.plan, of.costs);
    const std::vector<ModuleGroups> groups = build_groups(of.assignment.replicas[0], of.costs);
    ReplicaGraph graph = graph_without_costs(builder.stages(), builder.kind_of_stage(), groups);
    const std::uint64_t shape = graph.shape();
    fill_costs(builder.stages(), of.costs, groups, graph);
    const ReplicaGraph expected = through_groups(of, 0);
    expect_equal(builder.stages(), graph, expected, "case " + std::to_string(i));
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_EQ(shape, expected.shape());
    fewer += graph.costs.size() < expected.costs.size() ? 1 : 0;
  }
  EXPECT_GT(fewer, oracle::met_count(20));
}

// Some samples of the replica to other slots, or to another replica; their segments apart.
void edit_samples(Rng& rng, const StepCosts& costs, int replica, PlacementEdit& edit) {
  const Placement& placement = edit.placement();
  if (rng.below(8) == 0) {
    edit.set_num_slots(replica, placement.num_slots[static_cast<std::size_t>(replica)] + 1);
  }
  for (int count = 1 + below(rng, rng.below(4) == 0 ? 40 : 2); count > 0; --count) {
    const std::vector<int>& samples = placement.samples[static_cast<std::size_t>(replica)];
    const int sample = samples[rng.below(samples.size())];
    const int to = below(rng, static_cast<int>(placement.num_slots.size()));
    if (to != replica && samples.size() > 1) {
      edit.move_sample(sample, replica, to);
    }
    const int home = edit.replica_of(sample);
    const int slot = below(rng, placement.num_slots[static_cast<std::size_t>(home)]);
    edit.set_llm_slot(sample, slot);
    for (int module = 0; module < costs.llm_module(); ++module) {
      const std::vector<int>& first = costs.modules[static_cast<std::size_t>(module)].first_unit;
      const bool together = rng.below(2) == 0;
      const int common = below(rng, slot + 1);
      for (int unit = first[static_cast<std::size_t>(sample)];
           unit < first[static_cast<std::size_t>(sample) + 1];
           ++unit) {
        edit.set_encoder_slot(sample, module, unit, together ? common : below(rng, slot + 1));
      }
    }
  }
}

// Along a walk of edits, most of them undone, the graph of a replica and its shape are those of a
// placement from nothing, whether its graph was asked for after the edit before or not.
TEST(PlacementGraph, FollowsEdits) {
  constexpr std::uint64_t kSeed = 20261128;
  int edits = 0;
  for (int i = 0; i < 200; ++i) {
    Rng rng(kSeed, static_cast<std::uint64_t>(i));
    const oracle::RandomCase of = oracle::make_random_case(rng, {.min_slots = 2});
    Placement placement = oracle::placement_of(of.assignment, of.costs);
    PlacementGraph builder(of.plan, of.costs);
    for (int replica = 0; replica < of.plan.replicas; ++replica) {
      builder.place(placement, replica);
    }
    Placement before = placement;
    PlacementEdit edit(placement, before, oracle::replicas_of(of.plan));
    for (int step = 0; step < 50; ++step) {
      edit_samples(rng, of.costs, below(rng, of.plan.replicas), edit);
      for (int replica = 0; replica < of.plan.replicas; ++replica) {
        PlacementGraph anew(of.plan, of.costs);
        ASSERT_EQ(builder.place(edit, replica), anew.place(placement, replica)) << "case " << i;
        if (rng.below(3) != 0) {
          expect_equal(builder.stages(),
                       builder.graph(replica),
                       anew.graph(replica),
                       "case " + std::to_string(i) + ", step " + std::to_string(step));
          ASSERT_FALSE(HasFatalFailure());
        }
        ++edits;
      }
      if (rng.below(4) != 0) {
        edit.undo();
      } else {
        edit.keep();
        for (int replica = 0; replica < of.plan.replicas; ++replica) {
          builder.keep(replica);
        }
      }
      if (rng.below(3) == 0) {
        builder.place(placement, below(rng, of.plan.replicas));
      }
    }
  }
  EXPECT_GT(edits, 10000);
}

}  // namespace
}  // namespace entrain
