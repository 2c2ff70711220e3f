#include "entrain/core/schedule/list_schedule.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "entrain/core/schedule/order.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/lane_layouts.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/turn_orders.h"

namespace entrain {
namespace {

using oracle::make_random_case;
using oracle::RandomCase;

// One replica of a case, ready for the scheduler and, as a program, for the simulator.
class Replica {
 public:
  Replica(const RandomCase& of, int index) : plan_(of.plan), costs_(of.costs) {
    plan_.replicas = 1;
    assignment_ = of.assignment;
    assignment_.replicas = {of.assignment.replicas[static_cast<std::size_t>(index)]};
    groups_ = build_groups(assignment_.replicas[0], costs_);
    stages_ = stage_graph(plan_, costs_.link);
    stages_.set_halves(costs_);
    graph_ = replica_graph(stages_, costs_, groups_);
  }

  [[nodiscard]] const StageGraph& stages() const { return stages_; }
  [[nodiscard]] const ReplicaGraph& graph() const { return graph_; }
  [[nodiscard]] OrderInputs inputs() const { return {plan_, costs_, stages_, graph_}; }
  Plan& plan() { return plan_; }
  [[nodiscard]] Timeline simulated(std::string_view schedule) const {
    const Program program = build_program(plan_, assignment_, costs_, schedule);
    validate_program(program, plan_, assignment_, costs_);
    return simulate(program, costs_);
  }

 private:
  Plan plan_;
  StepCosts costs_;
  StepAssignment assignment_;
  std::vector<ModuleGroups> groups_;
  StageGraph stages_;
  ReplicaGraph graph_;
};

// Bytes are counted where a lane is limited: here by what no lane reaches.
std::vector<std::int64_t> ample_limits(const Replica& replica) {
  return std::vector<std::int64_t>(replica.stages().lanes.size(), std::int64_t{1} << 50);
}

void expect_same(const Timeline& timeline,
                 const ListResult& result,
                 bool limited,
                 const std::string& what) {
  for (std::size_t lane = 0; lane < result.finish_ns.size(); ++lane) {
    ASSERT_EQ(timeline.lanes[0][lane].finish.count(), result.finish_ns[lane])
        << "lane " << lane << "\n"
        << what;
    ASSERT_EQ(limited ? timeline.lanes[0][lane].peak_bytes : 0, result.peak_bytes[lane])
        << "lane " << lane << "\n"
        << what;
  }
}

// Operations that often start at one time, or take none.
void make_coarse(StepCosts& costs) {
  for (ModuleCosts& module : costs.modules) {
    for (StageCosts& stage : module.stages) {
      stage.launch = {};
      for (UnitCost& unit : stage.units) {
        for (std::chrono::nanoseconds* time :
             {&unit.time.forward, &unit.time.backward_input, &unit.time.backward_weight}) {
          *time = std::chrono::nanoseconds{time->count() % 3};
        }
      }
    }
  }
}

// The order of encoders' backwards decides about a lane's peak.
void make_recomputation_large(StepCosts& costs) {
  for (int module = 0; module < costs.llm_module(); ++module) {
    for (StageCosts& stage : costs.modules[static_cast<std::size_t>(module)].stages) {
      std::int64_t bytes = 0;
      for (UnitCost& unit : stage.units) {
        bytes = (bytes * 7 + 1300) % 10007;
        unit.activation_bytes += 1000;
        unit.recompute = {1000 * bytes, 1000 * bytes};
      }
    }
  }
}

// Lanes of one stage, of all stages, of some; chunks; and a limit of time, which stops what takes
// longer, and nothing else. Orders are those of the oracle, times and bytes the simulator's.
TEST(ListScheduler, ReplaysTurnsToTheNanosecond) {
  Rng rng(20261121, 1);
  std::map<std::string, int> replayed;
  for (int i = 0; i < 6000; ++i) {
    oracle::RandomCaseOptions options;
    options.recompute = i % 3 == 0;
    options.chunks = i % 2 == 0;
    RandomCase of = make_random_case(rng, options);
    const bool equal_stages =
        std::all_of(of.plan.modules.begin(), of.plan.modules.end(), [&](const ModulePlan& module) {
          return module.stages.size() == of.plan.modules[0].stages.size();
        });
    if (i % 2 == 1 && equal_stages) {
      oracle::colocate_lanes(of.plan);
    }
    if (i % 5 == 0) {
      make_coarse(of.costs);
    }
    if (i % 4 == 0) {
      make_recomputation_large(of.costs);
    }
    Replica replica(of, 0);
    const bool limited = i % 3 != 1;
    ListScheduler scheduler(replica.stages(),
                            limited ? ample_limits(replica) : std::vector<std::int64_t>());
    for (const char* schedule : {"1f1b", "gpipe", "zb-h1", "zb-h2", "dip"}) {
      if (!schedule_objection(schedule, of.plan).empty()) {
        continue;
      }
      const ListRule rule = list_schedule(schedule, of.plan).rules.front();
      std::vector<std::vector<Operation>> orders;
      const ListResult result = scheduler.run(replica.graph(), rule, &orders);
      ASSERT_TRUE(result.done) << schedule << "\n" << describe(of);
      ASSERT_EQ(orders, oracle::turn_orders(replica.inputs(), schedule)) << schedule << "\n"
                                                                         << describe(of);
      expect_same(replica.simulated(schedule), result, limited, schedule + ("\n" + describe(of)));
      const std::int64_t last = *std::max_element(result.finish_ns.begin(), result.finish_ns.end());
      ASSERT_TRUE(scheduler.run(replica.graph(), rule, nullptr, last).done) << describe(of);
      ASSERT_FALSE(scheduler.run(replica.graph(), rule, nullptr, last - 1).done) << describe(of);
      ++replayed[schedule];
    }
  }
  EXPECT_GT(replayed["dip"], 100);
  EXPECT_EQ(replayed["zb-h1"], 6000);
}

// The order that it finds is valid, and the simulator agrees on its times and bytes.
TEST(ListScheduler, KnowsTheTimesAndBytesOfTheOrdersItFinds) {
  Rng rng(20261121, 2);
  for (int i = 0; i < 2000; ++i) {
    const RandomCase of = make_random_case(rng, {.recompute = i >= 1500});
    Replica replica(of, 0);
    const bool limited = i % 2 == 0;
    ListScheduler scheduler(replica.stages(),
                            limited ? ample_limits(replica) : std::vector<std::int64_t>());
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    ListResult found;
    for (const ListRule& rule : list_schedule("entrain", of.plan).rules) {
      const ListResult& result = scheduler.run(replica.graph(), rule);
      ASSERT_TRUE(result.done) << describe(of);
      const std::int64_t makespan =
          *std::max_element(result.finish_ns.begin(), result.finish_ns.end());
      if (makespan < best) {
        best = makespan;
        found = result;
      }
    }
    expect_same(replica.simulated("entrain"), found, limited, describe(of));
    const ListResult eager = scheduler.run(replica.graph(), eager_rules().front());
    expect_same(replica.simulated("1f1b-eager"), eager, limited, describe(of));
  }
}

// Under a byte limit an order is found that keeps it, or strict 1F1B is what is left.
// Terms that wait for each other, from the step's start to its end.
TEST(ListScheduler, KnowsAChainAsLongAsTheReplicaTakes) {
  int chains = 0;
  for (int i = 0; i < 200; ++i) {
    Rng rng(20261130, static_cast<std::uint64_t>(i));
    const RandomCase of = make_random_case(rng, {.chunks = i % 3 == 0});
    const Replica replica(of, 0);
    ListScheduler scheduler(replica.stages(), {});
    scheduler.set_lane_end(std::vector<std::int64_t>(replica.stages().lanes.size(), 7));
    for (const char* schedule : {"1f1b", "zb-h1", "entrain"}) {
      for (const ListRule& rule : list_schedule(schedule, of.plan).rules) {
        const ListResult& result = scheduler.run(replica.graph(), rule);
        if (!result.done) {
          continue;
        }
        std::vector<std::int64_t> times;
        const std::int64_t latest = scheduler.replay().length(replica.graph(), times);
        ASSERT_EQ(latest, 7 + *std::max_element(result.finish_ns.begin(), result.finish_ns.end()));
        const CriticalChain chain = scheduler.replay().chain(replica.graph(), times);
        std::int64_t sum = chain.end_ns;
        for (const OrderTerm& term : chain.terms) {
          sum += term.duration(replica.graph());
        }
        ASSERT_EQ(sum, latest) << schedule << ", case " << i;
        ++chains;
      }
    }
  }
  EXPECT_GT(chains, 1000);
}

TEST(ListScheduler, KeepsByteLimits) {
  Rng rng(20261121, 3);
  int kept = 0;
  for (int i = 0; i < 1500; ++i) {
    RandomCase of = make_random_case(rng, {.recompute = i >= 1000});
    Replica free(of, 0);
    ListScheduler unlimited(free.stages(), ample_limits(free));
    const std::vector<std::int64_t> strict = unlimited.run(free.graph(), kStrictRule).peak_bytes;
    const std::vector<std::int64_t> eager =
        unlimited.run(free.graph(), eager_rules().front()).peak_bytes;
    std::vector<std::int64_t> limits;
    for (std::size_t lane = 0; lane < strict.size(); ++lane) {
      limits.push_back(std::max<std::int64_t>(1, (strict[lane] + eager[lane]) / 2));
    }
    ListScheduler scheduler(free.stages(), limits);
    for (const ListRule& rule : entrain_rules()) {
      const ListResult& result = scheduler.run(free.graph(), rule);
      ASSERT_NE(result.done, result.stuck);
      for (std::size_t lane = 0; rule.obey_bytes && lane < limits.size(); ++lane) {
        ASSERT_LE(result.peak_bytes[lane], limits[lane]) << "lane " << lane << "\n" << describe(of);
      }
      kept += result.done ? 1 : 0;
    }
  }
  EXPECT_GT(kept, 5000);
}

TEST(ListScheduler, StopsEarlyOnlyWhereTheTimeIsExceeded) {
  Rng rng(20261121, 4);
  int stopped = 0;
  for (int i = 0; i < 1000; ++i) {
    const RandomCase of = make_random_case(rng);
    Replica replica(of, 0);
    ListScheduler scheduler(replica.stages(), {});
    for (const ListRule& rule : {kStrictRule, entrain_rules().front()}) {
      const ListResult whole = scheduler.run(replica.graph(), rule);
      const std::int64_t makespan =
          *std::max_element(whole.finish_ns.begin(), whole.finish_ns.end());
      ASSERT_TRUE(scheduler.run(replica.graph(), rule, nullptr, makespan).done) << describe(of);
      if (makespan > 0) {
        const bool done = scheduler.run(replica.graph(), rule, nullptr, makespan - 1).done;
        ASSERT_FALSE(done) << describe(of);
        stopped += scheduler.run(replica.graph(), rule, nullptr, makespan * 9 / 10).done ? 0 : 1;
      }
    }
  }
  EXPECT_GT(stopped, 1000);
}

}  // namespace
}  // namespace entrain
