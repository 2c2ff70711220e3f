#include "entrain/core/base/thread_priority.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace entrain {
namespace {

#ifdef __linux__
TEST(RunInBackground, ChangesTheCallingThreadAndThoseItStarts) {
  const int before = getpriority(PRIO_PROCESS, 0);
  int in_background = 0;
  int started_there = 0;
  std::thread([&] {
    run_in_background();
    in_background = getpriority(PRIO_PROCESS, 0);
    std::thread([&] { started_there = getpriority(PRIO_PROCESS, 0); }).join();
  }).join();
  EXPECT_EQ(in_background, std::max(before, 10));
  EXPECT_EQ(started_there, in_background);
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
}

// Of the calling thread, in ns; 0 where the system knows none.
std::uint64_t slice() {
  std::array<std::uint64_t, 6> attributes{};  // the slice is at byte 24
  if (syscall(SYS_sched_getattr, 0, attributes.data(), sizeof(attributes), 0) != 0) {
    return 0;
  }
  return attributes[3];
}

TEST(WakePromptly, AsksForAShortSliceWhichTheBackgroundDoesNotKeep) {
  const std::uint64_t usual = slice();
  if (usual == 0) {
    GTEST_SKIP() << "this system has no slices of ordinary threads";
  }
  const int before = getpriority(PRIO_PROCESS, 0);
  std::uint64_t prompt = 0;
  std::uint64_t behind = 0;
  int nice = -1;
  std::thread([&] {
    wake_promptly();
    prompt = slice();
    nice = getpriority(PRIO_PROCESS, 0);
    std::thread([&] {
      run_in_background();
      behind = slice();
    }).join();
  }).join();
  EXPECT_EQ(prompt, 100'000U);
  EXPECT_EQ(nice, before);
  EXPECT_EQ(behind, usual);
  EXPECT_EQ(slice(), usual);
}
#endif

}  // namespace
}  // namespace entrain
