#include "entrain/core/assigner/passing_bound.h"

#include <algorithm>
#include <cstdio>

#include <gtest/gtest.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"

namespace entrain {
namespace {

TEST(PassingBound, DelaysTheLongSampleOfOneReplica) {
  // 100 ns of its own, 4 ns of each other sample, 3 ns around.
  const std::vector<PassingSample> samples = {{100, 20}, {16, 4}, {16, 4}};
  EXPECT_EQ(passing_bound(samples, 3, {{{30, 8, 8}, 0}}, 1, 0), 111);
  EXPECT_EQ(passing_bound(samples, 3, {{{30, 8, 8}, 0}}, 1, 500), 500);
}

TEST(PassingBound, GivesOtherReplicasWhatWouldDelayIt) {
  // Alone it takes 100 ns. Ten others of 20 ns of work: the second replica holds all but x of them,
  // the first takes 100 + 5 x, so that x = 4 is the best.
  std::vector<PassingSample> samples(11, {40, 5});
  samples[0] = {100, 30};
  std::vector<std::int64_t> work(11, 20);
  work[0] = 30;
  EXPECT_EQ(passing_bound(samples, 0, {{work, 0}}, 2, 0), 120);
}

TEST(PassingBound, CountsLongSamplesThatMustShareAReplica) {
  // Three of 100 ns on two replicas: two of them together, 10 ns for the shorter.
  const std::vector<PassingSample> samples(3, {100, 10});
  EXPECT_EQ(passing_bound(samples, 0, {{{10, 10, 10}, 0}}, 2, 0), 105);  // of both, in the mean
  EXPECT_EQ(passing_bound(samples, 0, {{{10, 10, 10}, 0}}, 1, 0), 120);
}

TEST(PassingBound, LeavesOutWhatGoesAnotherWay) {
  EXPECT_EQ(passing_bound({{0, 0}, {0, 0}}, 5, {{{10, 10}, 0}}, 2, 7), 7);
  EXPECT_EQ(passing_bound({}, 5, {{{}, 0}}, 2, 7), 7);
}

// What the bound's words say, of every distribution to replicas.
std::int64_t least_of_all(const std::vector<PassingSample>& samples,
                          std::int64_t around,
                          const std::vector<PassedLane>& lanes,
                          int replicas) {
  const auto count = static_cast<int>(samples.size());
  int distributions = 1;
  for (int i = 0; i < count; ++i) {
    distributions *= replicas;
  }
  std::int64_t least = -1;
  for (int code = 0; code < distributions; ++code) {
    std::int64_t time = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      std::int64_t others = 0;
      std::int64_t longest = -1;  // length less its own `least`, which is not in its way
      std::vector<std::int64_t> held(lanes.size(), 0);
      for (int i = 0, rest = code; i < count; ++i, rest /= replicas) {
        if (rest % replicas != replica) {
          continue;
        }
        const PassingSample& sample = samples[at(i)];
        others += sample.least;
        if (sample.length > 0) {
          longest = std::max(longest, sample.length - sample.least);
        }
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
          held[lane] += lanes[lane].work[at(i)];
        }
      }
      time = std::max(time, longest >= 0 ? around + longest + others : 0);
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        time = std::max(time, held[lane] > 0 ? held[lane] + lanes[lane].around : 0);
      }
    }
    least = least < 0 ? time : std::min(least, time);
  }
  return least;
}

std::int64_t draw(Rng& rng, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most - least + 1)));
}

TEST(PassingBound, ExceedsNoDistribution) {
  Rng rng(20261126);
  int met = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto count = static_cast<int>(draw(rng, 1, 6));
    const auto replicas = static_cast<int>(draw(rng, 1, 3));
    std::vector<PassingSample> samples;
    std::vector<PassedLane> lanes(at(draw(rng, 1, 2)));
    for (PassedLane& lane : lanes) {
      lane.around = draw(rng, 0, 20);
    }
    for (int sample = 0; sample < count; ++sample) {
      const std::int64_t least = draw(rng, 0, 20);
      const std::int64_t more = draw(rng, 0, 5) == 0 ? 400 : 60;
      samples.push_back({draw(rng, 0, 5) == 0 ? 0 : 2 * least + draw(rng, 0, more), least});
      for (PassedLane& lane : lanes) {
        lane.work.push_back(draw(rng, 0, 1) * least + draw(rng, 1, 40));
      }
    }
    const std::int64_t around = draw(rng, 0, 10);
    std::int64_t known = 0;  // a lane with work has what is around it
    for (const PassedLane& lane : lanes) {
      known = std::max(known, lane.around);
    }
    const std::int64_t bound = passing_bound(samples, around, lanes, replicas, known);
    const std::int64_t least = least_of_all(samples, around, lanes, replicas);
    ASSERT_LE(bound, least) << "case " << i;
    met += bound == least ? 1 : 0;
  }
  std::printf("met in %d of 2000\n", met);
  EXPECT_GT(met, 400);
}

}  // namespace
}  // namespace entrain
