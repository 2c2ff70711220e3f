// Drills: one rank misbehaves on purpose in the middle of a step, so that one can see how the
// others find out and what is said about it.
//
// Read first: RankDrill. It stands around a rank's communicator and around what computes; neither
// they nor the lane's run know of it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "entrain/core/spec/program.h"

#include "entrain/engine/comm/recorded_comm.h"
#include "entrain/engine/pipeline/lane_compute.h"
#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {

enum class FaultKind : std::uint8_t {
  kThrow,      // fails as a bug would make it
  kHang,       // does nothing for FaultDrill::hang, then goes on
  kDie,        // is gone without a word: no abort, no dump
  kWrongSize,  // its next message (at the latest the step's last) has a row too many
  kNan,        // one of its outputs becomes NaN
};

inline constexpr std::array<std::string_view, 5> kFaultNames = {
    "throw", "hang", "die", "wrong-size", "nan"};

struct FaultDrill {
  std::int64_t step = -1;
  FaultKind kind = FaultKind::kThrow;
  std::chrono::milliseconds hang{0};
};

// Where in a lane's list: the middle (of step-wide operations the last one of a unit before it);
// for what a drill does to a message or an output, the next one there is, or else the last; -1
// where there is none.
int drill_position(const FaultDrill& drill, const std::vector<Operation>& operations);

// One rank's drill.
class RankDrill {
 public:
  RankDrill(const FaultDrill& drill, const RankPlace& place) : drill_(drill), place_(place) {}

  // For ExecutorOptions::decorate; learns from it which step runs. The drill must outlive the
  // result.
  std::unique_ptr<LaneCompute> around(std::unique_ptr<LaneCompute> compute);

  void begin_step(const StepInputs& inputs, RunMode mode);
  // Whether this is the operation at which the rank misbehaves; messages are asked about once each.
  // Throws  std::runtime_error (kThrow), RankVanished (kDie).
  bool strikes(OperationKind kind, const UnitKey& unit) const;
  bool strikes(OperationKind kind, const ChannelKey& channel);
  [[nodiscard]] FaultKind kind() const { return drill_.kind; }

 private:
  bool misbehave() const;

  FaultDrill drill_;
  RankPlace place_;
  std::optional<Operation> target_;       // of the step that runs
  int message_ = 0;                       // of the target's kind and channel, those before it
  std::map<ChannelKey, int> num_passed_;  // likewise, of this step
};

// The communicator of a rank that has a drill.
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
