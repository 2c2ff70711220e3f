// What SIGINT and SIGTERM do to a run, by how far it is.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

namespace entrain::cli {

// Until training begins, a signal ends the process at once with 128 + its number. Then the first
// one asks the run to stop, and a second one ends the process like that. One object of a process at
// a time; after it signals do what they do by default, or nothing where the launcher's have been
// taken and the process is about to end.
class StopSignals {
 public:
  // `on_first` is called in the signal handler, when the run is asked to stop.
  // `has_launcher`: torchrun passes on what Ctrl-C and batch systems have sent to every process
  // already, so a signal within two seconds of the first is none of its own.
  StopSignals(void (*on_first)(), bool has_launcher);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Training begins; of several calls the first counts. `give_up` is called on a thread of this
  // object's own when the process still runs `patience` after the first signal, and ends it.
  void begin_training(std::chrono::duration<double> patience, std::function<void()> give_up);

  // Whether the run has been asked to stop.
  [[nodiscard]] const std::atomic<bool>& told() const;
  // The exit code of a run that the signal ended with nothing to go on from.
  [[nodiscard]] int exit_code() const;

 private:
  std::once_flag begun_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace entrain::cli
