// check_groups() where build_groups() or the outline would refuse first; validate_test.cc has the
// rest.
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

class CheckGroups : public testing::Test {
 protected:
  CheckGroups() { program_ = build(); }

  Program build() const { return build_program(case_.plan, case_.assignment, case_.costs, "1f1b"); }
  ReplicaAssignment& assigned() { return case_.assignment.replicas[0]; }
  std::vector<std::vector<std::vector<Group>>>& groups() { return program_.replicas[0].groups; }

  void expect_refused(const std::string& part_of_message) const {
    const validation::Subject subject{program_, case_.plan, case_.assignment, case_.costs};
    const std::string message =
        oracle::error_of<InvalidInput>([&] { validation::check_groups(subject, 0); });
    EXPECT_NE(message.find(part_of_message), std::string::npos) << message;
  }

  HandCase case_ = make_plain_case({1, 2}, 3);  // vision, llm; sample i in slot i
  Program program_;
};

TEST_F(CheckGroups, RefusesAWholeSampleInPlaceOfAChunk) {
  assigned().modules[1][2][0].token_end = 3;
  expect_refused("llm slot 2: the groups do not hold the 1 assigned items");
}

TEST_F(CheckGroups, RefusesItemsOfUnknownSegments) {
  for (const int segment : {-1, 1}) {
    groups()[0][1][0].items[0].segment = segment;
    expect_refused("vision slot 1 group 0: unknown segment " + std::to_string(segment));
  }
}

TEST_F(CheckGroups, RefusesMoreGroupsThanSlotsInWhichSamplesEnd) {
  groups()[1][0].push_back(groups()[1][0][0]);
  expect_refused("llm slot 0: 2 groups, but its samples end in 1 slots");
}

TEST_F(CheckGroups, RefusesEncoderWorkOfASampleWithoutAnLlmSlot) {
  assigned().modules[1][1].clear();
  expect_refused("sample 1 has encoder work but no LLM slot");
}

TEST_F(CheckGroups, RefusesItemsOfUnknownSamples) {
  for (const int sample : {-1, 3}) {
    groups()[0][1][0].items[0].sample = sample;
    expect_refused("vision slot 1 group 0: unknown sample " + std::to_string(sample));
  }
}

TEST_F(CheckGroups, WantsOneBackwardEntryAStage) {
  groups()[1][0][0].takes_backward.push_back(1);
  expect_refused("llm slot 0 group 0: takes_backward has not one entry a stage");
}

TEST_F(CheckGroups, RefusesABackwardThatAutogradWouldNotRun) {
  set_trainable(case_, 0, false);
  set_trainable(case_, 1, false);
  case_.costs.modules[1].stages[1].trainable = true;
  program_ = build();
  groups()[1][2][0].takes_backward[0] = 1;
  expect_refused("llm slot 2 group 0: stage 0 has no backward, but takes_backward says otherwise");
}

TEST_F(CheckGroups, RefusesOtherModulesOrSlotsThanAssigned) {
  groups()[0].pop_back();
  expect_refused("replica 0 vision: 2 slots, the assignment has 3");
  groups().pop_back();
  expect_refused("replica 0: groups of 1 modules, the assignment has 2");
}

}  // namespace
}  // namespace entrain
