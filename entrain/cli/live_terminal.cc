#include "entrain/cli/live_terminal.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written <= 0) {
      return;  // the terminal is gone
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

bool on_terminal() {
  return &out() == &std::cout && ::isatty(STDOUT_FILENO) == 1;
}

bool may_colour() {
  const char* none = std::getenv("NO_COLOR");
  return on_terminal() && (none == nullptr || *none == '\0');
}

int terminal_rows() {
  constexpr int kUsual = 24;
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : kUsual;
}

LiveTerminal::LiveTerminal() {
  sigemptyset(&held_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH}) {
    sigaddset(&held_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
  enter();
}

LiveTerminal::~LiveTerminal() {
  leave();
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

// The other screen, no cursor, long lines cut by the terminal.
void LiveTerminal::enter() {
  put("\x1b[?1049h\x1b[?25l\x1b[?7l");
}

void LiveTerminal::leave() {
  put("\x1b[?7h\x1b[?25h\x1b[?1049l");
}

void LiveTerminal::draw(const std::vector<std::string>& lines) {
  const auto most = static_cast<std::size_t>(std::max(1, terminal_rows()));
  std::string text = "\x1b[H";
  for (std::size_t i = 0; i < std::min(lines.size(), most); ++i) {
    text += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
  }
  put(text + "\x1b[J");
}

int LiveTerminal::wait(std::chrono::duration<double> time) {
  const auto whole = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  const timespec limit{whole / 1'000'000'000, whole % 1'000'000'000};
  const int signal = ::sigtimedwait(&held_, nullptr, &limit);
  if (signal == SIGTSTP) {
    leave();
    ::raise(SIGSTOP);  // until the job continues
    enter();
  }
  return signal == SIGTSTP || signal == SIGWINCH || signal < 0 ? 0 : signal;
}

}  // namespace entrain::cli
