#include "entrain/core/schedule/torch_csv.h"

#include <functional>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/schedules.h"

namespace entrain {
namespace {

using oracle::compute_text;
using oracle::HandCase;
using oracle::make_hand_case;
using oracle::make_plain_case;

Program build_for_csv(const HandCase& hand_case, std::string_view schedule) {
  return build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
}

// The message of the InvalidInput that `act` throws.
std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

std::string import_refusal(const std::string& text) {
  return refusal([&] { orders_from_torch_csv(text, make_plain_case({1, 1}, 1).plan); });
}

TEST(ToTorchCsv, NumbersTheEncodersStagesFirst) {
  EXPECT_EQ(to_torch_csv(build_for_csv(make_plain_case({1, 1}, 2), "1f1b")),
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(to_torch_csv(build_for_csv(make_plain_case({2}, 2), "zb-h1")),
            "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
}

TEST(ToTorchCsv, RefusesWhatTorchCannotSay) {
  const auto exported = [](const HandCase& hand_case) {
    return refusal([&] { to_torch_csv(build_for_csv(hand_case, "1f1b")); });
  };
  EXPECT_EQ(exported(make_plain_case({1, 1}, 2)), "accepted");
  HandCase replicas = make_plain_case({1}, 1);
  replicas.plan.replicas = 2;
  replicas.assignment.replicas.push_back(replicas.assignment.replicas[0]);
  EXPECT_NE(exported(replicas).find("2 replicas"), std::string::npos);
  EXPECT_NE(exported(make_plain_case({1, 1, 1}, 2)).find("2 encoders"), std::string::npos);
  EXPECT_NE(
      exported(make_hand_case({1, 1}, 2, {{0, {{0}}}, {1, {{}}}})).find("vision slot 1 has 0"),
      std::string::npos);
  EXPECT_NE(exported(make_hand_case({1, 1}, 2, {{0, {{0}}}, {1, {{0}}}, {1, {{1}}}}))
                .find("vision slot 0 has 2"),
            std::string::npos);
  EXPECT_NE(exported(make_hand_case({1, 1}, 2, {{0, {{}}}, {1, {{0}}}, {1, {{1}}}}))
                .find("other LLM slots"),
            std::string::npos);
  HandCase frozen = make_plain_case({1, 1}, 2);
  set_trainable(frozen, 0, false);
  EXPECT_NE(exported(frozen).find("vision stage 0 takes no backward"), std::string::npos);
}

TEST(OrdersFromTorchCsv, ReadsWhatIsWritten) {
  for (const int slots : {1, 3, 8}) {
    HandCase hand_case = make_plain_case({2, 4}, slots);
    hand_case.plan.lanes = {{{0, 0}}, {{0, 1}}, {{1, 0}, {1, 2}}, {{1, 1}, {1, 3}}};
    for (const std::string& schedule : oracle::schedules_for(hand_case.plan)) {
      const Program program = build_for_csv(hand_case, schedule);
      const Program read =
          build_program_from_orders(hand_case.plan,
                                    hand_case.assignment,
                                    hand_case.costs,
                                    {orders_from_torch_csv(to_torch_csv(program), hand_case.plan)},
                                    "torch");
      EXPECT_EQ(read.schedule, "torch");
      EXPECT_EQ(read.replicas[0].lanes, program.replicas[0].lanes) << schedule;
    }
  }
}

TEST(OrdersFromTorchCsv, ReadsPaddingAndLineEnds) {
  const HandCase hand_case = make_plain_case({1, 1}, 1);
  const auto orders = orders_from_torch_csv(
      "0F0,,, 0B0 ,0REDUCE_GRAD\r\n,1F0,1I0,1W0,1REDUCE_GRAD\r\n\r\n", hand_case.plan);
  const Program program = build_program_from_orders(
      hand_case.plan, hand_case.assignment, hand_case.costs, {orders}, "torch");
  EXPECT_EQ(compute_text(program, 0, 0), "F0 B0");
  EXPECT_EQ(compute_text(program, 0, 1), "F0 I0 W0");
}

TEST(OrdersFromTorchCsv, NamesTheCellThatIsWrong) {
  EXPECT_EQ(import_refusal("0F0,0B0\n1F0,1B0\n"), "accepted");
  EXPECT_NE(import_refusal("0F0,0X0\n1F0,1B0\n").find("row 1 column 2: '0X0'"), std::string::npos);
  for (const char* cell : {"F0",
                           "0F",
                           "0F0x",
                           "0SEND_F0",
                           "(0F1;0B0)OVERLAP_F_B",
                           "0UNSHARD",
                           "-1F0",
                           "0F99999999999"}) {
    EXPECT_NE(import_refusal(std::string(cell) + "\n1F0\n").find("row 1 column 1"),
              std::string::npos)
        << cell;
  }
  EXPECT_NE(import_refusal("0F0\n2F0\n").find("names stage 2; the plan has 2"), std::string::npos);
  EXPECT_NE(import_refusal("1F0\n0F0\n").find("names a stage of lane 1, that is row 2"),
            std::string::npos);
  EXPECT_NE(import_refusal("0F0\n").find("1 rows; the plan has 2 lanes"), std::string::npos);
  EXPECT_NE(refusal([] {
              orders_from_torch_csv("", make_plain_case({1, 1, 1}, 1).plan);
            }).find("2 encoders"),
            std::string::npos);
}

std::string build_refusal(const std::string& csv) {
  return refusal([&] {
    const HandCase hand_case = make_plain_case({1, 1}, 2);
    build_program_from_orders(hand_case.plan,
                              hand_case.assignment,
                              hand_case.costs,
                              {orders_from_torch_csv(csv, hand_case.plan)},
                              "torch");
  });
}

TEST(BuildProgramFromOrders, RefusesOrdersThatAreNoProgram) {
  EXPECT_EQ(build_refusal("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"), "accepted");
  EXPECT_NE(build_refusal("0F0,0F2,0B0,0B1\n1F0,1B0,1F1,1B1\n").find("no forward of module 0"),
            std::string::npos);
  EXPECT_NE(build_refusal("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n").find("no forward of llm"),
            std::string::npos);
  EXPECT_NE(build_refusal("0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1B1\n").find("no weight half"),
            std::string::npos);
  EXPECT_NE(build_refusal("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n").find("waits for itself"),
            std::string::npos);
}

TEST(BuildProgramFromOrders, KeepsTheMemoryLimit) {
  HandCase hand_case = make_plain_case({2}, 4);
  hand_case.plan.limits.lane_bytes = {200, 100};
  const auto built = [&](const char* schedule) {
    return refusal([&] {
      build_program_from_orders(
          hand_case.plan,
          hand_case.assignment,
          hand_case.costs,
          {orders_from_torch_csv(to_torch_csv(build_for_csv(hand_case, schedule)), hand_case.plan)},
          schedule);
    });
  };
  EXPECT_EQ(built("1f1b"), "accepted");
  EXPECT_NE(built("zb-h1").find("its limit is"), std::string::npos);
}

TEST(BuildProgramFromOrders, WantsEveryReplicaAndLane) {
  const HandCase hand_case = make_plain_case({2}, 1);
  EXPECT_THROW(
      build_program_from_orders(hand_case.plan, hand_case.assignment, hand_case.costs, {}, "none"),
      InvalidInput);
  EXPECT_THROW(build_program_from_orders(
                   hand_case.plan, hand_case.assignment, hand_case.costs, {{{}}}, "one lane"),
               InvalidInput);
}

}  // namespace
}  // namespace entrain
