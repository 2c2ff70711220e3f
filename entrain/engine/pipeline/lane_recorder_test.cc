#include "entrain/engine/pipeline/lane_recorder.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using Clock = LaneRecorder::Clock;

TEST(LaneRecorder, NotesEventsFromTheOriginOnWhereAskedFor) {
  const Clock::time_point origin = Clock::now() - microseconds(500);
  ExecutorOptions options;
  for (const bool asked : {false, true}) {
    options.record_events = asked;
    StepOutcome outcome;
    LaneRecorder recorder({2, 1, 0}, options, at::kCPU, origin, outcome);
    recorder.event(EventCategory::kSend, 7, origin + microseconds(100));
    ASSERT_EQ(outcome.events.size(), asked ? 1U : 0U);
    if (asked) {
      const TimelineEvent& event = outcome.events.front();
      EXPECT_EQ(event.replica, 2);
      EXPECT_EQ(event.lane, 1);
      EXPECT_EQ(event.operation, 7);
      EXPECT_EQ(event.category, EventCategory::kSend);
      EXPECT_EQ(event.start, microseconds(100));
      EXPECT_GE(event.finish, microseconds(500));
    }
  }
}

TEST(LaneRecorder, WhatIsFoundAtOnceIsNoWait) {
  ExecutorOptions options;
  options.record_events = true;
  StepOutcome outcome;
  const Clock::time_point origin = Clock::now() - microseconds(500);
  LaneRecorder recorder({0, 0, 0}, options, at::kCPU, origin, outcome);
  recorder.wait(1, Clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(outcome.events.empty());
  recorder.wait(2, origin);
  ASSERT_EQ(outcome.events.size(), 1U);
  EXPECT_EQ(outcome.events.front().category, EventCategory::kWait);
}

TEST(LaneRecorder, ComputeAddsUpAndTheLastOneFinishes) {
  const ExecutorOptions options;
  StepOutcome outcome;
  const Clock::time_point origin = Clock::now();
  LaneRecorder recorder({0, 0, 0}, options, at::kCPU, origin, outcome);
  const Clock::time_point first = recorder.begin_compute();
  recorder.end_compute(0, first - microseconds(300));
  const nanoseconds finish = outcome.usage.finish;
  recorder.end_compute(1, recorder.begin_compute() - microseconds(200));
  EXPECT_GE(outcome.usage.busy, microseconds(500));
  EXPECT_GT(outcome.usage.finish, finish);
  EXPECT_TRUE(outcome.events.empty());
}

TEST(LaneRecorder, MemoryIsWhatIsHeldBetweenOperationsAndTheMostWithinOne) {
  ExecutorOptions options;
  options.measure_memory = true;
  StepOutcome outcome;
  LaneRecorder recorder({0, 0, 0}, options, at::kCPU, Clock::now(), outcome);
  recorder.begin_memory();
  const at::Tensor held = at::empty({100});
  { const at::Tensor temporary = at::empty({1000}); }
  recorder.bytes_come(50);
  recorder.note_memory();
  EXPECT_EQ(outcome.usage.peak_bytes, 450);
  EXPECT_EQ(outcome.working_bytes, 4400);
  recorder.bytes_go(50);
  recorder.note_memory();
  EXPECT_EQ(outcome.usage.peak_bytes, 450);
  EXPECT_EQ(outcome.working_bytes, 4400);
}

TEST(LaneRecorder, MemoryIsZeroWhereNotMeasured) {
  const ExecutorOptions options;
  StepOutcome outcome;
  LaneRecorder recorder({0, 0, 0}, options, at::kCPU, Clock::now(), outcome);
  recorder.begin_memory();
  const at::Tensor held = at::empty({100});
  recorder.bytes_come(50);
  recorder.note_memory();
  EXPECT_EQ(outcome.usage.peak_bytes, 0);
  EXPECT_EQ(outcome.working_bytes, 0);
}

}  // namespace
}  // namespace entrain::engine
