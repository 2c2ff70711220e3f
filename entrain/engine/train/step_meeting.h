// Where all ranks meet between two steps, threads and processes alike: one all-gather of a fixed
// number of bytes, from which each learns whether to go on, and rank 0 what the step came to.
//
// Read first: StepMeeting::close().
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

// What one rank has to say when it has run a step.
struct StepReport {
  std::int64_t step = 0;
  StepOutcome outcome;
  // When the rank began and ended the step, on its steady clock.
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point end;
  bool updated = false;      // an update of the weights was made behind it; alike on all ranks
  bool stop = false;         // this rank was told to stop
  bool save = false;         // a checkpoint is due by this rank's clock; rank 0's word counts
  bool with_events = false;  // alike on all ranks
};

struct StepVerdict {
  bool stop = false;                 // some rank was told to stop: none begins the next step
  bool save = false;                 // all write a checkpoint now
  std::optional<StepRecord> record;  // on rank 0; loss as a sum over targets, no learning rate
};

// Names a host: ranks with the same one share a clock. Hosts may bear one name, as images of one
// kind do; the kernel's id of its start tells them apart.
std::uint64_t host_id(std::string_view name, std::string_view boot_id);
std::uint64_t this_host();

class StepMeeting {
 public:
  // One for every rank. Requires  comm.size() == places.num_ranks(), and that both outlive it.
  StepMeeting(Comm& comm, const RankPlaces& places, std::uint64_t host = this_host());

  // Before the first step: every rank brings the same one, or null.
  //
  // Throws  SystemFailure as close() does.
  void open(const PreparedStep* first);

  // Behind every step. `next` is the step this rank would run now, null where there is none.
  //
  // Times of ranks on one host are laid over each other by the host's clock, which threads and
  // processes share; those of several hosts by the moment at which the first rank of each began.
  // Losses are added in rank order. Of the ranks that share a lane the one that needed most stands
  // for it: times, bytes.
  //
  // Throws  SystemFailure when ranks would run different steps, with both digests.
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
  std::optional<std::chrono::nanoseconds> previous_end_;  // of the step before, on this host
};

}  // namespace entrain::engine
