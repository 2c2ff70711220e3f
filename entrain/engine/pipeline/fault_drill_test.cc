#include "entrain/engine/pipeline/fault_drill.h"

#include <gtest/gtest.h>

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/pipeline/ranks.h"

#include "tests/oracle/two_lanes.h"

namespace entrain::engine {
namespace {

using enum OperationKind;

std::vector<Operation> list_of(const std::vector<OperationKind>& kinds) {
  std::vector<Operation> operations(kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    operations[i].kind = kinds[i];
    operations[i].unit.module = kinds[i] == kClipNorm ? -1 : 0;
  }
  return operations;
}

FaultDrill drill_of(FaultKind kind) {
  FaultDrill drill;
  drill.kind = kind;
  return drill;
}

TEST(DrillPosition, IsTheMiddleOrTheNextOperationConcerned) {
  const std::vector<Operation> operations =
      list_of({kForward, kSend, kForward, kReceive, kBackward, kSend, kSend, kForward});
  for (const FaultKind kind : {FaultKind::kThrow, FaultKind::kHang, FaultKind::kDie}) {
    EXPECT_EQ(drill_position(drill_of(kind), operations), 4);
  }
  EXPECT_EQ(drill_position(drill_of(FaultKind::kWrongSize), operations), 5);
  EXPECT_EQ(drill_position(drill_of(FaultKind::kNan), operations), 7);
}

TEST(DrillPosition, IsTheLastOneConcernedWhereNoneComesLater) {
  const std::vector<Operation> operations =
      list_of({kForward, kSend, kForward, kReceive, kReceive, kBackward, kBackward, kBackward});
  EXPECT_EQ(drill_position(drill_of(FaultKind::kWrongSize), operations), 1);
  EXPECT_EQ(drill_position(drill_of(FaultKind::kNan), operations), 2);
}

TEST(DrillPosition, IsNoneForARankWithoutMessages) {
  EXPECT_EQ(drill_position(drill_of(FaultKind::kWrongSize), list_of({kForward, kBackward})), -1);
}

TEST(DrillPosition, IsOfAUnit) {
  EXPECT_EQ(drill_position(drill_of(FaultKind::kThrow), list_of({kForward, kClipNorm})), 0);
  EXPECT_EQ(drill_position(drill_of(FaultKind::kThrow), list_of({kClipNorm})), -1);
}

// A vision lane that sends to an LLM lane, as rank 0 of both.
class RankDrillTest : public testing::Test {
 protected:
  void begin(RankDrill& drill, RunMode mode = RunMode::kTrain) {
    inputs_.program = &lanes_.program;
    inputs_.step = 7;
    drill.begin_step(inputs_, mode);
  }
  static void send(Comm& comm, std::uint64_t tag) {
    comm.send({0, 1, 0}, tag, at::full({2, 3}, static_cast<double>(tag)));
  }
  at::Tensor receive(std::uint64_t tag, std::int64_t rows) {
    return group_.comm(1).post_receive({0, 1, 0}, tag, {rows, 3}, at::kFloat)->wait();
  }

  oracle::TwoLanes lanes_ = [] {
    oracle::TwoLanes lanes(2);
    lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 B1 reduce clip step",
                      "<F0 F0 B0 >B0 <F1 F1 B1 >B1 reduce clip step");
    return lanes;
  }();
  StepInputs inputs_;
  ThreadCommGroup group_{2, std::chrono::seconds(5)};
  CallLog log_{0, 2, ""};
};

// The middle of the first lane is `B0`, its last message `>F1`.
TEST_F(RankDrillTest, AddsARowToOneMessageOfItsStep) {
  RankDrill drill({.step = 7, .kind = FaultKind::kWrongSize}, {});
  DrilledComm comm(group_.comm(0), log_, drill);
  begin(drill);
  send(comm, 0);
  send(comm, 1);
  EXPECT_EQ(receive(0, 2).size(0), 2);
  EXPECT_EQ(receive(1, 3).size(0), 3);
  begin(drill, RunMode::kEvaluate);
  send(comm, 2);
  send(comm, 3);
  EXPECT_EQ(receive(2, 2).size(0), 2);
  EXPECT_EQ(receive(3, 2).size(0), 2);
}

TEST_F(RankDrillTest, ThrowsOrVanishesAtItsOperationAlone) {
  const UnitKey unit{0, 0, 0, 0};
  RankDrill fails({.step = 7}, {});
  begin(fails);
  EXPECT_FALSE(fails.strikes(kForward, unit));
  EXPECT_FALSE(fails.strikes(kBackward, UnitKey{0, 0, 1, 0}));
  EXPECT_THROW(fails.strikes(kBackward, unit), std::runtime_error);
  RankDrill dies({.step = 7, .kind = FaultKind::kDie}, {});
  begin(dies);
  EXPECT_THROW(dies.strikes(kBackward, unit), RankVanished);
  inputs_.step = 6;
  dies.begin_step(inputs_, RunMode::kTrain);
  EXPECT_NO_THROW(dies.strikes(kBackward, unit));
}

}  // namespace
}  // namespace entrain::engine
