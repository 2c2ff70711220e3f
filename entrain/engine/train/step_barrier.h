// The barrier of all ranks between two steps, for threads and processes: one all-gather of a fixed
// number of bytes, from which each rank learns whether to continue, and rank 0 the step's results.
//
// Read first: StepBarrier::close().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/train/metrics.h"

namespace entrain::engine {

// One rank's report on a finished step.
struct StepReport {
  std::int64_t step = 0;
  StepOutcome outcome;
  // Start and end of the step, on the rank's steady clock.
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point end;
  DataTimes data;            // of the step's samples
  int decode_threads = 0;    // of the rank
  bool updated = false;      // the weights were updated after it; the same on all ranks
  bool stop = false;         // this rank was told to stop
  bool save = false;         // a checkpoint is due by this rank's clock; only rank 0's value counts
  bool with_events = false;  // the same on all ranks
};

struct StepVerdict {
  bool stop = false;                 // some rank was told to stop: no rank begins the next step
  bool save = false;                 // all write a checkpoint now
  std::optional<StepRecord> record;  // on rank 0; loss as a sum over targets, no learning rate
};

// Identifies a host: ranks with the same id share a clock. Hosts may have the same name, as images
// of one kind do; the kernel's boot id distinguishes them.
std::uint64_t host_id(std::string_view name, std::string_view boot_id);
std::uint64_t this_host();

class StepBarrier {
 public:
  // One per rank. Requires  comm.size() == places.num_ranks(), and both outlive it.
  StepBarrier(Comm& comm, const RankPlaces& places, std::uint64_t host = this_host());

  // Before the first step: all ranks pass the same step, or null.
  //
  // Throws  SystemFailure as for close().
  void open(const PreparedStep* first);

  // After every step. `next` is the step this rank would run now; null if there is none.
  //
  // Times of ranks on one host are aligned by the host's clock, which threads and
  // processes share; times of several hosts by the moment at which the first rank of each began.
  // Losses are added in rank order. Of the ranks that share a lane, the largest time and the
  // largest bytes count.
  //
  // Throws  SystemFailure if ranks would run different steps, with both digests.
  StepVerdict close(const StepReport& end, const PreparedStep* next);

 private:
  struct Report;
  std::vector<Report> exchange(const Report& own);
  void compare(const std::vector<Report>& reports, const PreparedStep* next) const;
  void gather_events(const StepReport& end,
                     const std::vector<Report>& reports,
                     const std::vector<std::chrono::nanoseconds>& offsets,
                     StepRecord& record);

  Comm& comm_;
  const RankPlaces& places_;
  std::uint64_t host_;
  std::vector<int> all_;                                  // ranks
  std::optional<std::chrono::nanoseconds> previous_end_;  // of the previous step, on this host
};

}  // namespace entrain::engine
