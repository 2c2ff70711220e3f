#include "entrain/core/simulator/deadlock.h"

#include <string>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using oracle::failure_of;
using oracle::TwoLanes;

TEST(Deadlock, NamesTheOperationsThatWaitForEachOther) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 <B0 B0 F1 >F1 <B1 B1", "<F0 <F1 F1 B1 >B1 F0 B0 >B0");
  const std::string message = failure_of(lanes);
  EXPECT_NE(message.find("wait for each other"), std::string::npos) << message;
  EXPECT_NE(message.find("replica 0 lane 0 operation 3 (backward vision 0 slot 0 group 0)"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("replica 0 lane 1 operation 2 (forward llm 0 slot 1 group 0)"),
            std::string::npos)
      << message;
}

TEST(Deadlock, NamesACycleOfThreeLanes) {
  // Lane 0 hosts the first and the last of four stages and would run the last one first.
  const StepCosts costs = oracle::make_plain_case({4}, 1).costs;
  Program program;
  program.lanes = {{{0, 0}, {0, 3}}, {{0, 1}}, {{0, 2}}};
  program.num_stages = {4};
  program.module_names = {"llm"};
  ReplicaProgram& replica = program.replicas.emplace_back();
  replica.groups = {{{oracle::group_of_items({{.sample = 0}}, {0})}}};
  replica.groups[0][0][0].takes_backward = {1, 1, 1, 1};
  for (int stage = 0; stage < 3; ++stage) {
    replica.channels.push_back({stage, (stage + 1) % 3, {0, stage}, {0, stage + 1}, false});
  }
  const auto forward = [](int stage) {
    return Operation{OperationKind::kForward, {0, stage, 0, 0}, -1};
  };
  const auto send = [](int stage) {
    return Operation{OperationKind::kSend, {0, stage, 0, 0}, stage};
  };
  const auto receive = [](int stage) {
    return Operation{OperationKind::kReceive, {0, stage, 0, 0}, stage};
  };
  replica.lanes = {{receive(2), forward(3), forward(0), send(0)},
                   {receive(0), forward(1), send(1)},
                   {receive(1), forward(2), send(2)}};
  try {
    simulate(program, costs);
    FAIL() << "nothing was thrown";
  } catch (const InvalidInput& error) {
    EXPECT_STREQ(error.what(),
                 "the program cannot finish, these operations wait for each other: "
                 "replica 0 lane 0 operation 1 (forward llm 3 slot 0 group 0) waits for "
                 "replica 0 lane 2 operation 1 (forward llm 2 slot 0 group 0) waits for "
                 "replica 0 lane 1 operation 1 (forward llm 1 slot 0 group 0) waits for "
                 "the first (lane 0)");
  }
  // In order all goes well.
  replica.lanes[0] = {forward(0), send(0), receive(2), forward(3)};
  EXPECT_EQ(simulate(program, costs).makespan.count(), 40);
}

TEST(Deadlock, NamesAnOperationWhoseInputIsNeverProduced) {
  TwoLanes lanes(1);
  lanes.add_replica("F0 <B0 B0", "<F0 F0 B0 >B0");
  std::string message = failure_of(lanes);
  EXPECT_NE(message.find("replica 0 lane 0 operation 2"), std::string::npos) << message;

  TwoLanes missing(1);
  missing.add_replica("F0", "<F0 F0 B0 >B0");
  message = failure_of(missing);
  EXPECT_NE(message.find("replica 0 lane 1 operation 1 (forward llm 0 slot 0 group 0) waits for "
                         "an output that no operation of replica 0 lane 0 produces"),
            std::string::npos)
      << message;

  TwoLanes reversed(1);
  reversed.add_replica("F0 >F0 <B0 B0", "<F0 B0 F0 >B0");
  message = failure_of(reversed);
  EXPECT_NE(message.find("replica 0 lane 1 operation 1 (backward llm 0 slot 0 group 0) waits for "
                         "an operation that is after it"),
            std::string::npos)
      << message;
}

TEST(Deadlock, NamesLanesThatABarrierMisses) {
  TwoLanes lanes(1);
  lanes.add_replica("F0 >F0 <B0 B0 clip", "<F0 F0 B0 >B0");
  const std::string message = failure_of(lanes);
  EXPECT_NE(message.find(
                "replica 0 lane 0 operation 4 (clip_norm) waits for an output that no operation of "
                "replica 0 lane 1 produces"),
            std::string::npos)
      << message;
}

// Slot 1 holds the second half of slot 0's sample.
TEST(Deadlock, NamesAChunkThatIsBeforeTheOneItNeeds) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B1 B1 <B0 B0", "<F0 <F1 F1 F0 B1 >B1 B0 >B0");
  EXPECT_EQ(failure_of(lanes), "finished");
  auto& groups = lanes.program.replicas[0].groups[1];
  groups[0][0].later = {{1, 0}};
  groups[1][0].earlier = {{0, 0}};
  const std::string message = failure_of(lanes);
  EXPECT_NE(message.find("operation 2 (forward llm 0 slot 1 group 0) waits for an operation that "
                         "is after it"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace entrain
