// What a simulated step's time is made of: the chain of operations and transfers that no slack
// separates, and each lane's hours.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

// From the step's start to its end without a gap: each event begins when the one before it ends,
// and could not have begun earlier. Of several such chains the one that stays on its lane as long
// as it can. Events are of category kCompute or kSend; of an operation during which a bucket of its
// gradients leaves, the path has the part up to there.
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
  std::chrono::nanoseconds activation{0};  // for the stage before,
  std::chrono::nanoseconds gradient{0};    // for a gradient
  // For other lanes and replicas behind the last operation, and for reductions beside compute.
  std::chrono::nanoseconds drain{0};
  std::chrono::nanoseconds reduction{0};
  std::chrono::nanoseconds optimizer{0};
  std::chrono::nanoseconds transfer{
      0};  // part of fill and waits in which the message was under way

  [[nodiscard]] std::chrono::nanoseconds busy() const { return forward + backward; }
  [[nodiscard]] std::chrono::nanoseconds waits() const { return features + activation + gradient; }
};

// Shapes    [replica × lanes + lane].
// Requires  as critical_path().
std::vector<LaneAccount> lane_accounts(const Program& program, const Timeline& timeline);

// "llm 0", "vision 1, llm 0"
std::string stages_of_lane(const Program& program, int lane);

}  // namespace entrain
