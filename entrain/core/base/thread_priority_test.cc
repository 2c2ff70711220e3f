#include "entrain/core/base/thread_priority.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

#ifdef __linux__
#include <sys/resource.h>
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
#endif

}  // namespace
}  // namespace entrain
