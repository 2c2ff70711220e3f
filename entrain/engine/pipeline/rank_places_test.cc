#include "entrain/engine/pipeline/rank_places.h"

#include <map>

#include <gtest/gtest.h>

#include "tests/oracle/engine/tiny_step.h"

namespace entrain::engine {
namespace {

// Lanes of the widths given, two replicas.
Plan plan_of(const std::vector<int>& widths) {
  Plan plan;
  plan.replicas = 2;
  for (const int width : widths) {
    const int module = static_cast<int>(plan.modules.size());
    plan.modules.push_back({.name = "module", .tensor_parallel = width, .stages = {{0, 1}}});
    plan.lanes.push_back({{module, 0}});
  }
  return plan;
}

TEST(RankPlaces, NumberReplicasThenLanesThenTensorRanks) {
  const RankPlaces places(plan_of({1, 3, 2}));
  EXPECT_EQ(places.num_ranks(), 12);
  int rank = 0;
  for (int replica = 0; replica < 2; ++replica) {
    for (int lane = 0; lane < 3; ++lane) {
      EXPECT_EQ(places.width(lane), (std::vector<int>{1, 3, 2})[static_cast<std::size_t>(lane)]);
      for (int t = 0; t < places.width(lane); ++t, ++rank) {
        const RankPlace place{replica, lane, t};
        EXPECT_EQ(places.rank_of(place), rank);
        EXPECT_EQ(places.place_of(rank), place);
      }
    }
  }
  EXPECT_EQ(places.of_replica(1), (std::vector<int>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(places.of_lane(1, 1), (std::vector<int>{7, 8, 9}));
  EXPECT_EQ(places.across_replicas(1, 2), (std::vector<int>{3, 9}));
  EXPECT_EQ(places.peers_of(3), (std::vector<int>{0, 1, 2, 4, 5, 9}));
  EXPECT_EQ(places.name_of(6), "replica 1 lane 0");
  EXPECT_EQ(places.name_of(9), "replica 1 lane 1 tensor rank 2");
  EXPECT_THROW(static_cast<void>(places.place_of(12)), InternalError);
  EXPECT_THROW(static_cast<void>(places.rank_of({0, 2, 2})), InternalError);
}

TEST(RankPlaces, EveryReceiveHasItsSend) {
  for (int from = 1; from <= 4; ++from) {
    for (int to = 1; to <= 4; ++to) {
      const RankPlaces places(plan_of({from, to}));
      std::map<int, int> sends;  // by receiver: sender
      for (int t = 0; t < from; ++t) {
        for (const int receiver : places.receivers_of({1, 0, t}, 1)) {
          EXPECT_TRUE(sends.emplace(receiver, places.rank_of({1, 0, t})).second);
        }
      }
      ASSERT_EQ(static_cast<int>(sends.size()), to);
      for (int t = 0; t < to; ++t) {
        EXPECT_EQ(sends.at(places.rank_of({1, 1, t})), places.sender_of({1, 1, t}, 0));
      }
    }
  }
}

}  // namespace
}  // namespace entrain::engine
