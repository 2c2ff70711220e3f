// entrain top: a run's progress, redrawn while the run goes on.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/progress_page.h"
#include "entrain/core/report/run_progress.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/live_terminal.h"

namespace entrain::cli {
namespace {

struct TopFlags {
  std::string run;
  double every = 2;  // seconds
  bool once = false;
  bool json = false;
};

std::string clock_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[16] = {};
  std::strftime(text, sizeof text, "%H:%M:%S", &local);
  return text;
}

void print_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    out() << line << "\n";
  }
  out() << std::flush;
}

std::vector<std::string> page_of(const RunWatch& watch,
                                 const std::string& run,
                                 const std::optional<RunProgress>& progress) {
  PageStyle style;
  style.colour = may_colour();
  const bool over = progress.has_value() && progress->state != RunState::kRunning;
  style.clock = (over ? "seen at " : "") + clock_now();  // not when it ended
  if (!progress.has_value()) {
    return waiting_page(run, watch.metrics().filename().string(), style);
  }
  if (on_terminal()) {
    constexpr int kOtherLines = 16;
    const auto warnings = static_cast<int>(progress->warnings.size());
    style.most_lanes = std::max(style.most_lanes, terminal_rows() - kOtherLines - warnings);
  }
  return progress_page(*progress, style);
}

int once(const TopFlags& options, RunWatch& watch) {
  const std::optional<RunProgress> progress = watch.look(std::chrono::system_clock::now());
  if (!progress.has_value()) {
    throw InvalidInput(concat("run: '",
                              watch.metrics().string(),
                              "' has no steps: the run has not finished one yet; on a terminal "
                              "and without --once `entrain top` waits for it"));
  }
  if (options.json) {
    print_json(to_json(*progress));
  } else {
    print_lines(page_of(watch, options.run, progress));
  }
  return 0;
}

// Until the run has finished or a signal comes.
int follow(const TopFlags& options, RunWatch& watch) {
  // Reading all of a long run takes a while: before signals are held back.
  std::optional<RunProgress> progress = watch.look(std::chrono::system_clock::now());
  int signal = 0;
  {
    LiveTerminal terminal;
    while (signal == 0) {
      terminal.draw(page_of(watch, options.run, progress));
      if (progress.has_value() && progress->state == RunState::kFinished) {
        break;
      }
      signal = terminal.wait(std::chrono::duration<double>(options.every));
      progress = watch.look(std::chrono::system_clock::now());
    }
  }
  print_lines(page_of(watch, options.run, progress));
  constexpr int kSignalled = 128;
  return signal == 0 || signal == SIGINT ? 0 : kSignalled + signal;
}

int run(const TopFlags& options) {
  if (options.json && !options.once) {
    throw InvalidInput("--json: prints one page, so give --once, too");
  }
  RunWatch watch(options.run);
  return options.once || !on_terminal() ? once(options, watch) : follow(options, watch);
}

}  // namespace

void add_top_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TopFlags>();
  CLI::App* command = add_command(
      app,
      "top",
      "Shows a run's progress while it goes on: steps, loss, step time against its prediction and\n"
      "its bound, tokens/s, data, memory, how busy each lane is, and warnings. It reads the run\n"
      "folder only. Ctrl-C ends it, and so does the end of the run's last step. If the output is\n"
      "not a terminal, one page is printed, as with --once.",
      "entrain top runs/demo\n"
      "For a script: entrain top runs/demo --once --json");
  command->add_option("run", options->run, "run folder")->required();
  command->add_option("--every", options->every, "seconds between two pages (default 2)")
      ->transform(number({0.1, 3600}));
  command->add_flag("--once", options->once, "print one page and end");
  command->add_flag("--json", options->json, "with --once: the same figures as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
