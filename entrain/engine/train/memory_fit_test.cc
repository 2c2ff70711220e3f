#include "entrain/engine/train/memory_fit.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

MemorySupply host_with(std::int64_t bytes) {
  MemorySupply supply;
  supply.host = {bytes, "a test"};
  return supply;
}

class MemoryFitTest : public testing::Test {
 protected:
  MemoryFitTest() {
    run_.config.plan.replicas = 2;
    run_.config.plan.stages = {{"llm", 2}};
  }

  [[nodiscard]] MemoryFit fit_of(const RunSetup& setup, const MemorySupply& supply) const {
    return memory_fit(setup, prepare_step(setup, 0), all_ranks(setup.plan), supply);
  }
  [[nodiscard]] std::vector<WayToFit> ways_of(const RunSetup& setup,
                                              const MemorySupply& supply) const {
    return ways_to_fit(setup, all_ranks(setup.plan), supply, fit_of(setup, supply));
  }
  // Writes a model file whose LLM is so wide.
  void make_wide(int hidden) const {
    std::string text = tiny::kRunModel;
    const std::string given = "hidden = 24";
    run_.write("model.toml",
               text.replace(text.find(given), given.size(), concat("hidden = ", hidden)));
  }

  tiny::RunFolder run_;
};

TEST_F(MemoryFitTest, HoldsWhatTheMemoryModelSaysOfEveryRank) {
  const RunSetup setup = prepare_run(run_.config);
  const PreparedStep first = prepare_step(setup, 0);
  const MemoryFit fit = memory_fit(setup, first, all_ranks(setup.plan), host_with(1 << 30));
  const std::vector<StateBytes> states = lane_states(setup.model, setup.plan, state_options(setup));
  ASSERT_EQ(fit.lanes.size(), 3U);
  std::int64_t of_ranks = 0;
  std::int64_t snapshot = 0;
  for (std::size_t lane = 0; lane < 3; ++lane) {
    EXPECT_EQ(fit.lanes[lane].ranks, 2);
    EXPECT_EQ(fit.lanes[lane].weights, states[lane].parameter_bytes);
    EXPECT_EQ(fit.lanes[lane].gradients, states[lane].gradient_bytes);
    EXPECT_EQ(fit.lanes[lane].moments, states[lane].optimizer_bytes);
    EXPECT_EQ(fit.lanes[lane].masters, 0);
    EXPECT_EQ(fit.lanes[lane].activations,
              std::max(first.predicted.lanes[0][lane].peak_bytes,
                       first.predicted.lanes[1][lane].peak_bytes));
    of_ranks += 2 * states[lane].total_bytes() + first.predicted.lanes[0][lane].peak_bytes +
                first.predicted.lanes[1][lane].peak_bytes;
    snapshot += 3 * states[lane].parameter_bytes;  // weights and two moments
  }
  ASSERT_EQ(fit.places.size(), 1U);
  EXPECT_EQ(fit.places[0].of_ranks, of_ranks);
  EXPECT_EQ(fit.places[0].checkpoint, snapshot);
  EXPECT_GT(fit.places[0].read_ahead, 0);
  EXPECT_LT(fit.places[0].read_ahead, 1 << 20) << "no more than two steps hold";
  EXPECT_TRUE(fit.fits());
  EXPECT_FALSE(fit_of(setup, host_with(fit.needed() - 1)).fits());
  EXPECT_TRUE(fit_of(setup, host_with(fit.needed())).fits());
  EXPECT_TRUE(fit_of(setup, host_with(-1)).fits()) << "nobody knows";
}

TEST_F(MemoryFitTest, CountsMastersAndSharesOfBf16) {
  run_.config.execution.precision = Precision::kBf16;
  run_.config.plan.shard_optimizer = true;
  const MemoryFit fit = fit_of(prepare_run(run_.config), host_with(1 << 30));
  for (const LaneMemory& lane : fit.lanes) {
    EXPECT_EQ(lane.gradients, 2 * lane.weights);
    EXPECT_EQ(lane.moments, 2 * lane.weights) << "8 bytes over two replicas, weights have 2";
    EXPECT_EQ(lane.masters, lane.weights);
  }
}

TEST_F(MemoryFitTest, CountsTheRanksOfThisHostAlone) {
  const RunSetup setup = prepare_run(run_.config);
  const PreparedStep first = prepare_step(setup, 0);
  const MemorySupply supply = host_with(1 << 30);
  const MemoryFit begin = memory_fit(setup, first, {0, 4}, supply);
  const MemoryFit end = memory_fit(setup, first, {4, 2}, supply);
  EXPECT_EQ(begin.places[0].of_ranks + end.places[0].of_ranks,
            fit_of(setup, supply).places[0].of_ranks);
  EXPECT_EQ(begin.lanes.size(), 3U);
  EXPECT_EQ(begin.lanes[0].ranks, 2);
  EXPECT_EQ(begin.lanes[1].ranks, 1);
  EXPECT_EQ(end.places[0].checkpoint, 0) << "the first replica's ranks write";
}

TEST_F(MemoryFitTest, GivesDevicesTheirRanksAndTheHostTheRest) {
  const RunSetup setup = prepare_run(run_.config);
  MemorySupply supply = host_with(1 << 30);
  supply.devices = {1 << 30, 1};
  const MemoryFit fit = fit_of(setup, supply);
  ASSERT_EQ(fit.places.size(), 3U);
  EXPECT_EQ(fit.places[0].of_ranks, 0);
  EXPECT_GT(fit.places[0].checkpoint, 0);
  EXPECT_GT(fit.places[1].of_ranks, 0);
  EXPECT_EQ(fit.places[1].missing(), 0);
  EXPECT_EQ(fit.missing(), fit.places[2].of_ranks - 1);
}

TEST_F(MemoryFitTest, SumsThatNoIntegerHoldsAreTheLargestOne) {
  LaneMemory lane;
  lane.weights = std::numeric_limits<std::int64_t>::max() - 1;
  lane.moments = 7;
  EXPECT_EQ(lane.total(), std::numeric_limits<std::int64_t>::max());
}

TEST_F(MemoryFitTest, ChangesThatFitComeInTheOrderOfWhatTheyChange) {
  const RunSetup setup = prepare_run(run_.config);
  const std::int64_t now = fit_of(setup, host_with(1)).needed();
  const std::vector<WayToFit> ways = ways_of(setup, host_with(now - 1));
  ASSERT_EQ(ways.size(), 3U);
  EXPECT_EQ(ways[0].change, "plan.shard_optimizer = true");
  for (const WayToFit& way : ways) {
    EXPECT_TRUE(way.fits) << way.change;
    EXPECT_EQ(way.needed + way.saved, now);
  }
  // What is promised is what a run of that configuration needs.
  run_.config.plan.shard_optimizer = true;
  EXPECT_EQ(fit_of(prepare_run(run_.config), host_with(1)).needed(), ways[0].needed);
  const std::vector<WayToFit> others =
      ways_of(prepare_run(run_.config), host_with(ways[0].needed - 1));
  EXPECT_TRUE(std::ranges::none_of(
      others, [](const WayToFit& way) { return way.change.starts_with("plan.shard_optimizer"); }));
}

TEST_F(MemoryFitTest, PredictedChangesMatchWhatSuchRunsNeed) {
  const auto needed = [&] { return fit_of(prepare_run(run_.config), host_with(1)).needed(); };
  // Too little for any: those that save most.
  const std::vector<WayToFit> ways = ways_of(prepare_run(run_.config), host_with(1));
  ASSERT_GE(ways.size(), 3U);
  EXPECT_FALSE(ways[0].fits);
  EXPECT_GE(ways[0].saved, ways[1].saved);
  const auto half = std::ranges::find(ways, "plan.replicas = 1", &WayToFit::change);
  ASSERT_NE(half, ways.end());
  run_.config.plan.replicas = 1;
  EXPECT_EQ(needed(), half->needed);
  run_.config.plan.replicas = 2;
  const auto frozen = std::ranges::find(ways, "freeze = [\"llm\"]", &WayToFit::change);
  ASSERT_NE(frozen, ways.end());
  run_.config.freeze = {"llm"};
  EXPECT_EQ(needed(), frozen->needed);
}

TEST_F(MemoryFitTest, NamesThePlanFileWhereItHoldsTheNumber) {
  const RunSetup setup = prepare_run(run_.config);
  run_.config.plan.file = run_.write("plan.json", to_json(setup.plan).dump()).string();
  const std::vector<WayToFit> ways = ways_of(prepare_run(run_.config), host_with(1));
  const std::string change = concat("replicas of '", run_.config.plan.file, "' = 1");
  EXPECT_EQ(std::ranges::count(ways, change, &WayToFit::change), 1);
}

TEST_F(MemoryFitTest, CountsWhatEveryRankReadsOfACheckpoint) {
  run_.config.steps = 2;
  tiny::train_now(run_.config, /*interrupt=*/true);
  const RunSetup resumed = prepare_run(run_.config);
  ASSERT_TRUE(resumed.resume.has_value());
  RunSetup fresh = resumed;
  fresh.resume.reset();
  EXPECT_EQ(fit_of(resumed, host_with(1)).places[0].checkpoint,
            2 * fit_of(fresh, host_with(1)).places[0].checkpoint);
}

TEST_F(MemoryFitTest, NamesAllThatHelpTogetherWhereNoneDoesAlone) {
  run_.config.plan.policy = "lpt-2d";  // whose slots recomputing does not change
  const RunSetup setup = prepare_run(run_.config);
  const std::vector<WayToFit> alone = ways_of(setup, host_with(1));
  const std::vector<WayToFit> ways = ways_of(setup, host_with(alone.front().needed - 1));
  ASSERT_EQ(ways.size(), 4U);
  EXPECT_TRUE(ways.back().fits);
  EXPECT_NE(ways.back().change.find("execution.recompute = \"full\",\n  plan.replicas = 1"),
            std::string::npos)
      << ways.back().change;
}

TEST_F(MemoryFitTest, RefusesWithTablesBeforeAnythingIsAllocated) {
  make_wide(100'000);
  const RunSetup setup = prepare_run(run_.config);
  const std::string message =
      error_of<NothingFits>([&] { check_memory(setup, all_ranks(setup.plan)); });
  for (const char* part : {"does not fit into memory",
                           "this host would need",
                           "lane  ranks",
                           "available",
                           "freeze = [\"llm\"]",
                           "execution.memory_check = \"warn\""}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
  for (const std::string_view line : split(message, '\n')) {
    EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST_F(MemoryFitTest, WarnsWhenConfiguredAndLetsPacedRunsPass) {
  EXPECT_EQ(check_memory(prepare_run(run_.config), {0, 6}), "") << "a tiny run";
  make_wide(100'000);
  run_.config.execution.memory_check = "warn";
  const RunSetup setup = prepare_run(run_.config);
  EXPECT_NE(check_memory(setup, all_ranks(setup.plan)).find("it continues because"),
            std::string::npos);
  run_.config.execution.memory_check = "stop";
  run_.config.execution.paced = true;
  EXPECT_EQ(check_memory(prepare_run(run_.config), {0, 6}), "");
}

TEST_F(MemoryFitTest, RefusesWeightsThatDoNotFit) {
  const RunSetup setup = prepare_run(run_.config);
  EXPECT_EQ(check_weights_memory(setup.model, run_.path("absent"), "cpu", "stop"), "");
  ModelSpec wide = setup.model;
  wide.llm.intermediate = 1 << 20;
  wide.llm.hidden = 1 << 20;
  const std::string message = error_of<NothingFits>(
      [&] { check_weights_memory(wide, run_.path("absent"), "cpu", "stop"); });
  EXPECT_NE(message.find("do not fit into memory"), std::string::npos) << message;
  EXPECT_NE(check_weights_memory(wide, run_.path("absent"), "cpu", "warn"), "");
}

}  // namespace
}  // namespace entrain::engine
