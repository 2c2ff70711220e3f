#include "entrain/core/simulator/simulator.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using oracle::failure_of;
using oracle::group_of_items;
using oracle::two_slots_with_link;
using oracle::TwoLanes;
using std::chrono::nanoseconds;

Timeline run(const TwoLanes& lanes) {
  return simulate(lanes.program, lanes.costs, {.events = true});
}

std::vector<std::string> words_of(const Timeline& timeline, int lane) {
  std::vector<std::string> result;
  for (const TimelineEvent& event : timeline.events) {
    if (event.replica == 0 && event.lane == lane) {
      constexpr const char* kNames[] = {"run", "send", "receive", "wait"};
      result.push_back(std::string(kNames[static_cast<int>(event.category)]) + " " +
                       std::to_string(event.operation) + ": " +
                       std::to_string(event.start.count()) + "-" +
                       std::to_string(event.finish.count()));
    }
  }
  return result;
}

TEST(Simulate, TimesATwoLanePipelineAsOnPaper) {
  const Timeline timeline = run(two_slots_with_link());
  EXPECT_EQ(timeline.makespan.count(), 116);
  // A message takes 3 + 10 ns; the second activation finds the channel busy until 23.
  EXPECT_EQ(words_of(timeline, 0),
            (std::vector<std::string>{"run 0: 0-10",
                                      "send 1: 10-23",
                                      "run 2: 10-20",
                                      "send 3: 23-36",
                                      "receive 4: 53-66",
                                      "wait 5: 20-66",
                                      "run 5: 66-86",
                                      "receive 6: 83-96",
                                      "wait 7: 86-96",
                                      "run 7: 96-116"}));
  EXPECT_EQ(words_of(timeline, 1),
            (std::vector<std::string>{"receive 0: 10-23",
                                      "wait 1: 0-23",
                                      "run 1: 23-33",
                                      "run 2: 33-53",
                                      "send 3: 53-66",
                                      "receive 4: 23-36",
                                      "run 5: 53-63",
                                      "run 6: 63-83",
                                      "send 7: 83-96"}));
  EXPECT_EQ(timeline.lanes[0][0].busy.count(), 60);
  EXPECT_EQ(timeline.lanes[0][0].finish.count(), 116);
  EXPECT_EQ(timeline.lanes[0][1].busy.count(), 60);
  EXPECT_EQ(timeline.lanes[0][1].finish.count(), 83);
}

TEST(Simulate, GivesNoEventsUnlessAsked) {
  const TwoLanes lanes = two_slots_with_link();
  EXPECT_TRUE(simulate(lanes.program, lanes.costs).events.empty());
}

TEST(Simulate, ChargesLaunchConstantsPerOperation) {
  TwoLanes lanes(1);
  lanes.add_replica("F0 >F0 <B0 I0 W0", "<F0 F0 B0 >B0");
  for (ModuleCosts& module : lanes.costs.modules) {
    module.stages[0].launch = {nanoseconds{1}, nanoseconds{2}, nanoseconds{4}};
  }
  const Timeline timeline = run(lanes);
  EXPECT_EQ(timeline.lanes[0][0].busy.count(), 11 + 12 + 14);
  EXPECT_EQ(timeline.lanes[0][1].busy.count(), 11 + 26);
  EXPECT_EQ(timeline.makespan.count(), 11 + 11 + 26 + 12 + 14);
}

TEST(Simulate, HoldsAGroupsGradientUntilAllItsLlmSlotsRan) {
  // Both images lie in encoder slot 0 as one group that serves LLM slots 0 and 1.
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 <B0 B0", "<F0 F0 B0 F1 B1 >B0");
  ReplicaProgram& replica = lanes.program.replicas[0];
  replica.groups[0] = {
      {group_of_items({{.sample = 0, .segment = 0}, {.sample = 1, .segment = 0}}, {0, 1})}, {}};
  const Timeline timeline = run(lanes);
  EXPECT_EQ(timeline.makespan.count(), 20 + 60 + 40);
  // Its 20 bytes of features stay with the LLM until slot 1's backward.
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 1),
            (std::vector<std::int64_t>{20, 120, 120, 120, 120, 0}));
  EXPECT_EQ(timeline.lanes[0][0].peak_bytes, 200);
  EXPECT_EQ(timeline.lanes[0][1].peak_bytes, 120);
}

TEST(Simulate, ReducesBarriersAndOptimizersAsTheRulesSay) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 B1 reduce clip step",
                    "<F0 F0 B0 >B0 <F1 F1 B1 >B1 reduce clip step");
  lanes.add_replica("F0 >F0 <B0 B0 reduce clip step", "<F0 F0 B0 >B0 reduce clip step");
  for (std::size_t module = 0; module < 2; ++module) {
    StageCosts& stage = lanes.costs.modules[module].stages[0];
    stage.reduce = nanoseconds{module == 0 ? 5 : 100};
    stage.optimizer = nanoseconds{module == 0 ? 30 : 7};
  }
  const Timeline timeline = run(lanes);
  // Replica 0: vision ends at 90, llm at 70; replica 1: 60 and 40. Lane 0 reduces 90-95, lane 1
  // 70-170; then all clip.
  EXPECT_EQ(timeline.lanes[0][0].finish.count(), 90);
  EXPECT_EQ(timeline.lanes[0][1].finish.count(), 70);
  EXPECT_EQ(timeline.lanes[1][0].finish.count(), 60);
  EXPECT_EQ(timeline.makespan.count(), 170 + 30);
  const std::vector<std::string> words = words_of(timeline, 0);
  EXPECT_EQ(std::vector<std::string>(words.end() - 3, words.end()),
            (std::vector<std::string>{"run 8: 90-95", "wait 9: 95-170", "run 10: 170-200"}));
  int waits = 0;
  for (const TimelineEvent& event : timeline.events) {
    if (event.replica == 1 && event.lane == 0 && event.operation == 4) {
      waits += event.category == EventCategory::kWait ? 1 : 0;
      EXPECT_EQ(event.start.count(), event.category == EventCategory::kWait ? 60 : 90);
    }
  }
  EXPECT_EQ(waits, 1);
}

TEST(Simulate, HoldsTheLaneWhileItSendsIfAsked) {
  const TwoLanes lanes = two_slots_with_link();
  const Timeline timeline =
      simulate(lanes.program, lanes.costs, {.events = true, .blocking_sends = true});
  EXPECT_EQ(timeline.makespan.count(), 129);
  EXPECT_EQ(words_of(timeline, 0),
            (std::vector<std::string>{"run 0: 0-10",
                                      "send 1: 10-23",
                                      "run 2: 23-33",
                                      "send 3: 33-46",
                                      "receive 4: 53-66",
                                      "wait 5: 46-66",
                                      "run 5: 66-86",
                                      "receive 6: 96-109",
                                      "wait 7: 86-109",
                                      "run 7: 109-129"}));
  EXPECT_EQ(timeline.lanes[0][0].busy.count(), 60);
}

TEST(Simulate, SharesTheLinkBetweenNodes) {
  // Both replicas' encoders on one node, both LLMs on another; 13 ns a message.
  TwoLanes lanes(1);
  lanes.add_replica("F0 >F0 <B0 B0", "<F0 F0 B0 >B0");
  lanes.add_replica("F0 >F0 <B0 B0", "<F0 F0 B0 >B0");
  SimulateOptions options;
  options.events = true;
  options.network = {{{0, 1}, {0, 1}}, {}, {nanoseconds{3}, 1e9}};
  EXPECT_EQ(simulate(lanes.program, lanes.costs, options).makespan.count(), 10 + 13 + 30 + 13 + 20);
  options.sharing = LinkSharing::kNode;
  for (const bool blocking : {false, true}) {
    options.blocking_sends = blocking;
    const Timeline timeline = simulate(lanes.program, lanes.costs, options);
    // Replica 1 sends 23-36, replica 0 its gradient 53-66: replica 1's goes 66-79.
    EXPECT_EQ(timeline.makespan.count(), 36 + 30 + 13 + 20);
    EXPECT_EQ(timeline.lanes[0][0].finish.count(), 66 + 20);
    EXPECT_EQ(timeline.lanes[1][1].finish.count(), 66);
    const auto waits = [&](int lane) {
      return std::count_if(
          timeline.events.begin(), timeline.events.end(), [&](const TimelineEvent& event) {
            return event.replica == 1 && event.lane == lane && event.operation == 1 &&
                   event.category == EventCategory::kWait;
          });
    };
    EXPECT_EQ(waits(0), blocking ? 1 : 0);  // for the link, 10-23
  }
}

TEST(Simulate, ReducesInBucketsBesideComputeIfAsked) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 B1 reduce clip step",
                    "<F0 F0 B0 >B0 <F1 F1 B1 >B1 reduce clip step");
  lanes.add_replica("F0 >F0 <B0 B0 reduce clip step", "<F0 F0 B0 >B0 reduce clip step");
  lanes.costs.modules[0].stages[0].reduce = nanoseconds{5};
  lanes.costs.modules[1].stages[0].reduce = nanoseconds{100};
  lanes.costs.modules[0].stages[0].optimizer = nanoseconds{30};
  const Timeline timeline =
      simulate(lanes.program, lanes.costs, {.events = true, .reduce_buckets = 2});
  // Last backwards: the LLM's 50-70 and 20-40, the encoder's 70-90 and 40-60.
  const std::vector<std::string> vision = words_of(timeline, 0);
  EXPECT_EQ(
      std::vector<std::string>(vision.end() - 5, vision.end()),
      (std::vector<std::string>{
          "send 8: 80-82", "send 8: 90-93", "wait 8: 90-93", "wait 9: 93-160", "run 10: 160-190"}));
  const std::vector<std::string> llm = words_of(timeline, 1);
  EXPECT_EQ(std::vector<std::string>(llm.end() - 4, llm.end()),
            (std::vector<std::string>{
                "send 8: 60-110", "wait 8: 70-160", "send 8: 110-160", "run 10: 160-160"}));
  EXPECT_EQ(timeline.makespan.count(), 190);

  const std::int64_t at_the_end = simulate(lanes.program, lanes.costs).makespan.count();
  EXPECT_GT(at_the_end, 190);
  lanes.costs.reduce_buckets = 2;
  EXPECT_EQ(simulate(lanes.program, lanes.costs).makespan.count(), 190);
  EXPECT_EQ(simulate(lanes.program, lanes.costs, {.reduce_buckets = 0}).makespan.count(),
            at_the_end);
}

TEST(Simulate, StopsWhenTheStepTakesTooLong) {
  const TwoLanes lanes = two_slots_with_link();
  const auto stop_after = [&](std::int64_t limit) {
    return simulate(lanes.program, lanes.costs, {.stop_after = nanoseconds{limit}});
  };
  EXPECT_FALSE(stop_after(116).stopped);
  EXPECT_EQ(stop_after(116).makespan.count(), 116);
  EXPECT_EQ(stop_after(116).lanes.size(), 1U);
  // 60 ns of work on each lane are known before anything runs.
  EXPECT_TRUE(stop_after(59).stopped);
  EXPECT_EQ(stop_after(59).makespan.count(), 60);
  EXPECT_TRUE(stop_after(59).lanes.empty());
  // The encoder stands still until 66 and has 40 ns to go.
  EXPECT_TRUE(stop_after(105).stopped);
  EXPECT_EQ(stop_after(105).makespan.count(), 106);
}

TEST(Simulate, RefusesOptionsBelowZero) {
  const TwoLanes lanes = two_slots_with_link();
  EXPECT_THROW(simulate(lanes.program, lanes.costs, {.reduce_buckets = -1}), InvalidInput);
  EXPECT_THROW(simulate(lanes.program, lanes.costs, {.stop_after = nanoseconds{-1}}), InvalidInput);
}

TEST(Simulate, RunsStagesOfOneLaneWithoutMessages) {
  TwoLanes lanes(1);
  lanes.add_replica("", "");
  lanes.costs.link = {nanoseconds{1000}, 1};
  lanes.program.lanes = {{{0, 0}, {1, 0}}};
  ReplicaProgram& replica = lanes.program.replicas[0];
  replica.channels.clear();
  replica.lanes = {{{OperationKind::kForward, {0, 0, 0, 0}, -1},
                    {OperationKind::kForward, {1, 0, 0, 0}, -1},
                    {OperationKind::kBackward, {1, 0, 0, 0}, -1},
                    {OperationKind::kBackward, {0, 0, 0, 0}, -1}}};
  const Timeline timeline = run(lanes);
  EXPECT_EQ(timeline.makespan.count(), 60);
  EXPECT_DOUBLE_EQ(bubble_fraction(timeline), 0.0);
  // The features wait on the lane from their forward to the LLM's backward.
  EXPECT_EQ(memory_over_time(lanes.program, lanes.costs, 0, 0),
            (std::vector<std::int64_t>{110, 210, 210, 100}));
}

TEST(Simulate, RefusesMessagesOutOfPlace) {
  TwoLanes early(1);
  early.add_replica(">F0 F0 <B0 B0", "<F0 F0 B0 >B0");
  EXPECT_NE(failure_of(early).find("is before the operation that produces its message"),
            std::string::npos);

  TwoLanes wrong(1);
  wrong.add_replica("F0 >B0 <B0 B0", "<F0 F0 B0 >B0");
  EXPECT_NE(failure_of(wrong).find("belongs to another edge"), std::string::npos);

  TwoLanes turned(1);
  turned.add_replica("F0 >F0 <B0 B0", "<F0 F0 B0 >B0");
  turned.program.replicas[0].channels[0].target_lane = 0;
  EXPECT_NE(failure_of(turned).find("channel 0"), std::string::npos);
}

TEST(Simulate, GathersParametersWithinTheOptimizersTime) {
  TwoLanes lanes(1);
  lanes.add_replica("F0 >F0 <B0 B0 clip step", "<F0 F0 B0 >B0 clip step");
  for (ModuleCosts& module : lanes.costs.modules) {
    module.stages[0].optimizer = nanoseconds{7};
  }
  const Timeline without = run(lanes);
  for (auto& lane : lanes.program.replicas[0].lanes) {
    lane.push_back({OperationKind::kGatherParameters, {}, -1});
  }
  const Timeline with = run(lanes);
  EXPECT_EQ(with.makespan, without.makespan);
  EXPECT_EQ(with.events.size(), without.events.size());
}

TEST(Simulate, RefusesWhatHasNoCostYet) {
  TwoLanes lanes(1);
  lanes.add_replica("F0 >F0 <B0 B0", "<F0 F0 B0 >B0");
  lanes.program.replicas[0].lanes[0].push_back({OperationKind::kSyncTied, {}, -1});
  EXPECT_NE(failure_of(lanes).find("sync_tied"), std::string::npos);
  lanes.program.replicas[0].lanes[0].pop_back();
  EXPECT_EQ(failure_of(lanes), "finished");
  lanes.program.replicas[0].groups[1][0][0].items[0].token_end = 99;
  EXPECT_NE(failure_of(lanes).find("no chunk of [0, 99)"), std::string::npos);
}

TEST(Simulate, RefusesAnOperationOnAnotherLaneThanItsStage) {
  oracle::TwoLanes lanes(1);
  lanes.add_replica("F0 >F0", "<F0 F0");
  lanes.program.replicas[0].lanes[1].push_back(lanes.program.replicas[0].lanes[0][0]);
  const std::string message = oracle::failure_of(lanes);
  EXPECT_NE(message.find("replica 0 lane 1 operation 2"), std::string::npos) << message;
  EXPECT_NE(message.find("its stage is on lane 0"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain
