// check_acyclic() and check_memory() alone: what the earlier checks would refuse first.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/schedule/validate.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::HandCase;
using oracle::make_hand_case;
using oracle::make_plain_case;
using validation::PassagesOfChannels;
using validation::Place;
using validation::PlacesOfUnits;
using validation::Subject;

Program build_subject(const HandCase& hand_case, const char* schedule) {
  return build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
}

// Lane 0: encoder; lane 1: LLM, frozen encoder, so activations alone travel.
HandCase forward_case(int num_slots) {
  HandCase hand_case = make_plain_case({1, 1}, num_slots);
  set_trainable(hand_case, 0, false);
  return hand_case;
}

TEST(CheckAcyclic, LetsASendWaitForItsReceive) {
  const HandCase hand_case = forward_case(1);
  const Program program = build_subject(hand_case, "1f1b");
  const Subject subject{program, hand_case.plan, hand_case.assignment, hand_case.costs};
  const PlacesOfUnits places = validation::check_operations(subject, 0);
  PassagesOfChannels passages = validation::check_messages(subject, 0, places);
  EXPECT_NO_THROW(validation::check_acyclic(subject, 0, places, passages));
  // Posted only behind its consumer, at the lane's end.
  passages[0][0].receive.position = static_cast<int>(program.replicas[0].lanes[1].size()) - 1;
  EXPECT_THROW(validation::check_acyclic(subject, 0, places, passages), InvalidInput);
}

TEST(CheckAcyclic, LetsAMessageWaitForTheOneBeforeIt) {
  const HandCase hand_case = forward_case(2);
  const Program program = build_subject(hand_case, "gpipe");
  const Subject subject{program, hand_case.plan, hand_case.assignment, hand_case.costs};
  const PlacesOfUnits places = validation::check_operations(subject, 0);
  PassagesOfChannels passages = validation::check_messages(subject, 0, places);
  ASSERT_EQ(passages[0].size(), 2U);
  // Slot 1's message goes first on the channel, but its receive stands behind slot 0's forward.
  std::swap(passages[0][0], passages[0][1]);
  passages[0][0].receive = places.at({1, 0, 0, 0}).forward;
  EXPECT_THROW(validation::check_acyclic(subject, 0, places, passages), InvalidInput);
}

TEST(CheckMemory, AllowsThePeakAndNotAByteLess) {
  HandCase hand_case = make_plain_case({1, 2}, 4);
  const Program program = build_subject(hand_case, "1f1b");
  std::int64_t peak = 0;
  for (int lane = 0; lane < 3; ++lane) {
    const auto bytes = memory_over_time(program, hand_case.costs, 0, lane);
    peak = std::max(peak, *std::max_element(bytes.begin(), bytes.end()));
  }
  ASSERT_GT(peak, 0);
  hand_case.plan.limits.bytes_per_lane = peak;
  EXPECT_NO_THROW(validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs));
  hand_case.plan.limits.bytes_per_lane = peak - 1;
  EXPECT_THROW(validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs),
               InvalidInput);
}

}  // namespace
}  // namespace entrain
