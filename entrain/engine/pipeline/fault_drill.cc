#include "entrain/engine/pipeline/fault_drill.h"

#include <stdexcept>
#include <thread>

#include "entrain/core/base/errors.h"

namespace entrain::engine {

int drill_position(const FaultDrill& drill, const std::vector<Operation>& operations) {
  const int middle = static_cast<int>(operations.size()) / 2;
  if (drill.kind != FaultKind::kWrongSize && drill.kind != FaultKind::kNan) {
    return middle;
  }
  const OperationKind kind =
      drill.kind == FaultKind::kNan ? OperationKind::kForward : OperationKind::kSend;
  int position = -1;
  for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
    if (operations[static_cast<std::size_t>(i)].kind == kind && position < middle) {
      position = i;
    }
  }
  return position;
}

void misbehave_before(const FaultDrill& drill, const Operation& operation) {
  switch (drill.kind) {
    case FaultKind::kThrow:
      throw std::runtime_error("fault drill: this rank was told to fail here");
    case FaultKind::kHang:
      std::this_thread::sleep_for(drill.hang);
      return;
    case FaultKind::kDie:
      throw RankVanished();
    default:
      ENTRAIN_INVARIANT(
          operation.kind == OperationKind::kSend || operation.kind == OperationKind::kForward,
          "a drill at an operation that it does not concern");
  }
}

}  // namespace entrain::engine
