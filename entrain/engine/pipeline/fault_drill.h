// Fault drills: one rank fails on purpose in the middle of a step, to show how the other ranks
// detect it and what is reported.
//
// Read first: RankDrill. It wraps a rank's communicator and its compute; neither these nor the
// lane's run know of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "entrain/core/spec/program.h"

#include "entrain/engine/comm/recorded_comm.h"
#include "entrain/engine/pipeline/fault_kinds.h"
#include "entrain/engine/pipeline/lane_compute.h"
#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {

struct FaultDrill {
  std::int64_t step = -1;
  FaultKind kind = FaultKind::kThrow;
  std::chrono::milliseconds hang{0};
};

// Position in a lane's list: the middle (for step-wide operations, the last unit before it). For
// a drill on a message or an output, the next one after the middle, or else the last; -1
// if there is none.
int drill_position(const FaultDrill& drill, const std::vector<Operation>& operations);

// One rank's drill.
class RankDrill {
 public:
  RankDrill(const FaultDrill& drill, const RankPlace& place) : drill_(drill), place_(place) {}

  // For ExecutorOptions::decorate; tells the drill which step runs. The drill must outlive the
  // result.
  std::unique_ptr<LaneCompute> around(std::unique_ptr<LaneCompute> compute);

  void begin_step(const StepInputs& inputs, RunMode mode);
  // Whether the rank fails at this operation; called once for each message.
  // Throws  std::runtime_error (kThrow), RankVanished (kDie).
  bool strikes(OperationKind kind, const UnitKey& unit) const;
  bool strikes(OperationKind kind, const ChannelKey& channel);
  [[nodiscard]] FaultKind kind() const { return drill_.kind; }

 private:
  bool misbehave() const;

  FaultDrill drill_;
  RankPlace place_;
  std::optional<Operation> target_;       // of the step that runs
  int message_ = 0;                       // earlier messages of the target's kind and channel
  std::map<ChannelKey, int> num_passed_;  // likewise, in this step
};

// The communicator of a rank with a drill.
class DrilledComm : public RecordedComm {
 public:
  // Requires  all outlive this object and its pending receives.
  DrilledComm(Comm& inner, CallLog& log, RankDrill& drill)
      : RecordedComm(inner, log), drill_(drill) {}

  void send(const ChannelKey& channel, std::uint64_t tag, at::Tensor tensor) override;
  std::unique_ptr<PendingReceive> post_receive(const ChannelKey& channel,
                                               std::uint64_t tag,
                                               std::vector<std::int64_t> shape,
                                               at::TensorOptions options) override;

 private:
  RankDrill& drill_;
};

}  // namespace entrain::engine
