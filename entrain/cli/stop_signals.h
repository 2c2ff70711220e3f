// Effect of SIGINT and SIGTERM on a run, depending on its progress.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace entrain::cli {

// Until training begins, a signal ends the process at once with 128 + its number. Then the first
// signal requests a stop, and a second one ends the process as before. At most one object per
// process; after its end signals have their default effect, or none if the launcher's were
// handled and the process is about to end.
class StopSignals {
 public:
  // `on_first` is called in the signal handler when the run is asked to stop.
  // `has_launcher`: torchrun forwards signals that Ctrl-C and batch systems have sent to every
  // process already, so a signal within two seconds of the first is a duplicate.
  StopSignals(void (*on_first)(), bool has_launcher);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Training begins; only the first call counts. `give_up` is called on a thread of this
  // object if the process still runs `patience` after the first signal, and ends it.
  void begin_training(std::chrono::duration<double> patience, std::function<void()> give_up);

  // Whether the run was asked to stop.
  [[nodiscard]] const std::atomic<bool>& told() const;
  // The exit code of a run that the signal ended without a checkpoint.
  [[nodiscard]] int exit_code() const;

 private:
  std::once_flag begun_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

// Of a command that keeps what it has done: SIGINT and SIGTERM write the last text that was set to
// standard error and end the process at once with 128 + their number. At most one object per
// process, and none beside StopSignals; after its end signals have their default effect.
class StopMessage {
 public:
  StopMessage();
  ~StopMessage();
  StopMessage(const StopMessage&) = delete;
  StopMessage& operator=(const StopMessage&) = delete;

  void set(std::string text);

 private:
  std::vector<std::unique_ptr<const std::string>> texts_;  // a handler may still read an older one
};

}  // namespace entrain::cli
