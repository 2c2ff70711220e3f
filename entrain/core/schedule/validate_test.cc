// validate_program() against programs with one thing wrong each.
#include "entrain/core/schedule/validate.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

using oracle::HandCase;
using oracle::make_hand_case;
using oracle::make_plain_case;

// A valid program to break. Lanes: vision 0, llm 0, llm 1; two replicas; slot 0 has parts 0→0 and
// 0→1 as groups of their own.
class ValidateProgram : public ::testing::Test {
 protected:
  ValidateProgram() : hand_case_(make_case()) { program_ = build("1f1b"); }

  static HandCase make_case() {
    HandCase result =
        make_hand_case({1, 2}, 3, {{0, {{0}}}, {1, {{0}}}, {1, {{1}}}, {2, {{2, 2}}}});
    result.plan.replicas = 2;
    ReplicaAssignment second = result.assignment.replicas[0];
    for (ModuleSlots& slots : second.modules) {
      slots.assign(3, {});
    }
    result.assignment.replicas.push_back(second);
    return result;
  }

  Program build(const char* schedule) {
    return build_program(hand_case_.plan, hand_case_.assignment, hand_case_.costs, schedule);
  }

  void validate() {
    validate_program(program_, hand_case_.plan, hand_case_.assignment, hand_case_.costs);
  }

  std::vector<Operation>& lane(std::size_t index) { return program_.replicas[0].lanes[index]; }

  // Position of the first operation of `kind` and slot (and group) on a lane.
  std::size_t find(std::size_t lane_index, OperationKind kind, int slot, int group = 0) {
    const auto& operations = lane(lane_index);
    const auto found =
        std::find_if(operations.begin(), operations.end(), [&](const Operation& operation) {
          return operation.kind == kind && operation.unit.slot == slot &&
                 operation.unit.group == group;
        });
    EXPECT_NE(found, operations.end()) << "no such operation";
    return static_cast<std::size_t>(found - operations.begin());
  }

  // Takes the operation at `from` out and puts it in at `to` of what is left.
  void move(std::size_t lane_index, std::size_t from, std::size_t to) {
    auto& operations = lane(lane_index);
    const Operation operation = operations[from];
    erase(lane_index, from);
    operations.insert(operations.begin() + static_cast<std::ptrdiff_t>(to), operation);
  }

  void erase(std::size_t lane_index, std::size_t position) {
    lane(lane_index).erase(lane(lane_index).begin() + static_cast<std::ptrdiff_t>(position));
  }

  void expect_refused(const std::string& part_of_message) {
    try {
      validate();
      ADD_FAILURE() << "accepted";
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find(part_of_message), std::string::npos) << error.what();
    }
  }

  HandCase hand_case_;
  Program program_;
};

TEST_F(ValidateProgram, AcceptsEverySchedule) {
  for (const std::string& name : oracle::schedules_for(hand_case_.plan)) {
    program_ = build(name.c_str());
    EXPECT_NO_THROW(validate()) << name;
  }
}

TEST_F(ValidateProgram, RefusesAMissingForward) {
  erase(2, find(2, OperationKind::kForward, 1));
  expect_refused("replica 0 lane 2: no forward of llm stage 1 slot 1 group 0");
}

TEST_F(ValidateProgram, RefusesAMissingBackward) {
  erase(0, find(0, OperationKind::kBackward, 0, 1));
  expect_refused("no backward of vision stage 0 slot 0 group 1");
}

TEST_F(ValidateProgram, RefusesADuplicate) {
  const Operation operation = lane(1)[find(1, OperationKind::kForward, 1)];
  lane(1).insert(lane(1).begin(), operation);
  expect_refused("it ran already as operation 0");
}

TEST_F(ValidateProgram, RefusesTheWrongLane) {
  const std::size_t position = find(1, OperationKind::kForward, 1);
  const Operation operation = lane(1)[position];
  erase(1, position);
  lane(2).insert(lane(2).begin(), operation);
  expect_refused("this stage runs on lane 1");
}

TEST_F(ValidateProgram, RefusesUnknownUnits) {
  lane(1)[find(1, OperationKind::kForward, 1)].unit.slot = 7;
  expect_refused("unknown unit (module 1, stage 0, slot 7, group 0)");
}

TEST_F(ValidateProgram, RefusesBackwardBeforeForward) {
  move(2, find(2, OperationKind::kBackward, 1), 0);
  expect_refused("backward stands before its forward");
}

TEST_F(ValidateProgram, RefusesBackwardWhereNothingIsTrainable) {
  set_trainable(hand_case_, 0, false);
  program_ = build("1f1b");
  lane(0).insert(lane(0).begin() + 1, {OperationKind::kBackward, {0, 0, 0, 0}, -1});
  expect_refused("nothing at this stage or nearer the input takes gradients");
}

TEST_F(ValidateProgram, AcceptsSplitBackwards) {
  for (std::size_t i = 0; i < lane(2).size(); ++i) {
    if (lane(2)[i].kind == OperationKind::kBackward) {
      lane(2)[i].kind = OperationKind::kBackwardInput;
      Operation weight = lane(2)[i];
      weight.kind = OperationKind::kBackwardWeight;
      lane(2).insert(lane(2).end() - 3, weight);
    }
  }
  EXPECT_NO_THROW(validate());
}

TEST_F(ValidateProgram, RefusesAWeightHalfBeforeItsInputHalf) {
  const std::size_t position = find(2, OperationKind::kBackward, 0);
  lane(2)[position].kind = OperationKind::kBackwardInput;
  Operation weight = lane(2)[position];
  weight.kind = OperationKind::kBackwardWeight;
  lane(2).insert(lane(2).begin() + static_cast<std::ptrdiff_t>(position), weight);
  expect_refused("the weight half stands before the input half");
}

TEST_F(ValidateProgram, RefusesHalfABackward) {
  lane(2)[find(2, OperationKind::kBackward, 0)].kind = OperationKind::kBackwardInput;
  expect_refused("no weight half");
}

TEST_F(ValidateProgram, RefusesAWholeBackwardBesideAHalf) {
  const std::size_t position = find(2, OperationKind::kBackward, 0);
  Operation weight = lane(2)[position];
  weight.kind = OperationKind::kBackwardWeight;
  lane(2).insert(lane(2).begin() + static_cast<std::ptrdiff_t>(position) + 1, weight);
  expect_refused("a whole backward beside a half");
}

TEST_F(ValidateProgram, RefusesSendsInAnotherOrderThanReceives) {
  std::swap(lane(0)[find(0, OperationKind::kSend, 0, 0)].unit,
            lane(0)[find(0, OperationKind::kSend, 0, 1)].unit);
  expect_refused("the sender's message number 0 is");
}

TEST_F(ValidateProgram, RefusesAMissingReceive) {
  erase(1, find(1, OperationKind::kReceive, 1));
  expect_refused("sends and");
}

TEST_F(ValidateProgram, RefusesAMessageThatIsLeftOutOnBothSides) {
  erase(0, find(0, OperationKind::kSend, 1));
  erase(1, find(1, OperationKind::kReceive, 1));
  expect_refused("are not those of stage vision 0, each once");
}

TEST_F(ValidateProgram, RefusesAMessageSentTwice) {
  const std::size_t send = find(0, OperationKind::kSend, 1);
  const std::size_t receive = find(1, OperationKind::kReceive, 1);
  const Operation sent = lane(0)[send];
  const Operation received = lane(1)[receive];
  lane(0).insert(lane(0).begin() + static_cast<std::ptrdiff_t>(send), sent);
  lane(1).insert(lane(1).begin() + static_cast<std::ptrdiff_t>(receive), received);
  expect_refused("each once");
}

TEST_F(ValidateProgram, RefusesASendBeforeItsProducer) {
  move(0, find(0, OperationKind::kSend, 0, 0), 0);
  expect_refused("stands before what it sends");
}

TEST_F(ValidateProgram, RefusesAReceiveBehindItsConsumer) {
  // Slot 2's activation is the channel's last, so the order of the channel stays as it is.
  move(2, find(2, OperationKind::kReceive, 2), find(2, OperationKind::kForward, 2));
  expect_refused("stands behind what needs it");
}

TEST_F(ValidateProgram, RefusesAMessageOnTheWrongChannel) {
  lane(0)[find(0, OperationKind::kSend, 1)].channel = 2;
  expect_refused("this end of the channel is lane 1");
}

TEST_F(ValidateProgram, RefusesAChannelThatIsNoEdge) {
  for (ReplicaProgram& replica : program_.replicas) {
    replica.channels[0].consumer.stage = 1;
  }
  expect_refused("channel 0: no edge of the stage graph");
}

TEST_F(ValidateProgram, RefusesAChannelBetweenOtherLanes) {
  for (ReplicaProgram& replica : program_.replicas) {
    replica.channels[0].target_lane = 2;
  }
  expect_refused("connects lanes 0 and 2, its edge lanes 0 and 1");
}

TEST_F(ValidateProgram, RefusesTwoChannelsOfOneEdge) {
  for (ReplicaProgram& replica : program_.replicas) {
    replica.channels.push_back(replica.channels[0]);
  }
  expect_refused("the same edge and direction as channel 0");
}

// Each lane alone is in order: lane 1 runs backward 0 before forward 1, lane 2 forward 1 before
// backward 0. Together they wait for each other.
TEST(ValidateOrders, RefusesLanesThatWaitForEachOther) {
  const HandCase hand_case = make_plain_case({2}, 2);
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, "gpipe");
  auto& first = program.replicas[0].lanes[0];
  const auto is = [](const Operation& operation, OperationKind kind, int slot) {
    return operation.kind == kind && operation.unit.slot == slot;
  };
  // Forward 1 and its send go behind backward 0.
  std::vector<Operation> moved;
  for (const Operation& operation : first) {
    if (is(operation, OperationKind::kForward, 1) || is(operation, OperationKind::kSend, 1)) {
      moved.push_back(operation);
    }
  }
  std::erase_if(first, [&](const Operation& operation) {
    return std::find(moved.begin(), moved.end(), operation) != moved.end();
  });
  const auto backward = std::find_if(first.begin(), first.end(), [&](const Operation& operation) {
    return is(operation, OperationKind::kBackward, 0);
  });
  first.insert(backward + 1, moved.begin(), moved.end());
  try {
    validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("waits for itself"), std::string::npos)
        << error.what();
  }
}

// Stages on one lane need no message, so only the order itself tells that slot 1 is backwards.
TEST(ValidateOrders, RefusesAConsumerBeforeItsProducerOnOneLane) {
  HandCase hand_case = make_plain_case({1, 1}, 1);
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}};
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, "1f1b");
  std::swap(program.replicas[0].lanes[0][0], program.replicas[0].lanes[0][1]);
  EXPECT_THROW(validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs),
               InvalidInput);
}

TEST_F(ValidateProgram, RefusesMoreMemoryThanTheLimit) {
  hand_case_.plan.limits.bytes_per_lane = 500;
  EXPECT_NO_THROW(validate());
  hand_case_.plan.limits.bytes_per_lane = 150;
  expect_refused("its limit is 150");
}

TEST_F(ValidateProgram, RefusesMissingStepWideOperations) {
  lane(1).pop_back();
  expect_refused("lane 1");
}

TEST_F(ValidateProgram, RefusesAMissingReduction) {
  erase(1, lane(1).size() - 3);
  expect_refused("must end with reduce_gradients here");
}

TEST_F(ValidateProgram, RefusesStepWideOperationsBeforeTheEnd) {
  lane(1).insert(lane(1).begin(), {OperationKind::kClipNorm, {}, -1});
  expect_refused("stand once, at the lane's end");
}

TEST_F(ValidateProgram, RefusesGroupsThatLoseAnItem) {
  Group& group = program_.replicas[0].groups[0][2][0];
  group.items.pop_back();
  group.part_sizes.back() -= 1;
  expect_refused("vision slot 2: the groups do not hold the 2 assigned items");
}

TEST_F(ValidateProgram, RefusesGroupsOutOfLlmSlotOrder) {
  std::vector<Group>& groups = program_.replicas[0].groups[0][0];
  std::swap(groups[0], groups[1]);
  expect_refused("serves LLM slot 0 group 0 after the group before it served slot 1 group 0");
}

TEST_F(ValidateProgram, RefusesAnEmptyGroup) {
  Group& group = program_.replicas[0].groups[1][1][0];
  group.items.clear();
  expect_refused("an empty group");
}

TEST_F(ValidateProgram, RefusesPartsThatDoNotDescribeTheirItems) {
  program_.replicas[0].groups[0][2][0].llm_slots = {1};
  expect_refused("llm_slots, part_sizes or llm_groups");
}

TEST_F(ValidateProgram, RefusesTheWrongStagesInBackward) {
  program_.replicas[0].groups[1][1][0].takes_backward[0] = 0;
  expect_refused("stage 0 takes part in backward, but takes_backward says otherwise");
}

TEST_F(ValidateProgram, RefusesOtherLanesThanThePlans) {
  std::swap(program_.lanes[0], program_.lanes[1]);
  expect_refused("lanes are not those of the plan");
}

TEST_F(ValidateProgram, RefusesAnotherNumberOfReplicas) {
  program_.replicas.pop_back();
  expect_refused("a program of 1 replicas");
}

TEST_F(ValidateProgram, RefusesOtherModulesStagesOrLanesThanThePlans) {
  const Program whole = program_;
  program_.num_stages.pop_back();
  expect_refused("a program of 1 modules, a plan of 2, costs of 2");
  program_ = whole;
  program_.num_stages[1] = 3;
  expect_refused("the program has 3 stages of llm, the plan 2");
  program_ = whole;
  program_.replicas[1].lanes.pop_back();
  expect_refused("replica 1: operations for 2 lanes, the plan has 3");
}

TEST_F(ValidateProgram, RefusesReplicasWithDifferentChannels) {
  program_.replicas[1].channels.pop_back();
  expect_refused("replica 1: its channels differ");
}

TEST(ValidateOrders, RefusesAMissingChannel) {
  HandCase hand_case = make_plain_case({1, 1}, 1);
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, "1f1b");
  program.replicas[0].channels.pop_back();
  for (auto& operations : program.replicas[0].lanes) {
    std::erase_if(operations, [](const Operation& operation) { return operation.channel == 1; });
  }
  try {
    validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("no channel for the gradients of vision stage 0"),
              std::string::npos)
        << error.what();
  }
}

// Sample 1 is cut into slots 0 and 2 of the LLM, its two images in encoder slot 0: one of the first
// chunk, one of the second.
class ValidateChunks : public ValidateProgram {
 protected:
  ValidateChunks() {
    hand_case_ = make_hand_case({1, 2}, 3, {{0, {{0}}}, {0, {{0, 0}}}, {1, {{1}}}, {2, {{2}}}});
    cut_sample(hand_case_, 1, {0, 2}, {0, 2});
    program_ = build("gpipe");
  }
  Group& llm_group(std::size_t slot, std::size_t group) {
    return program_.replicas[0].groups[1][slot][group];
  }
};

TEST_F(ValidateChunks, AcceptsWhatWasBuilt) {
  for (const std::string& schedule : oracle::schedules_for(hand_case_.plan)) {
    program_ = build(schedule.c_str());
    EXPECT_NO_THROW(validate()) << schedule;
  }
}

TEST_F(ValidateChunks, RefusesAForwardBeforeThatOfTheChunkBefore) {
  const std::size_t first = find(2, OperationKind::kForward, 0, 1);
  const std::size_t second = find(2, OperationKind::kForward, 2);
  ASSERT_LT(first, second);
  std::swap(lane(2)[first], lane(2)[second]);
  expect_refused("stands before the forward of the chunks before its own");
}

TEST_F(ValidateChunks, RefusesABackwardBeforeThatOfTheChunkAfter) {
  const std::size_t second = find(2, OperationKind::kBackward, 2);
  const std::size_t first = find(2, OperationKind::kBackward, 0, 1);
  ASSERT_LT(second, first);
  std::swap(lane(2)[first], lane(2)[second]);
  expect_refused("stands before the backward of the chunks after its own");
}

TEST_F(ValidateChunks, RefusesAWrongLink) {
  llm_group(0, 1).later.clear();
  expect_refused("its links are not those of its samples' chunks");
}

TEST_F(ValidateChunks, RefusesALlmSlotInOneGroupThatEndsInTwoSlots) {
  Group& whole = llm_group(0, 0);
  whole.items.push_back(llm_group(0, 1).items[0]);
  whole.part_sizes = {2};
  program_.replicas[0].groups[1][0].pop_back();
  expect_refused("1 groups, but its samples end in 2 slots");
}

TEST_F(ValidateChunks, RefusesAnotherTokenRange) {
  llm_group(0, 1).items[0].token_end = 4;
  expect_refused("the groups do not hold the 2 assigned items");
}

TEST_F(ValidateChunks, RefusesAPartOfAnotherGroup) {
  program_.replicas[0].groups[0][0][1].llm_groups.clear();
  expect_refused("llm_groups do not describe its items");
}

TEST_F(ValidateChunks, RefusesALossThatDoesNotReachEarlierChunks) {
  // A frozen LLM: text in slot 2 takes backward for the image in slot 0 alone.
  hand_case_ = make_hand_case({1, 2}, 3, {{0, {{0}}}, {0, {{0}}}, {1, {{1}}}});
  set_trainable(hand_case_, 1, false);
  cut_sample(hand_case_, 1, {0, 2}, {0, 6});
  program_ = build("gpipe");
  EXPECT_NO_THROW(validate());
  llm_group(2, 0).takes_backward = {0, 0};
  expect_refused("takes_backward says otherwise");
}

}  // namespace
}  // namespace entrain
