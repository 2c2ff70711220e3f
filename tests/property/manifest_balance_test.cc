// Objective::kBalance on global batches of real manifests: 512 samples, 4 replicas, 32 slots each.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/step/step.h"

#include "tests/oracle/manifests.h"

namespace entrain {
namespace {

using oracle::manifests;

struct Manifest {
  std::string name;
  Modality modality = Modality::kVision;
};
const std::vector<Manifest> kManifests = {
    {"coco_val2017_captions", Modality::kVision},
    {"opencqa_charts", Modality::kVision},
    {"mathvision_qa", Modality::kVision},
    {"openstax_chem_sections", Modality::kVision},
    {"librispeech_multiclip", Modality::kAudio},
    {"earnings22_turns", Modality::kAudio},
};

struct Instance {
  Plan plan;
  StepCosts costs;
};

Instance make_instance(const std::filesystem::path& folder, const Manifest& manifest) {
  const ModelSpec model = oracle::manifest_model(manifest.modality);
  const Index index = read_index(folder / (manifest.name + ".csv"));
  Instance result;
  result.plan = even_plan(model, {5, 3}, 4, 32);
  const Profile profile = analytic_profile(model, device_model("a40"));
  const std::vector<SampleWork> work =
      batch_work(model, draw_with_replacement(index.samples, 512, 7, 0));
  result.costs = step_costs(model, result.plan, profile, work);
  return result;
}

StepAssignment run(const Instance& instance, const std::string& policy, Objective objective) {
  AssignRequest request;
  request.plan = &instance.plan;
  request.costs = &instance.costs;
  request.objective = objective;
  const StepAssignment result = simulate_step(policy, request, {.balance = true}).assignment;
  for (const auto& [module, balance] : result.stats.modules) {
    std::printf("  %-14s %-8s cv %8.5f  floor %8.5f  max/mean %7.4f  step %.3f s  %8.1f ms\n",
                policy.c_str(),
                module.c_str(),
                balance.cv,
                balance.floor_cv,
                balance.max_over_mean,
                result.stats.makespan_s,
                result.stats.assign_ms);
  }
  return result;
}

TEST(ManifestBalance, ComesWithinAFewPercentOfTheFloor) {
  if (!std::filesystem::is_directory(manifests())) {
    GTEST_SKIP() << "no shared data; set ENTRAIN_SHARED to its folder";
  }
  for (const Manifest& manifest : kManifests) {
    std::printf("%s\n", manifest.name.c_str());
    const Instance instance = make_instance(manifests(), manifest);
    const StepAssignment ours = run(instance, "entrain", Objective::kBalance);
    for (const ReplicaAssignment& replica : ours.replicas) {
      EXPECT_EQ(replica.num_slots, 32) << manifest.name;
    }
    // The floor spreads everything but oversized units evenly. Whole units of which four fill a
    // slot, many of one size, and oversized units that have to wait for their own last segments
    // leave up to this much more.
    constexpr double kGrain = 0.025;
    for (const auto& [module, balance] : ours.stats.modules) {
      EXPECT_LE(balance.cv, std::max(1.05 * balance.floor_cv, kGrain))
          << manifest.name << ", " << module;
    }
  }
}

TEST(ManifestPolicies, AreValidOnRealBatches) {
  if (!std::filesystem::is_directory(manifests())) {
    GTEST_SKIP() << "no shared data; set ENTRAIN_SHARED to its folder";
  }
  for (const Manifest& manifest : kManifests) {
    std::printf("%s\n", manifest.name.c_str());
    const Instance instance = make_instance(manifests(), manifest);
    for (const std::string& policy : policy_names()) {
      if (policy != "entrain") {
        EXPECT_NO_THROW(run(instance, policy, Objective::kStepTime)) << manifest.name << policy;
      }
    }
  }
}

}  // namespace
}  // namespace entrain
