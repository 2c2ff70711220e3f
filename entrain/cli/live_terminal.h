// A page that is redrawn on a terminal until a signal ends it.
#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

namespace entrain::cli {

// Whether standard output is a terminal that results may be drawn on.
bool on_terminal();
// Whether colours may be used there: not if NO_COLOR is set (no-color.org).
bool may_colour();
// Rows of the terminal; 24 if it does not say.
int terminal_rows();

// Uses the terminal's other screen, so that its lines come back when this object ends. SIGINT,
// SIGTERM, SIGHUP and the stop of a job are held back meanwhile and taken by wait().
class LiveTerminal {
 public:
  LiveTerminal();
  ~LiveTerminal();
  LiveTerminal(const LiveTerminal&) = delete;
  LiveTerminal& operator=(const LiveTerminal&) = delete;

  // Replaces the page; lines that do not fit are left out.
  void draw(const std::vector<std::string>& lines);

  // Waits; 0 after that time or when the size of the terminal has changed, else the signal that
  // ends the program.
  int wait(std::chrono::duration<double> time);

 private:
  void enter();
  void leave();

  sigset_t held_{};
  sigset_t before_{};
};

}  // namespace entrain::cli
