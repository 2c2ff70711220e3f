#include "entrain/core/planner/plan_space.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/plan_cases.h"

namespace entrain {
namespace {

ModelSpec make_model(int encoders) {
  ModelSpec model;
  for (int e = 0; e < encoders; ++e) {
    EncoderSpec& encoder = model.encoders.emplace_back();
    encoder.name = e == 0 ? "vision" : "audio";
    encoder.num_layers = 4;
  }
  model.llm.num_layers = 4;
  return model;
}

ClusterSpec make_cluster(int nodes, int devices_per_node) {
  ClusterSpec cluster;
  cluster.name = "test";
  cluster.num_nodes = nodes;
  cluster.devices_per_node = devices_per_node;
  return cluster;
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

std::vector<PlanShape> list(const PlanSpace& space, int replicas) {
  std::vector<PlanShape> result;
  space.for_each(replicas, nullptr, [&](const PlanShape& config) { result.push_back(config); });
  return result;
}

TEST(PlanSpace, ListsEveryWayToUseAllDevices) {
  const ModelSpec model = make_model(1);
  const ClusterSpec cluster = make_cluster(1, 4);
  const PlanSpace space(model, cluster, {{{1, 1}, {2, 1}}, {{1, 1}}}, {.global_batch = 6});
  EXPECT_EQ(space.replica_counts(), (std::vector<int>{1, 2, 3}));
  // Vision 1 to 3 lanes of one device, or one lane of two; the LLM takes the rest. Shared: none of
  // four devices.
  EXPECT_EQ(list(space, 1).size(), 4U);
  // Two devices: one lane each, or TP 2 on no shared lane, for the LLM has one device a lane only.
  EXPECT_EQ(list(space, 2).size(), 1U);
  // One device: everything on it.
  const std::vector<PlanShape> alone = list(space, 3);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].layout, ModuleLayout::kColocated);
  EXPECT_EQ(describe(alone[0], model), "3 replicas of vision 1 lane | llm 1 lane");
  EXPECT_EQ(alone[0].num_slots, 1);
  for (const PlanShape& config : list(space, 1)) {
    EXPECT_EQ(devices_per_replica(config), 4);
    EXPECT_EQ(config.num_slots, 2);
    EXPECT_TRUE(space.contains(config));
  }
}

TEST(PlanSpace, WrapsVirtualStagesAroundAModulesLanes) {
  const ModelSpec model = make_model(1);
  const PlanShape config{1, 4, ModuleLayout::kOwnLanes, {{{}, 1, 2}, {{}, 2, 3}}};
  const std::vector<std::vector<StageRef>> lanes = {
      {{0, 0}, {0, 1}}, {{1, 0}, {1, 2}, {1, 4}}, {{1, 1}, {1, 3}, {1, 5}}};
  EXPECT_EQ(lane_stages(config), lanes);
  EXPECT_EQ(lanes_of(config), 3);
  EXPECT_EQ(devices_per_replica(config), 3);
  EXPECT_EQ(describe(config, model),
            "1 replica of vision 1 lane of 2 stages + llm 2 lanes of 3 stages");
}

// Six layers of each module, four devices of one replica: vision 1, 2 or 3 lanes, the LLM the rest.
TEST(PlanSpace, ListsVirtualStagesAsFarAsLayersAllow) {
  const ModelSpec model = make_model(1);
  const ClusterSpec cluster = make_cluster(1, 4);
  const std::vector<std::vector<Degrees>> ones = {{{1, 1}}, {{1, 1}}};
  const auto count = [&](int virtual_stages, bool virtual_only) {
    SpaceOptions options{.global_batch = 1};
    options.virtual_stages = virtual_stages;
    options.virtual_only = virtual_only;
    return list(PlanSpace(model, cluster, ones, options), 1).size();
  };
  EXPECT_EQ(count(1, false), 3U);
  EXPECT_EQ(count(2, true), 3U);
  EXPECT_EQ(count(3, true), 1U);  // two lanes each
  // On one and three lanes 4 × 2 numbers, on two and two 3 × 3.
  EXPECT_EQ(count(kAutoVirtualStages, false), 8U + 9U + 8U);
  EXPECT_EQ(count(kAutoVirtualStages, true), 7U + 8U + 7U);
  expect_words(oracle::error_of<InvalidInput>([&] { count(7, true); }),
               {"7 virtual stages", "vision", "1 to 6"});
}

TEST(PlanSpace, SharesAllLanesWhereAsked) {
  const ModelSpec model = make_model(2);
  const ClusterSpec cluster = make_cluster(1, 4);
  SpaceOptions options{.global_batch = 1};
  options.shared_lanes = SharedLanes::kOnly;
  const std::vector<std::vector<Degrees>> degrees(3, {{1, 1}, {2, 1}});
  const std::vector<PlanShape> configs = list(PlanSpace(model, cluster, degrees, options), 1);
  ASSERT_EQ(configs.size(), 2U);  // four lanes of a device, or two lanes of two
  for (const PlanShape& config : configs) {
    EXPECT_EQ(config.layout, ModuleLayout::kColocated);
    EXPECT_EQ(devices_per_replica(config), 4);
  }
}

// Beside 9 configurations apart, and with devices of its own number: of 3 only one lane uses all,
// where degrees are even.
TEST(PlanSpace, AddsSharedLanesToOthers) {
  const ModelSpec model = make_model(1);
  const ClusterSpec cluster = make_cluster(1, 4);
  SpaceOptions options{.global_batch = 1};
  const std::vector<std::vector<Degrees>> degrees(2, {{1, 1}, {2, 1}});
  const std::vector<PlanShape> apart = list(PlanSpace(model, cluster, degrees, options), 1);
  options.shared_lanes = SharedLanes::kToo;
  const PlanSpace space(model, cluster, degrees, options);
  std::vector<PlanShape> more;
  for (const PlanShape& config : list(space, 1)) {
    const bool shared = (space.features(config) & kSharedLanes) != 0;
    EXPECT_EQ(std::count(apart.begin(), apart.end(), config), shared ? 0 : 1);
    if (shared) {
      more.push_back(config);
    }
  }
  ASSERT_EQ(more.size(), 2U);  // four lanes of a device, or two lanes of two
  for (const PlanShape& config : more) {
    EXPECT_EQ(config.layout, ModuleLayout::kColocated);
    EXPECT_EQ(devices_per_replica(config), 4);
  }
  EXPECT_EQ(list(space, 1).size(), apart.size() + 2);
  EXPECT_EQ(space.feature_sets(), (std::vector<unsigned>{0, kSharedLanes}));
  options.virtual_stages = kAutoVirtualStages;
  EXPECT_EQ(PlanSpace(model, cluster, degrees, options).feature_sets(),
            (std::vector<unsigned>{0, kVirtualStages, kSharedLanes}));
}

TEST(PlanSpace, LeavesDevicesIdleOnlyWhereNumbersForceIt) {
  const ModelSpec model = make_model(1);
  const ClusterSpec cluster = make_cluster(1, 5);
  const std::vector<std::vector<Degrees>> twos = {{{2, 1}}, {{2, 1}}};
  const PlanSpace space(model, cluster, twos, {.global_batch = 1});
  const std::vector<PlanShape> configs = list(space, 1);
  ASSERT_EQ(configs.size(), 1U);
  EXPECT_EQ(devices_per_replica(configs[0]), 4);
  SpaceOptions idle{.global_batch = 1};
  idle.idle_devices = true;
  EXPECT_EQ(list(PlanSpace(model, cluster, twos, idle), 1).size(), 2U);  // and one shared lane
}

TEST(PlanSpace, SharesLanesBetweenEncodersOfEqualWidth) {
  const ModelSpec model = make_model(2);
  const ClusterSpec cluster = make_cluster(1, 4);
  const PlanSpace space(
      model, cluster, {{{2, 1}}, {{1, 1}, {1, 2}}, {{2, 1}}}, {.global_batch = 1});
  bool shared = false;
  for (const PlanShape& config : list(space, 1)) {
    if (config.layout == ModuleLayout::kSharedEncoders) {
      shared = true;
      EXPECT_EQ(config.modules[1].degrees, (Degrees{1, 2}));
      EXPECT_EQ(lane_stages(config),
                (std::vector<std::vector<StageRef>>{{{0, 0}, {1, 0}}, {{2, 0}}}));
      EXPECT_EQ(lanes_of(config), 2);
      EXPECT_EQ(describe(config, model),
                "1 replica of vision 1 lane (TP 2) | audio 1 lane (CP 2) + llm 1 lane (TP 2)");
    }
  }
  EXPECT_TRUE(shared);
}

TEST(PlanSpace, AsksTheFilterBeforeItListsWhatDependsOnIt) {
  const ModelSpec model = make_model(1);
  const ClusterSpec cluster = make_cluster(1, 4);
  const PlanSpace space(model, cluster, {{{1, 1}}, {{1, 1}}}, {.global_batch = 1});
  int visits = 0;
  space.for_each(
      1,
      [](int module, int, int stages) { return module != 0 || stages == 2; },
      [&](const PlanShape& config) {
        ++visits;
        EXPECT_EQ(config.modules[0].stages, 2);
      });
  EXPECT_EQ(visits, 1);
}

TEST(PlanSpace, RefusesReplicasThatDoNotDivideTheBatch) {
  const ModelSpec model = make_model(1);
  const ClusterSpec cluster = make_cluster(2, 4);
  const auto make = [&](int batch, int replicas) {
    SpaceOptions options{.global_batch = batch};
    options.replicas = replicas;
    return PlanSpace(model, cluster, {{{1, 1}}, {{1, 1}}}, options).replica_counts();
  };
  EXPECT_EQ(make(12, 4), std::vector<int>{4});
  expect_words(oracle::error_of<InvalidInput>([&] { make(12, 5); }),
               {"5 replicas", "12 samples", "1, 2, 3, 4, 6"});
  expect_words(oracle::error_of<InvalidInput>([&] { make(12, 12); }), {"12 replicas", "8"});
  expect_words(oracle::error_of<InvalidInput>([&] { make(0, 0); }), {"0 samples"});
}

TEST(ClusterDegrees, KeepsTensorParallelismInsideANode) {
  Rng rng(3);
  oracle::PlanCase plan_case = oracle::make_plan_case(rng, 4);
  for (LayerProfile& layer : plan_case.profile.layers) {
    layer.tensor_parallel = 2;
  }
  plan_case.cluster.devices_per_node = 6;
  for (const std::vector<Degrees>& degrees :
       cluster_degrees(plan_case.model, plan_case.profile, plan_case.cluster)) {
    for (const Degrees& one : degrees) {
      EXPECT_EQ(one.tensor_parallel, 2);
    }
  }
  plan_case.cluster.devices_per_node = 7;
  expect_words(oracle::error_of<InvalidInput>(
                   [&] { cluster_degrees(plan_case.model, plan_case.profile, plan_case.cluster); }),
               {"7 devices a node", "TP 2"});
}

// Places groups one by one into nodes, trying every node.
bool placeable(std::vector<int> sizes, std::vector<int> free) {
  if (sizes.empty()) {
    return true;
  }
  const int size = sizes.back();
  sizes.pop_back();
  for (int& node : free) {
    if (node >= size) {
      node -= size;
      if (placeable(sizes, free)) {
        return true;
      }
      node += size;
    }
  }
  return false;
}

TEST(MeshFits, PlacesTensorGroupsWithinNodes) {
  Rng rng(5);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const int per_node = 1 + static_cast<int>(rng.below(6));
    const ClusterSpec cluster = make_cluster(1 + static_cast<int>(rng.below(3)), per_node);
    PlanShape config;
    std::vector<int> sizes;
    for (int module = 0; module < 2; ++module) {
      const int tensor = 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(per_node)));
      const int context = 1 + static_cast<int>(rng.below(2));
      const int stages = 1 + static_cast<int>(rng.below(3));
      config.modules.push_back({{tensor, context}, stages});
      sizes.insert(sizes.end(), static_cast<std::size_t>(context * stages), tensor);
    }
    const int devices = cluster.num_nodes * per_node;
    if (devices_per_replica(config) > devices) {
      continue;
    }
    const bool expected =
        placeable(sizes, std::vector<int>(static_cast<std::size_t>(cluster.num_nodes), per_node));
    const bool found = mesh_fits(config, cluster);
    EXPECT_LE(found, expected) << describe(config, make_model(1)) << " on " << per_node;
    const int a = config.modules[0].degrees.tensor_parallel;
    const int b = config.modules[1].degrees.tensor_parallel;
    if ((a % b == 0 || b % a == 0) && per_node % std::max(a, b) == 0) {
      EXPECT_EQ(found, expected);
    }
    refused += found ? 0 : 1;
  }
  EXPECT_GT(refused, 20);
}

// Groups that do not divide each other: what is left of nodes is used again.
TEST(MeshFits, KeepsWhatIsLeftOfNodes) {
  const auto fits = [](const ClusterSpec& cluster, const std::vector<std::pair<int, int>>& groups) {
    PlanShape config;
    for (const auto& [tensor, stages] : groups) {
      config.modules.push_back({{tensor, 1}, stages});
    }
    EXPECT_LE(devices_per_replica(config), cluster.num_nodes * cluster.devices_per_node);
    return mesh_fits(config, cluster);
  };
  // 4 + 1 and 3 + 2: the second node is still whole when the 4 is placed.
  EXPECT_TRUE(fits(make_cluster(2, 5), {{4, 1}, {3, 1}, {2, 1}}));
  EXPECT_FALSE(fits(make_cluster(2, 5), {{4, 2}, {2, 1}})) << "4 + 1 twice";
  // No more whole nodes than there are, of which one is taken.
  EXPECT_FALSE(fits(make_cluster(2, 5), {{4, 1}, {3, 2}}));
  EXPECT_TRUE(fits(make_cluster(3, 5), {{4, 1}, {3, 2}}));
  // 6 + 2 and 3 + 3 + 2: both leave 2.
  EXPECT_TRUE(fits(make_cluster(2, 8), {{6, 1}, {3, 2}, {2, 2}}));
}

TEST(ClusterProfile, TakesTheLinksThatAReplicaUses) {
  Profile profile;
  profile.link.bytes_per_second = 1;
  profile.reduce_bytes_per_second = 2;
  ClusterSpec cluster = make_cluster(2, 4);
  EXPECT_EQ(cluster_profile(profile, cluster, 1).link.bytes_per_second, 1);  // unknown links
  cluster.intra_node.bytes_per_second = 100;
  cluster.inter_node.bytes_per_second = 10;
  EXPECT_EQ(cluster_profile(profile, cluster, 1).link.bytes_per_second, 10);
  EXPECT_EQ(cluster_profile(profile, cluster, 2).link.bytes_per_second, 100);
  EXPECT_EQ(cluster_profile(profile, cluster, 2).reduce_bytes_per_second, 5);
  cluster.num_nodes = 1;
  EXPECT_EQ(cluster_profile(profile, cluster, 2).reduce_bytes_per_second, 50);
}

}  // namespace
}  // namespace entrain
