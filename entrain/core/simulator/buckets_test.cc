#include "entrain/core/simulator/buckets.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/oracle/two_lanes.h"

namespace entrain::simulation {
namespace {

using std::chrono::nanoseconds;
using Times = std::vector<std::pair<std::int64_t, std::int64_t>>;

// Both stages on one lane of two replicas.
struct BucketsFixture {
  BucketsFixture() : lanes(1) {
    lanes.add_replica("", "");
    lanes.add_replica("", "");
    lanes.program.lanes = {{{0, 0}, {1, 0}}};
    lanes.costs.modules[0].stages[0].reduce = nanoseconds{40};
    lanes.costs.modules[1].stages[0].reduce = nanoseconds{7};
  }
  static Times times_of(const std::vector<Bucket>& buckets) {
    Times result;
    for (const Bucket& bucket : buckets) {
      result.emplace_back(bucket.start, bucket.finish);
    }
    return result;
  }
  oracle::TwoLanes lanes;
};

TEST(Buckets, RunAsTheLastBackwardMakesThem) {
  const BucketsFixture fixture;
  const StageGraph stages = stage_graph(fixture.lanes.program, {});
  Buckets buckets(fixture.lanes.program, stages, fixture.lanes.costs, 2);
  buckets.made(0, 1, 0, 0, 10);
  buckets.made(0, 1, 0, 100, 120);  // the last one counts
  buckets.made(1, 1, 0, 90, 111);
  buckets.made(0, 0, 0, 120, 140);
  buckets.made(1, 0, 0, 125, 129);
  // LLM: ready at 110 and 120, 3 + 4 ns; vision: ready at 130 and 140, 20 ns each.
  EXPECT_EQ(BucketsFixture::times_of(buckets.run(0, 0)),
            (Times{{110, 113}, {120, 124}, {130, 150}, {150, 170}}));
  // All replicas' lanes are told the same.
  EXPECT_EQ(buckets.run(0, 0).size(), 4U);
}

TEST(Buckets, LeaveOutFrozenStagesAndStartAtOnceWithoutABackward) {
  BucketsFixture fixture;
  fixture.lanes.costs.modules[1].stages[0].trainable = false;
  const StageGraph stages = stage_graph(fixture.lanes.program, {});
  Buckets buckets(fixture.lanes.program, stages, fixture.lanes.costs, 1);
  EXPECT_EQ(BucketsFixture::times_of(buckets.run(0, 0)), (Times{{0, 40}}));
  // A second reduction runs behind the first.
  buckets.made(1, 0, 0, 10, 30);
  EXPECT_EQ(BucketsFixture::times_of(buckets.run(0, 1)), (Times{{40, 80}}));
}

TEST(Buckets, AreOffByDefault) {
  const BucketsFixture fixture;
  const StageGraph stages = stage_graph(fixture.lanes.program, {});
  EXPECT_FALSE(Buckets(fixture.lanes.program, stages, fixture.lanes.costs, 0).enabled());
}

}  // namespace
}  // namespace entrain::simulation
