#include "entrain/engine/pipeline/fault_drill.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

using enum OperationKind;

std::vector<Operation> list_of(const std::vector<OperationKind>& kinds) {
  std::vector<Operation> operations(kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    operations[i].kind = kinds[i];
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

TEST(MisbehaveBefore, ThrowsOrVanishes) {
  Operation operation;
  EXPECT_THROW(misbehave_before(drill_of(FaultKind::kThrow), operation), std::runtime_error);
  EXPECT_THROW(misbehave_before(drill_of(FaultKind::kDie), operation), RankVanished);
  operation.kind = kSend;
  EXPECT_NO_THROW(misbehave_before(drill_of(FaultKind::kWrongSize), operation));
}

}  // namespace
}  // namespace entrain::engine
