// What a move of the local search costs: building the changed replica's graph, replaying it, and
// how much of the replay stands before anything the move touches, which is the most that a replay
// could take over from the one before it.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <benchmark/benchmark.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/entrain.h"
#include "entrain/core/assigner/moves.h"
#include "entrain/core/base/random.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/graph/placement_graph.h"
#include "entrain/core/schedule/list_schedule.h"

#include "benchmarks/micro/manifest_batch.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

using Orders = std::vector<std::vector<Operation>>;

// The end of a search on a batch of a real manifest, and moves from there.
struct Searched {
  PlannedBatch batch;
  AssignRequest request;
  Placement placement;
};

void search_manifest(const std::string& name, const std::string& schedule, Searched& result) {
  result.batch = manifest_batch(name);
  result.batch.plan.schedule = schedule;
  result.request = result.batch.request();
  result.placement = entrain_policy(result.request);
}

using GroupName = std::tuple<int, int, int>;  // module, slot, group

std::map<GroupName, int> groups_by_name(const ReplicaGraph& graph) {
  std::map<GroupName, int> names;
  for (std::size_t i = 0; i < graph.groups.size(); ++i) {
    const GraphGroup& group = graph.groups[i];
    names[{group.module, group.slot, group.group}] = static_cast<int>(i);
  }
  return names;
}

// Whether the first stage's costs and the turn are those of before; other stages change along with
// it.
bool unchanged(const ReplicaGraph& before,
               const ReplicaGraph& after,
               const std::map<GroupName, int>& names_before,
               const std::map<GroupName, int>& names_after,
               const UnitKey& unit) {
  const auto old_group = names_before.find({unit.module, unit.slot, unit.group});
  const auto new_group = names_after.find({unit.module, unit.slot, unit.group});
  if (old_group == names_before.end() || new_group == names_after.end()) {
    return false;
  }
  const GraphGroup& a = before.groups[static_cast<std::size_t>(old_group->second)];
  const GraphGroup& b = after.groups[static_cast<std::size_t>(new_group->second)];
  return a.turn == b.turn && before.costs[static_cast<std::size_t>(a.first_cost)] ==
                                 after.costs[static_cast<std::size_t>(b.first_cost)];
}

// Share of the operations that stand, on their lane, before the first of a changed group.
double reusable_share(const ReplicaGraph& before, const Orders& orders, const ReplicaGraph& after) {
  const std::map<GroupName, int> names_before = groups_by_name(before);
  const std::map<GroupName, int> names_after = groups_by_name(after);
  std::size_t kept = 0;
  std::size_t all = 0;
  for (const std::vector<Operation>& lane : orders) {
    const auto first_changed =
        std::find_if(lane.begin(), lane.end(), [&](const Operation& operation) {
          return !unchanged(before, after, names_before, names_after, operation.unit);
        });
    kept += static_cast<std::size_t>(first_changed - lane.begin());
    all += lane.size();
  }
  return static_cast<double>(kept) / static_cast<double>(all);
}

ListRule rule_of(const std::string& schedule) {
  return schedule == "1f1b" ? kStrictRule : entrain_rules().front();
}

enum class Part { kGraph, kReplay };  // a replay builds the graph as well

void run_moves(benchmark::State& state, const char* name, const char* schedule, Part part) {
  if (oracle::shared_folder().empty()) {
    state.SkipWithError("no shared data; set ENTRAIN_SHARED to its folder");
    return;
  }
  Searched searched;
  search_manifest(name, schedule, searched);
  const BatchLoads loads = batch_loads(searched.batch.plan, searched.batch.costs);
  PlacementGraph graphs(searched.batch.plan, searched.batch.costs);
  ListScheduler scheduler(graphs.stages(),
                          std::vector<std::int64_t>(searched.batch.plan.lanes.size()));
  const ListRule rule = rule_of(schedule);
  Rng rng(5);
  const std::vector<int> replicas = oracle::replicas_of(searched.batch.plan);
  Placement kept = searched.placement;
  PlacementEdit edit(searched.placement, kept, replicas);
  Mover mover(searched.request, loads, replicas, rng, edit);
  graphs.place(searched.placement, 0);
  const ReplicaGraph before = graphs.graph(0);
  Orders orders;
  scheduler.run(before, rule, &orders);
  double share = 0;
  std::int64_t moves = 0;
  for (auto _ : state) {
    state.PauseTiming();
    while (mover.move(0).count == 0) {
      edit.undo();
    }
    state.ResumeTiming();
    graphs.place(edit, 0);
    const ReplicaGraph& after = graphs.graph(0);
    benchmark::DoNotOptimize(after.costs.data());
    if (part == Part::kReplay) {
      if (!scheduler.run(after, rule).done) {
        state.SkipWithError("a replay did not finish");
        return;
      }
    }
    state.PauseTiming();
    share += reusable_share(before, orders, after);
    ++moves;
    edit.undo();
    state.ResumeTiming();
  }
  state.counters["reusable"] = share / static_cast<double>(moves);
}

#define ENTRAIN_MOVES(manifest)                                                        \
  BENCHMARK_CAPTURE(run_moves, manifest##_1f1b_graph, #manifest, "1f1b", Part::kGraph) \
      ->Unit(benchmark::kMicrosecond);                                                 \
  BENCHMARK_CAPTURE(run_moves, manifest##_1f1b, #manifest, "1f1b", Part::kReplay)      \
      ->Unit(benchmark::kMicrosecond);                                                 \
  BENCHMARK_CAPTURE(run_moves, manifest##_found, #manifest, "entrain", Part::kReplay)  \
      ->Unit(benchmark::kMicrosecond)

ENTRAIN_MOVES(coco_val2017_captions);
ENTRAIN_MOVES(opencqa_charts);
ENTRAIN_MOVES(openstax_chem_sections);

}  // namespace
}  // namespace entrain
