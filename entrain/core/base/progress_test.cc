#include "entrain/core/base/progress.h"

#include <functional>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

namespace entrain {
namespace {

// What `action` writes while standard error is the terminal of a pseudo-terminal pair.
std::string output_on_terminal(const std::function<void()>& action) {
  int controller = -1;
  int terminal = -1;
  if (::openpty(&controller, &terminal, nullptr, nullptr, nullptr) != 0) {
    return {};
  }
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(terminal, STDERR_FILENO);
  action();
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::fcntl(controller, F_SETFL, O_NONBLOCK);
  std::string output;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(controller, buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(terminal);
  ::close(controller);
  return output;
}

void count_to(std::int64_t total, std::int64_t stated_total) {
  Progress progress("reading", stated_total);
  for (std::int64_t i = 0; i < total; ++i) {
    progress.advance();
  }
  progress.finish();
  progress.finish();
}

TEST(Progress, IsSilentWithoutATerminal) {
  testing::internal::CaptureStderr();  // a file, not a terminal
  count_to(1000, 1000);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, EndsWithTheFullCountOnATerminal) {
  const std::string output = output_on_terminal([] { count_to(1000, 1000); });
  if (output.empty()) {
    GTEST_SKIP() << "no pseudo-terminal on this machine";
  }
  EXPECT_NE(output.find("reading ["), std::string::npos) << output;
  EXPECT_NE(output.find("1,000/1,000"), std::string::npos) << output;
  EXPECT_EQ(output.back(), '\n');
  EXPECT_EQ(output.find("\r\n\r\n"), std::string::npos) << "finishing twice draws once: " << output;
}

TEST(Progress, ShowsACountWhenTheTotalIsUnknown) {
  const std::string output = output_on_terminal([] { count_to(1234, 0); });
  if (output.empty()) {
    GTEST_SKIP() << "no pseudo-terminal on this machine";
  }
  EXPECT_NE(output.find("reading 1,234 ("), std::string::npos) << output;
}

TEST(Progress, SurvivesMoreThanItsTotal) {
  const std::string output = output_on_terminal([] { count_to(12, 10); });
  if (output.empty()) {
    GTEST_SKIP() << "no pseudo-terminal on this machine";
  }
  EXPECT_NE(output.find("12/10"), std::string::npos) << output;
}

}  // namespace
}  // namespace entrain
