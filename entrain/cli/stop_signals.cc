#include "entrain/cli/stop_signals.h"

#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace entrain::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kEcho{2};
constexpr std::chrono::milliseconds kPoll{50};

// What the handler sees.
std::atomic<bool> training{false};
std::atomic<bool> stopping{false};
std::atomic<int> first_signal{0};
std::atomic<Clock::rep> first_time{0};
std::atomic<bool> launched{false};
std::atomic<void (*)()> first_action{nullptr};
std::atomic<const std::string*> message{nullptr};

// The one way to write that a signal handler may use; nothing can be done where it fails.
void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void on_signal(int signal) {
  const int error = errno;
  if (!training) {
    say("entrain: stopped before training began; nothing was trained\n");
    ::_exit(128 + signal);
  }
  const Clock::rep now = Clock::now().time_since_epoch().count();
  if (!stopping.exchange(true)) {
    first_time = now;
    first_signal = signal;  // last: the thread goes by it
    say("entrain: finishing the step, then a checkpoint; Ctrl-C again ends the run at once\n");
    if (void (*action)() = first_action) {
      action();
    }
  } else if (!launched || Clock::duration(now - first_time) > kEcho) {
    say("entrain: a second signal: ending at once\n");
    ::_exit(128 + signal);
  }
  errno = error;
}

void on_end(int signal) {
  if (const std::string* text = message; text != nullptr) {
    say(*text);
  }
  ::_exit(128 + signal);
}

void take(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) {
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

StopSignals::StopSignals(void (*on_first)(), bool has_launcher) {
  training = false;
  stopping = false;
  first_signal = 0;
  launched = has_launcher;
  first_action = on_first;
  take(on_signal);
}

StopSignals::~StopSignals() {
  // torchrun sends another as soon as one rank of a stopped run has ended.
  take(stopping && launched ? SIG_IGN : SIG_DFL);
  closing_ = true;
  if (thread_.joinable()) {
    thread_.join();
  }
}

void StopSignals::begin_training(std::chrono::duration<double> patience,
                                 std::function<void()> give_up) {
  std::call_once(begun_, [&] {
    thread_ = std::thread([this, patience, give_up = std::move(give_up)] {
      while (!closing_) {
        std::this_thread::sleep_for(kPoll);
        const Clock::duration waited =
            Clock::now().time_since_epoch() - Clock::duration(first_time);
        if (first_signal != 0 && !closing_ && waited >= patience) {
          give_up();
          return;
        }
      }
    });
    training = true;
  });
}

const std::atomic<bool>& StopSignals::told() const {
  return stopping;
}

int StopSignals::exit_code() const {
  return 128 + (first_signal != 0 ? first_signal.load() : SIGTERM);
}

StopMessage::StopMessage() {
  message = nullptr;
  take(on_end);
}

StopMessage::~StopMessage() {
  take(SIG_DFL);
  message = nullptr;
}

void StopMessage::set(std::string text) {
  message = texts_.emplace_back(std::make_unique<const std::string>(std::move(text))).get();
}

}  // namespace entrain::cli
