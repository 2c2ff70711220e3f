// The parts of a simulated step's time: its critical path, a chain of operations and transfers
// without slack, and each lane's times.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

// From the step's start to its end without a gap: each event begins when the one before it ends,
// and could not have begun earlier. Of several such chains the one that stays on its lane as long
// as possible. Events are of category kCompute or kSend; if a bucket of an operation's gradients is
// sent while it runs, the path has the part up to there.
//
// Requires  a timeline with events that simulate() made of this program.
// Ensures   the durations sum to the makespan.
// Cost      O(events log events).
std::vector<TimelineEvent> critical_path(const Program& program, const Timeline& timeline);

// How one lane of one replica spends the step. All times sum to the makespan.
struct LaneAccount {
  int replica = 0;
  int lane = 0;
  std::chrono::nanoseconds forward{0};
  std::chrono::nanoseconds backward{0};    // its halves included
  std::chrono::nanoseconds fill{0};        // before the first operation
  std::chrono::nanoseconds features{0};    // waits between operations: for encoders' outputs,
  std::chrono::nanoseconds activation{0};  // for the previous stage,
  std::chrono::nanoseconds gradient{0};    // for a gradient
  // For other lanes and replicas after the last operation, and for overlapped reductions.
  std::chrono::nanoseconds drain{0};
  std::chrono::nanoseconds reduction{0};
  std::chrono::nanoseconds optimizer{0};
  std::chrono::nanoseconds transfer{
      0};  // part of fill and waits in which the message was in flight

  [[nodiscard]] std::chrono::nanoseconds busy() const { return forward + backward; }
  [[nodiscard]] std::chrono::nanoseconds waits() const { return features + activation + gradient; }
};

// Shapes    [replica × lanes + lane].
// Requires  as critical_path().
std::vector<LaneAccount> lane_accounts(const Program& program, const Timeline& timeline);

// Of several that finish last, the first. Requires  at least one, each with a lane.
int slowest_replica(const Timeline& timeline);

// "llm"; "module 1" of a program without names.
std::string module_name(const Program& program, int module);
// "llm 0", "vision 1, llm 0"
std::string stages_of_lane(const Program& program, int lane);

}  // namespace entrain
