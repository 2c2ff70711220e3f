#include "entrain/engine/train/step_barrier.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/pipeline/ranks.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

PreparedStep step_with(char digit, std::int64_t step = 5) {
  PreparedStep prepared;
  prepared.step = step;
  prepared.digest = std::string(32, digit);
  return prepared;
}

// 2 replicas of 2 lanes, on hosts by rank.
void on_ranks(const std::function<void(Comm&, StepBarrier&)>& body,
              const std::vector<std::uint64_t>& hosts = {1, 1, 1, 1}) {
  ThreadCommGroup group(4, milliseconds(5000));
  Plan plan;
  plan.replicas = 2;
  plan.modules = {{.name = "llm", .stages = {{0, 1}, {1, 2}}}};
  plan.lanes = default_lanes(plan.modules);
  const RankPlaces places(plan);
  run_ranks(group, [&](int rank) {
    StepBarrier barrier(group.comm(rank), places, hosts.at(static_cast<std::size_t>(rank)));
    body(group.comm(rank), barrier);
  });
}

// Rank r begins r milliseconds behind rank 0 and takes 10.
StepReport end_of(int rank, std::chrono::steady_clock::time_point origin) {
  StepReport end;
  end.step = 4;
  end.start = origin + milliseconds(rank);
  end.end = end.start + milliseconds(10);
  end.outcome.loss_sum = 0.1 * rank;
  end.outcome.gradient_norm = 2.5;
  end.outcome.usage.busy = milliseconds(rank + 1);
  end.outcome.usage.finish = milliseconds(9);
  end.outcome.usage.peak_bytes = 100 + rank;
  end.outcome.processor = milliseconds(3);
  for (int i = 0; i < rank; ++i) {
    end.outcome.events.push_back(
        {rank / 2, rank % 2, i, EventCategory::kSend, nanoseconds(7), nanoseconds(8)});
  }
  return end;
}

TEST(StepBarrier, GivesRankZeroTheWholeStep) {
  const auto origin = std::chrono::steady_clock::now();
  on_ranks([&](Comm& comm, StepBarrier& barrier) {
    const PreparedStep next = step_with('a');
    StepReport end = end_of(comm.rank(), origin);
    end.with_events = true;
    const StepVerdict verdict = barrier.close(end, &next);
    EXPECT_FALSE(verdict.stop);
    ASSERT_EQ(verdict.record.has_value(), comm.rank() == 0);
    if (comm.rank() != 0) {
      return;
    }
    const StepRecord& record = *verdict.record;
    EXPECT_EQ(record.step, 4);
    EXPECT_EQ(record.loss, 0.0 + 0.1 + 0.2 + 0.1 * 3);
    EXPECT_EQ(record.gradient_norm, 2.5);
    EXPECT_EQ(record.measured.makespan, milliseconds(13));
    EXPECT_DOUBLE_EQ(record.step_s, 0.013);
    ASSERT_EQ(record.measured.lanes.size(), 2U);
    EXPECT_EQ(record.measured.lanes[1][0].busy, milliseconds(3));
    EXPECT_EQ(record.measured.lanes[1][1].finish, milliseconds(12));
    EXPECT_EQ(record.measured.lanes[0][1].peak_bytes, 101);
    EXPECT_DOUBLE_EQ(record.processor_s[1][1], 0.003);
    ASSERT_EQ(record.measured.events.size(), 6U);
    const TimelineEvent& last = record.measured.events.back();
    EXPECT_EQ(last.replica, 1);
    EXPECT_EQ(last.lane, 1);
    EXPECT_EQ(last.operation, 2);
    EXPECT_EQ(last.category, EventCategory::kSend);
    EXPECT_EQ(last.start, milliseconds(3) + nanoseconds(7));
    EXPECT_EQ(last.finish, milliseconds(3) + nanoseconds(8));
  });
}

TEST(StepBarrier, SavesByTheClockOfRankZeroAlone) {
  const auto origin = std::chrono::steady_clock::now();
  on_ranks([&](Comm& comm, StepBarrier& barrier) {
    const PreparedStep next = step_with('a');
    for (const int due : {-1, 1, 0}) {  // the rank whose clock says so
      StepReport end = end_of(comm.rank(), origin);
      end.save = comm.rank() == due;
      EXPECT_EQ(barrier.close(end, &next).save, due == 0);
    }
  });
}

TEST(StepBarrier, ReportsTheTimeBetweenTwoSteps) {
  const auto origin = std::chrono::steady_clock::now();
  on_ranks([&](Comm& comm, StepBarrier& barrier) {
    const PreparedStep next = step_with('a');
    const StepVerdict first = barrier.close(end_of(comm.rank(), origin), &next);
    // All ranks have ended 13 ms behind the origin; the first begins again 20 ms behind it.
    const StepVerdict second = barrier.close(end_of(comm.rank(), origin + milliseconds(20)), &next);
    if (comm.rank() == 0) {
      EXPECT_FALSE(first.record->gap_s.has_value());
      EXPECT_DOUBLE_EQ(second.record->gap_s.value(), 0.007);
    }
  });
}

// Clocks of two hosts, an hour apart: the second's ranks begin 2 and 3 ms behind the first's on the
// same clock, 0 and 1 ms behind their own host's first on another.
TEST(StepBarrier, AlignsTimesOfEveryHostByItsOwnClock) {
  const auto origin = std::chrono::steady_clock::now();
  for (const bool other : {false, true}) {
    const auto close = [&](Comm& comm, StepBarrier& barrier) {
      const PreparedStep next = step_with('a');
      StepReport end = end_of(comm.rank(), origin);
      if (comm.rank() >= 2) {
        end.start += std::chrono::hours(1);
        end.end += std::chrono::hours(1);
      }
      const StepVerdict verdict = barrier.close(end, &next);
      if (comm.rank() == 0) {
        EXPECT_NEAR(verdict.record->step_s, other ? 11e-3 : 3600 + 13e-3, 1e-6);
        EXPECT_EQ(verdict.record->measured.lanes[1][1].finish,
                  other ? milliseconds(10) : std::chrono::hours(1) + milliseconds(12));
      }
    };
    on_ranks(close, {1, 1, other ? 2U : 1U, other ? 2U : 1U});
  }
}

TEST(StepBarrier, DistinguishesHostsByNameAndStart) {
  EXPECT_EQ(this_host(), this_host());
  EXPECT_EQ(host_id("node", "a"), host_id("node", "a"));
  EXPECT_NE(host_id("node", "a"), host_id("node", "b")) << "images of one kind bear one name";
  EXPECT_NE(host_id("node", "a"), host_id("edge", "a"));
}

TEST(StepBarrier, LeavesEventsWhereTheyAreUnlessRequested) {
  on_ranks([&](Comm& comm, StepBarrier& barrier) {
    const StepVerdict verdict = barrier.close(end_of(comm.rank(), {}), nullptr);
    EXPECT_TRUE(!verdict.record.has_value() || verdict.record->measured.events.empty());
  });
}

TEST(StepBarrier, OneRankThatIsToStopStopsAll) {
  on_ranks([&](Comm& comm, StepBarrier& barrier) {
    const PreparedStep next = step_with('a');
    StepReport end = end_of(comm.rank(), {});
    end.stop = comm.rank() == 2;
    EXPECT_TRUE(barrier.close(end, &next).stop);
  });
}

TEST(StepBarrier, RefusesRanksWithDifferentSteps) {
  on_ranks([&](Comm& comm, StepBarrier& barrier) {
    const PreparedStep same = step_with('a', 0);
    barrier.open(&same);
    const PreparedStep next = step_with(comm.rank() == 2 ? 'b' : 'a');
    const std::string message =
        error_of<SystemFailure>([&] { barrier.close(end_of(comm.rank(), {}), &next); });
    for (const std::string& part : {"rank 2 has " + std::string(32, 'b'),
                                    "rank 0 " + std::string(32, 'a'),
                                    std::string("step 5")}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
    const std::string at_start =
        error_of<SystemFailure>([&] { barrier.open(comm.rank() == 3 ? nullptr : &same); });
    EXPECT_NE(at_start.find("rank 3 has no step"), std::string::npos) << at_start;
  });
}

}  // namespace
}  // namespace entrain::engine
