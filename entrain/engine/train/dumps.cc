#include "entrain/engine/train/dumps.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/doctor.h"

#include "entrain/engine/comm/recorded_comm.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/pipeline/ranks.h"

namespace entrain::engine {
namespace {

constexpr std::array kDeadly = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kPatienceMs = 2000;  // of a dying process with its dumps

// Pipes between signal handlers and the watching thread; -1 without one.
std::atomic<int> signal_pipe{-1};
std::atomic<int> answer_pipe{-1};
std::array<struct sigaction, kDeadly.size() + 1> before{};  // previous handlers, SIGUSR1's last

// A handler's message to the watching thread.
struct Notice {
  int signal = 0;
  int rank = -1;  // rank whose thread got it; -1: none
};
constexpr auto kNoticeBytes = static_cast<ssize_t>(sizeof(Notice));
thread_local int rank_of_thread = -1;

// Calls only async-signal-safe functions.
bool hand_over(int signal) {
  const Notice notice{signal, rank_of_thread};
  const int descriptor = signal_pipe;
  return descriptor >= 0 && ::write(descriptor, &notice, sizeof(notice)) == kNoticeBytes;
}

void on_deadly_signal(int signal) {
  if (hand_over(signal)) {
    pollfd answer{answer_pipe, POLLIN, 0};
    ::poll(&answer, 1, kPatienceMs);
  }
  for (std::size_t i = 0; i < kDeadly.size(); ++i) {
    if (kDeadly[i] == signal) {
      ::sigaction(signal, &before[i], nullptr);
    }
  }
  ::raise(signal);
}

void on_request(int /*signal*/) {
  request_dumps();
}

}  // namespace

void request_dumps() noexcept {
  const int error = errno;
  hand_over(SIGUSR1);
  errno = error;
}

void keep_dumps(const std::filesystem::path& run_folder) {
  namespace fs = std::filesystem;
  constexpr std::size_t kKept = 5;
  const fs::path folder = dump_path(run_folder, 0).parent_path();
  std::vector<fs::path> dumps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".json") {
      dumps.push_back(entry->path());
    }
  }
  if (dumps.empty()) {
    return;
  }
  std::vector<std::int64_t> failures = failures_in(run_folder);
  failures.push_back(failures.empty() ? 1 : failures.back() + 1);
  const fs::path kept = failure_path(run_folder, failures.back());
  error.clear();
  fs::create_directories(kept, error);
  for (const fs::path& dump : dumps) {
    if (!error) {
      fs::rename(dump, kept / dump.filename(), error);
    }
  }
  for (std::size_t i = 0; i + kKept < failures.size() && !error; ++i) {
    fs::remove_all(failure_path(run_folder, failures[i]), error);
  }
  if (error) {
    throw SystemFailure(concat("cannot move dumps to '", kept.string(), "': ", error.message()));
  }
}

// The thread of watch_signals().
struct RunDumps::Watcher {
  explicit Watcher(RunDumps& run_dumps) : dumps(run_dumps) {
    if (::pipe(signals.data()) != 0 || ::pipe(answers.data()) != 0) {
      throw SystemFailure("cannot make a pipe to watch signals");
    }
    signal_pipe = signals[1];
    answer_pipe = answers[0];
    thread = std::thread([this] { watch(); });
    struct sigaction action {};
    action.sa_handler = on_deadly_signal;
    action.sa_flags = SA_NODEFER;
    for (std::size_t i = 0; i < kDeadly.size(); ++i) {
      ::sigaction(kDeadly[i], &action, &before[i]);
    }
    action.sa_handler = on_request;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGUSR1, &action, &before.back());
  }

  ~Watcher() {
    for (std::size_t i = 0; i < kDeadly.size(); ++i) {
      ::sigaction(kDeadly[i], &before[i], nullptr);
    }
    ::sigaction(SIGUSR1, &before.back(), nullptr);
    signal_pipe = -1;
    ::close(signals[1]);  // ends the thread
    thread.join();
    ::close(signals[0]);
    ::close(answers[0]);
    ::close(answers[1]);
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void watch() {
    Notice notice;
    while (::read(signals[0], &notice, sizeof(notice)) == kNoticeBytes) {
      const bool deadly = notice.signal != SIGUSR1;
      const std::string reason =
          concat("signal ", notice.signal, " (", strsignal(notice.signal), ")");
      if (deadly && notice.rank >= 0) {
        dumps.log(notice.rank).set_state(RankState::kFailed, reason);
      }
      dumps.write_all(deadly ? reason : "dumped on request");
      if (deadly && ::write(answers[1], "", 1) != 1) {
        return;
      }
    }
  }

  RunDumps& dumps;
  std::array<int, 2> signals{-1, -1};
  std::array<int, 2> answers{-1, -1};
  std::thread thread;
};

RunDumps::RunDumps(std::filesystem::path run_folder, const Plan& plan, int first, int count)
    : folder_(std::move(run_folder)), first_(first) {
  const RankPlaces places(plan);
  for (int rank = first; rank < first + count; ++rank) {
    logs_.push_back(std::make_unique<CallLog>(rank, places.num_ranks(), places.name_of(rank)));
  }
}

RunDumps::~RunDumps() = default;

CallLog& RunDumps::log(int rank) {
  return *logs_.at(static_cast<std::size_t>(rank - first_));
}

void RunDumps::begin(int rank) {
  rank_of_thread = rank;
}

void RunDumps::finish(int rank) {
  log(rank).set_state(RankState::kFinished);
  remove_requested();
}

void RunDumps::fail(int rank) {
  CallLog& own = log(rank);
  try {
    throw;
  } catch (const RankVanished&) {
    own.vanish();
  } catch (const std::exception& error) {
    note_failure(own, error, error.what());
    write_all("");
  } catch (...) {
    // Its calls are unknown.
  }
}

// Only the first failure: later dumps would show ranks that were stopped.
void RunDumps::write_all(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (written_ && reason.empty()) {
    return;
  }
  const bool ended = std::ranges::all_of(
      logs_, [](const auto& rank_log) { return rank_log->dump().state == RankState::kFinished; });
  if (ended) {
    return;
  }
  written_ = written_ || reason.empty();
  for (const auto& rank_log : logs_) {
    if (rank_log->vanished()) {
      continue;
    }
    RankDump dump = rank_log->dump();
    if (dump.failure.empty()) {
      dump.failure = reason;
    }
    try {
      write_file(dump_path(folder_, dump.rank), json_text(to_json(dump), 1) + "\n");
    } catch (const std::exception& error) {
      std::fputs(
          concat("entrain: warning: no dump of rank ", dump.rank, ": ", error.what(), "\n").c_str(),
          stderr);
    }
  }
}

// After a successful run, dumps on request are of no use.
void RunDumps::remove_requested() {
  const MutexLock lock(mutex_);
  for (const auto& rank_log : logs_) {
    if (written_ || rank_log->dump().state != RankState::kFinished) {
      return;
    }
  }
  for (const auto& rank_log : logs_) {
    std::error_code ignored;
    std::filesystem::remove(dump_path(folder_, rank_log->dump().rank), ignored);
  }
}

void RunDumps::watch_signals() {
  watcher_ = std::make_unique<Watcher>(*this);
}

}  // namespace entrain::engine
