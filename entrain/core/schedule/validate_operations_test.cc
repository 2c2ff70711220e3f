// check_operations() on lanes that validate_test.cc does not break, and what it finds.
#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/schedule/validate.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::HandCase;
using oracle::make_plain_case;

class CheckOperations : public testing::Test {
 protected:
  CheckOperations() : program_(build_program(case_.plan, case_.assignment, case_.costs, "1f1b")) {}

  std::vector<Operation>& lane(std::size_t index) { return program_.replicas[0].lanes[index]; }

  validation::PlacesOfUnits check() const {
    return validation::check_operations({program_, case_.plan, case_.assignment, case_.costs}, 0);
  }

  void expect_refused(const std::string& part_of_message) const {
    const std::string message = oracle::error_of<InvalidInput>([&] { check(); });
    EXPECT_NE(message.find(part_of_message), std::string::npos) << message;
  }

  HandCase case_ = make_plain_case({1, 2}, 2);  // lanes: vision, llm 0, llm 1
  Program program_;
};

TEST_F(CheckOperations, FindsEveryUnitsPlaces) {
  const validation::PlacesOfUnits places = check();
  EXPECT_EQ(places.size(), 3U * 2);
  for (const auto& [unit, found] : places) {
    const auto index = static_cast<std::size_t>(unit.module + unit.stage);
    ASSERT_EQ(found.forward.lane, static_cast<int>(index));
    const Operation forward = lane(index)[static_cast<std::size_t>(found.forward.position)];
    EXPECT_EQ(forward, (Operation{OperationKind::kForward, unit, -1}));
    const Operation backward = lane(index)[static_cast<std::size_t>(found.gradient().position)];
    EXPECT_EQ(backward, (Operation{OperationKind::kBackward, unit, -1}));
    EXPECT_FALSE(found.backward_input.exists());
  }
}

TEST_F(CheckOperations, NamesAnOperationInWords) {
  const validation::Subject subject{program_, case_.plan, case_.assignment, case_.costs};
  EXPECT_EQ(validation::where(subject, 0, {0, 0}),
            "replica 0 lane 0 operation 0 (forward vision 0 slot 0 group 0)");
}

TEST_F(CheckOperations, RefusesALaneWithoutOperations) {
  lane(1).clear();
  expect_refused("replica 0 lane 1: the step-wide operations are missing");
}

TEST_F(CheckOperations, RefusesALaneShorterThanItsEnd) {
  lane(1) = {{OperationKind::kOptimizerStep, {}, -1}};
  expect_refused("lane 1 operation 0 (optimizer_step): the lane must end with");
}

TEST_F(CheckOperations, RefusesChannelsOfComputeOperations) {
  lane(0)[0].channel = 0;
  expect_refused("operation 0 (forward vision 0 slot 0 group 0 channel 0): a compute operation");
}

TEST_F(CheckOperations, RefusesStagesThatDoNotExist) {
  for (const int stage : {-1, 2}) {
    Operation operation = lane(2)[0];
    operation.unit = {1, stage, 0, 0};
    lane(2).insert(lane(2).begin(), operation);
    expect_refused("unknown unit (module 1, stage " + std::to_string(stage) + ", slot 0, group 0)");
    lane(2).erase(lane(2).begin());
  }
}

}  // namespace
}  // namespace entrain
