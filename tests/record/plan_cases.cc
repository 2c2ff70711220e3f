// The search for a cluster's plan.
#include "tests/oracle/plan_cases.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/planner/plan_search.h"

#include "tests/oracle/shards.h"
#include "tests/record/fields.h"
#include "tests/record/manifest_batches.h"
#include "tests/record/record.h"

namespace entrain::record {
namespace {

constexpr std::uint64_t kSeed = 31;

std::string fields_of_search(const PlanSearchRequest& request) {
  const PlanSearchResult result = search_plans(request);
  const std::string counts = concat("configurations=",
                                    result.configurations,
                                    " simulated=",
                                    result.simulated_steps,
                                    " complete=",
                                    result.complete,
                                    " bound_ns=",
                                    result.lower_bound_ns);
  if (!result.fits()) {
    return "plan=none " + counts;
  }
  std::string others;
  for (const PlanCandidate& candidate : result.plans) {
    others += concat(digest(candidate.plan), " ", candidate.mean_ns, "\n");
  }
  return concat("plan=",
                digest(result.best().plan).substr(0, 12),
                " mean_ns=",
                result.best().mean_ns,
                " others=",
                short_digest(others),
                " ",
                counts);
}

// A batch of one manifest on a cluster of configs/, two further batches for memory.
std::string run_cluster(const Manifest& manifest,
                        const std::string& cluster_name,
                        const std::string& policy,
                        bool sharded,
                        SharedLanes sharing = SharedLanes::kNever,
                        int most_simulations = 12) {
  const ClusterSpec cluster =
      read_cluster(oracle::source_root() / "configs/clusters" / (cluster_name + ".toml"));
  const Profile profile =
      analytic_profile(manifest.model, device_model(cluster.device), {{1, 2, 4, 8}, {1, 2}});
  PlanSearchRequest request;
  request.model = &manifest.model;
  request.profile = &profile;
  request.cluster = &cluster;
  request.policy = policy;
  request.state.parameter_dtype = profile.dtype;
  request.state.shard_optimizer = sharded;
  request.batches = {batch_work(manifest.model, manifest.samples)};
  request.most_simulations = most_simulations;
  request.score_evaluations = 20;
  request.space.shared_lanes = sharing;
  return fields_of_search(request);
}

}  // namespace

std::vector<Case> tiny_plan_cases() {
  std::vector<Case> cases;
  for (std::uint64_t i = 0; i < 10; ++i) {
    cases.push_back({concat("plan/tiny/", i), [i] {
                       Rng rng(kSeed, i);
                       return fields_of_search(oracle::make_plan_case(rng, 8).request_of());
                     }});
    cases.push_back({concat("plan/full/", i), [i] {
                       Rng rng(kSeed + 1, i);
                       return fields_of_search(oracle::make_full_case(rng, 6).request_of());
                     }});
  }
  return cases;
}

std::vector<Case> manifest_plan_cases() {
  constexpr int kSamples = 64;
  std::vector<Case> cases;
  for (const Manifest& drawn : draw_manifests(kSamples)) {
    const auto manifest = std::make_shared<const Manifest>(drawn);
    cases.push_back({concat("manifest-plan/", manifest->name, "/a40-16/entrain"),
                     [=] { return run_cluster(*manifest, "a40-16", "entrain", false); }});
    cases.push_back({concat("manifest-plan/", manifest->name, "/h100-64/lpt-2d"),
                     [=] { return run_cluster(*manifest, "h100-64", "lpt-2d", true); }});
    cases.push_back({concat("manifest-plan/", manifest->name, "/a40-16/entrain/shared"), [=] {
                       return run_cluster(*manifest, "a40-16", "entrain", false, SharedLanes::kToo);
                     }});
  }
  // Where most configurations are not guessed, in the default budget.
  for (const Manifest& drawn : draw_manifests(2'048)) {
    if (drawn.name == "charts+speech" || drawn.name == "opencqa_charts") {
      const auto manifest = std::make_shared<const Manifest>(drawn);
      cases.push_back({concat("manifest-plan/", manifest->name, "/h100-512/entrain/default"), [=] {
                         return run_cluster(
                             *manifest, "h100-512", "entrain", true, SharedLanes::kToo, -1);
                       }});
    }
  }
  return cases;
}

}  // namespace entrain::record
