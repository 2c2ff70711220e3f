#include "entrain/core/base/progress.h"

#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

namespace entrain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A clock that moves when told, and what was written by it.
struct Faked {
  std::chrono::steady_clock::time_point now;
  std::string text;

  ProgressOutput output(bool terminal, int columns = 200) {
    ProgressOutput result;
    result.terminal = terminal;
    result.columns = columns;
    result.now = [this] { return now; };
    result.write = [this](const std::string& more) { text += more; };
    return result;
  }
};

TEST(Progress, SaysNothingOfQuickWork) {
  for (const bool terminal : {true, false}) {
    Faked faked;
    Progress progress("reading", 19, ProgressUnit::kCount, faked.output(terminal));
    for (int i = 0; i < 19; ++i) {
      faked.now += milliseconds(100);
      progress.advance();
    }
    progress.finish();
    EXPECT_EQ(faked.text, "") << "terminal " << terminal;
  }
}

TEST(Progress, RedrawsOneLineOnATerminal) {
  Faked faked;
  Progress progress("reading", 100, ProgressUnit::kCount, faked.output(true));
  faked.now += seconds(25);
  progress.advance(25);
  EXPECT_EQ(faked.text,
            "\rreading [====            ] 25 of 100 (25 %), 0:25 elapsed, about 1:15 left\x1b[K");
  faked.text.clear();
  faked.now += milliseconds(99);
  progress.advance();
  EXPECT_EQ(faked.text, "") << "not drawn anew for every piece of work";
  faked.now += seconds(64);
  progress.reach(100);
  progress.finish();
  progress.finish();
  const std::string last = "\rreading [================] 100 of 100 (100 %), 1:29 elapsed\x1b[K";
  EXPECT_EQ(faked.text, last + last + "\n");
  faked.now += seconds(5);
  progress.advance();
  EXPECT_EQ(faked.text, last + last + "\n") << "nothing after its end";
}

TEST(Progress, FitsItsTerminal) {
  Faked faked;
  Progress progress("reading", 100, ProgressUnit::kCount, faked.output(true, 61));
  faked.now += seconds(25);
  progress.advance(25);
  EXPECT_EQ(faked.text, "\rreading 25 of 100 (25 %), 0:25 elapsed, about 1:15 left\x1b[K")
      << "without its bar";
  faked.text.clear();
  Progress narrow("reading", 100, ProgressUnit::kCount, faked.output(true, 11));
  faked.now += seconds(25);
  narrow.advance(25);
  EXPECT_EQ(faked.text, "\rreading 25\x1b[K");
}

TEST(Progress, SaysInALogEarlyThatWorkIsLong) {
  Faked faked;
  Progress brief("reading", 30, ProgressUnit::kCount, faked.output(false));
  Progress progress("reading", 31, ProgressUnit::kCount, faked.output(false));
  faked.now += seconds(2);
  brief.advance();
  EXPECT_EQ(faked.text, "") << "a minute in all";
  progress.advance();
  EXPECT_EQ(faked.text, "reading: 1 of 31 (3 %), 0:02 elapsed, about 1:00 left\n");
}

TEST(Progress, WritesALineAMinuteIntoALog) {
  Faked faked;
  Progress progress("reading", 600, ProgressUnit::kCount, faked.output(false));
  for (int i = 0; i < 150; ++i) {
    faked.now += seconds(1);
    progress.advance();
  }
  progress.finish();
  EXPECT_EQ(faked.text,
            "reading: 2 of 600 (0 %), 0:02 elapsed, about 9:58 left\n"
            "reading: 62 of 600 (10 %), 1:02 elapsed, about 8:58 left\n"
            "reading: 122 of 600 (20 %), 2:02 elapsed, about 7:58 left\n"
            "reading: 150 of 600 (25 %), 2:30 elapsed, about 7:30 left\n");
}

TEST(Progress, ShowsACountWhenTheTotalIsUnknown) {
  Faked faked;
  Progress progress("reading", 0, ProgressUnit::kCount, faked.output(false));
  faked.now += seconds(61);
  progress.advance(1234);
  EXPECT_EQ(faked.text, "reading: 1,234, 1:01 elapsed\n");
}

TEST(Progress, HasUnits) {
  Faked faked;
  Progress bytes("reading", 2 << 20, ProgressUnit::kBytes, faked.output(false));
  Progress share("measuring", 400, ProgressUnit::kShare, faked.output(false));
  faked.now += seconds(60);
  bytes.reach(1 << 20);
  share.reach_share(0.25);
  EXPECT_EQ(faked.text,
            "reading: 1.0 MiB of 2.0 MiB (50 %), 1:00 elapsed, about 1:00 left\n"
            "measuring: 25 %, 1:00 elapsed, about 3:00 left\n");
}

TEST(Progress, SurvivesMoreThanItsTotalAndLessThanBefore) {
  Faked faked;
  Progress progress("reading", 10, ProgressUnit::kCount, faked.output(false));
  progress.reach(12);
  progress.reach(3);
  faked.now += seconds(60);
  progress.reach(12);
  EXPECT_EQ(faked.text, "reading: 12 of 10 (120 %), 1:00 elapsed\n");
}

TEST(Progress, CountsForSeveralThreads) {
  Faked faked;
  Progress progress("reading", 4000, ProgressUnit::kCount, faked.output(true));
  faked.now += seconds(10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&progress] {
      for (int i = 0; i < 1000; ++i) {
        progress.advance();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  progress.finish();
  EXPECT_NE(faked.text.find("4,000 of 4,000 (100 %)"), std::string::npos) << faked.text;
}

TEST(Progress, KnowsATerminalFromAFile) {
  testing::internal::CaptureStderr();  // a file
  EXPECT_FALSE(standard_error_progress().terminal);
  standard_error_progress().write("text");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "text");
  int controller = -1;
  int terminal = -1;
  if (::openpty(&controller, &terminal, nullptr, nullptr, nullptr) != 0) {
    GTEST_SKIP() << "no pseudo-terminal on this machine";
  }
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(terminal, STDERR_FILENO);
  const bool is_terminal = standard_error_progress().terminal;
  ::dup2(saved, STDERR_FILENO);
  for (const int descriptor : {saved, terminal, controller}) {
    ::close(descriptor);
  }
  EXPECT_TRUE(is_terminal);
}

TEST(FormatClock, HasHoursWhereThereAreAny) {
  EXPECT_EQ(format_clock(milliseconds(42'900)), "0:42");
  EXPECT_EQ(format_clock(seconds(725)), "12:05");
  EXPECT_EQ(format_clock(seconds(3723)), "1:02:03");
  EXPECT_EQ(format_clock(seconds(-3)), "0:00");
}

TEST(FormatElapsed, OmitsUnknownTimes) {
  EXPECT_EQ(format_elapsed(seconds(60), 0, 10), "1:00 elapsed");
  EXPECT_EQ(format_elapsed(seconds(60), 10, 10), "1:00 elapsed");
  EXPECT_EQ(format_elapsed(seconds(60), 1, 3), "1:00 elapsed, about 2:00 left");
  EXPECT_EQ(format_elapsed(seconds(60), 1, std::int64_t{1} << 60), "1:00 elapsed");
}

}  // namespace
}  // namespace entrain
