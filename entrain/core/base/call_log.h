// The last calls of a rank: the ring that every rank keeps, and the dump written when a run
// fails.
//
// Read first: CallLog, then RankDump. core/report/doctor.h reads the dumps of all ranks together.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/base/thread_safety.h"

namespace entrain {

// One operation of a rank, or a call of the communicator, most often within an operation.
struct LoggedCall {
  std::int64_t step = -1;
  std::string what;            // "forward llm 0 slot 2 group 0"; "receive", "barrier"
  bool communication = false;  // the following fields describe such a call
  int peer = -1;               // of a message: the other rank
  int channel = -1;            // of a message
  std::uint64_t tag = 0;       // of a message
  std::vector<int> group;      // of a collective: its ranks, rising
  std::int64_t number = -1;    // of a message on its channel, of a collective in its group; from 0
  double start_s = 0;          // seconds since the log's origin
  double finish_s = -1;        // -1: not finished
  [[nodiscard]] bool finished() const { return finish_s >= 0; }
};

// The state of a rank when its dump was taken.
enum class RankState : std::uint8_t {
  kRunning,
  kFailed,    // failed itself
  kLost,      // failed while waiting for others: a deadline, a broken connection
  kMismatch,  // got a message or a collective other than the planned one
  kStopped,   // stopped because another rank failed
  kFinished,
};
std::string_view name_of(RankState state);

struct RankDump {
  int rank = 0;
  int num_ranks = 1;
  std::string place;  // "replica 0 lane 1"
  std::string host;   // and process, for finding its log
  std::int64_t process = 0;
  RankState state = RankState::kRunning;
  std::string failure;            // message; empty if there was none
  double failed_s = -1;           // since origin; -1: it did not fail
  double taken_s = 0;             // likewise
  double origin_unix_s = 0;       // by the host's clock; hosts may differ
  std::vector<LoggedCall> calls;  // in the order of their start
};

Json to_json(const RankDump& dump);
// Throws  InvalidInput naming `where` and the key.
RankDump rank_dump_from_json(const Json& document, const std::string& where);

// dumps/rank-N.json in a run's folder.
std::filesystem::path dump_path(const std::filesystem::path& run_folder, int rank);

// A ring of calls. All functions may be called from any thread, except begin() and finish(): only
// from the rank's own. Cost: well under a microsecond each, besides making `what`.
class CallLog {
 public:
  using Clock = std::chrono::steady_clock;

  // Requires  capacity >= 1.
  CallLog(int rank, int num_ranks, std::string place, std::size_t capacity = 256);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // Returns the argument of finish(). The step is that of the last call that named one.
  std::uint64_t begin(LoggedCall call);
  void finish(std::uint64_t serial);

  // Records the first failure; later ones are its consequences.
  void set_state(RankState state, const std::string& failure = {});
  // Whether a call of the communicator is in progress.
  [[nodiscard]] bool in_communication() const;
  // Writes no dump, like a killed rank.
  void vanish();
  [[nodiscard]] bool vanished() const;

  [[nodiscard]] RankDump dump() const;
  // The last finished operations, at most `count`, oldest first, without calls of the
  // communicator: "forward llm 0 slot 2 group 0; send llm 0 slot 2 group 0 channel 0".
  [[nodiscard]] std::string last_operations(std::size_t count) const;

 private:
  [[nodiscard]] double now_s() const;

  const std::size_t capacity_;
  const Clock::time_point origin_;
  mutable Mutex mutex_;
  RankDump dump_ ENTRAIN_GUARDED_BY(mutex_);  // without calls
  std::int64_t step_ ENTRAIN_GUARDED_BY(mutex_) = -1;
  std::uint64_t first_ ENTRAIN_GUARDED_BY(mutex_) = 0;  // serial of calls_.front()
  std::deque<LoggedCall> calls_ ENTRAIN_GUARDED_BY(mutex_);
  bool vanished_ ENTRAIN_GUARDED_BY(mutex_) = false;
};

// Begins a call and finishes it at the end of the scope. If an exception ends the scope, the call
// stays unfinished: that is where the rank failed.
class LoggedScope {
 public:
  // `log` may be null: nothing is recorded.
  LoggedScope(CallLog* log, LoggedCall call)
      : log_(log),
        exceptions_(std::uncaught_exceptions()),
        serial_(log == nullptr ? 0 : log->begin(std::move(call))) {}
  ~LoggedScope() {
    if (log_ != nullptr && std::uncaught_exceptions() == exceptions_) {
      log_->finish(serial_);
    }
  }
  LoggedScope(const LoggedScope&) = delete;
  LoggedScope& operator=(const LoggedScope&) = delete;

 private:
  CallLog* log_;
  int exceptions_;
  std::uint64_t serial_;
};

}  // namespace entrain
