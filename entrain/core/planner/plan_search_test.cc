// The proof that nothing better is lost is tests/property/plan_search_test.cc.
#include "entrain/core/planner/plan_search.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_scorer.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/plan_cases.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Four devices, three batches, no memory limit, two modules.
oracle::PlanCase make_search_case() {
  Rng rng(43);
  oracle::PlanCase result = oracle::make_plan_case(rng, 8);
  while (result.request.batches.size() != 3 || result.cluster.memory_bytes != 0 ||
         result.cluster.num_nodes * result.cluster.devices_per_node < 6 ||
         result.model.num_modules() != 2) {
    result = oracle::make_plan_case(rng, 8);
  }
  return result;
}

std::size_t at_module(int module) {
  return static_cast<std::size_t>(module);
}

// (replicas, module, degrees, stages) by trying all numbers.
std::int64_t count_shapes(const oracle::PlanCase& plan_case,
                          const std::function<void(int, int, int, int)>& visit) {
  const PlanSearchRequest request = plan_case.request_of();
  const PlanScorer scorer(request);
  const int devices = plan_case.cluster.num_nodes * plan_case.cluster.devices_per_node;
  const auto num_samples = static_cast<int>(plan_case.request.batches.front().size());
  std::int64_t count = 0;
  for (int replicas = 1; replicas <= devices; ++replicas) {
    if (num_samples % replicas != 0) {
      continue;
    }
    for (int module = 0; module < plan_case.model.num_modules(); ++module) {
      const std::vector<Degrees>& degrees = scorer.space().degrees()[at_module(module)];
      for (std::size_t index = 0; index < degrees.size(); ++index) {
        for (int stages = 1; stages <= num_layers(plan_case.model, module); ++stages) {
          if (replicas * stages * degrees[index].devices() <= devices) {
            ++count;
            visit(replicas, module, static_cast<int>(index), stages);
          }
        }
      }
    }
  }
  return count;
}

// Whether the search has one budget.
bool has_one_part(const PlanSearchRequest& request) {
  return PlanScorer(request).space().feature_sets().size() == 1;
}

TEST(SearchPlans, RanksPlansAndCertifiesTheBest) {
  Rng rng(37);
  int with_regret = 0;
  for (int i = 0; i < oracle::case_count(100); ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    if (plan_case.cluster.memory_bytes != 0) {
      continue;
    }
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    PlanSearchRequest request = plan_case.request_of();
    request.runners_up = 1'000'000;  // so that all are simulated
    PlanScorer scorer(request);
    std::vector<std::int64_t> totals;
    std::vector<std::int64_t> best_of_each(request.batches.size(), kNoStop);
    std::int64_t least_bound = kNoStop;
    for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      const PlanCandidate candidate = scorer.score(config, kNoStop);
      ASSERT_EQ(candidate.state, CandidateState::kSimulated);
      totals.push_back(total_ns(candidate));
      least_bound = std::min(least_bound, scorer.bounds().bound(config).ns);
      for (std::size_t batch = 0; batch < best_of_each.size(); ++batch) {
        best_of_each[batch] = std::min(best_of_each[batch], candidate.steps[batch]);
      }
    }
    std::sort(totals.begin(), totals.end());
    const PlanSearchResult result = search_plans(request);
    EXPECT_TRUE(result.complete);
    EXPECT_EQ(result.configurations, std::ssize(totals));
    ASSERT_EQ(result.plans.size(), totals.size());
    for (std::size_t rank = 0; rank < totals.size(); ++rank) {
      EXPECT_EQ(total_ns(result.plans[rank]), totals[rank]) << "rank " << rank;
    }
    EXPECT_EQ(result.lower_bound_ns, least_bound / std::ssize(request.batches));
    const auto each =
        static_cast<double>(std::accumulate(best_of_each.begin(), best_of_each.end(), 0LL));
    EXPECT_DOUBLE_EQ(result.dynamic_regret, static_cast<double>(totals.front()) / each - 1);
    with_regret += result.dynamic_regret > 0 ? 1 : 0;
    const PlanCertificate& certificate = result.best().plan.certificate;
    EXPECT_DOUBLE_EQ(certificate.simulated_s, static_cast<double>(result.best().mean_ns) * 1e-9);
    EXPECT_DOUBLE_EQ(certificate.lower_bound_s, static_cast<double>(result.lower_bound_ns) * 1e-9);
    EXPECT_DOUBLE_EQ(certificate.ratio, certificate.simulated_s / certificate.lower_bound_s);
    EXPECT_EQ(certificate.dynamic_regret, result.dynamic_regret);
  }
  EXPECT_GT(with_regret, oracle::met_count(3));
}

// One plan is simulated: every other whose bound is below its time is left.
TEST(SearchPlans, SaysWhatABudgetHasLeft) {
  Rng rng(41);
  std::int64_t all_left = 0;
  for (int i = 0; i < oracle::case_count(400); ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    if (plan_case.cluster.memory_bytes != 0) {
      continue;
    }
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    PlanSearchRequest request = plan_case.request_of();
    request.runners_up = 0;
    if (!has_one_part(request)) {
      continue;
    }
    request.most_simulations = 1;
    const PlanSearchResult little = search_plans(request);
    ASSERT_EQ(little.plans.size(), 1U);
    EXPECT_EQ(little.simulated_steps, std::ssize(request.batches));
    const PlanScorer scorer(request);
    std::int64_t left = 0;
    std::int64_t least = kNoStop;
    for (const PlanShape& config : oracle::all_configs(plan_case, scorer.space().degrees())) {
      const std::int64_t bound = scorer.bounds().bound(config).ns;
      if (config != little.best().config && bound < total_ns(little.best())) {
        ++left;
        least = std::min(least, bound);
      }
    }
    EXPECT_EQ(little.left, left);
    EXPECT_EQ(little.complete, left == 0);
    EXPECT_EQ(little.left_bound_ns, left == 0 ? 0 : least / std::ssize(request.batches));
    all_left += left;
  }
  EXPECT_GT(all_left, oracle::met_count(200));
}

// Of every configuration that memory allows, rising.
std::vector<std::int64_t> bounds_of_all(const PlanSearchRequest& request) {
  const PlanScorer scorer(request);
  std::vector<std::int64_t> result;
  for (const int replicas : scorer.space().replica_counts()) {
    scorer.space().for_each(replicas, nullptr, [&](const PlanShape& config) {
      const PlanBound bound = scorer.bounds().bound(config);
      if (bound.cause != BoundCause::kMemory) {
        result.push_back(bound.ns);
      }
    });
  }
  std::sort(result.begin(), result.end());
  return result;
}

// Holding few configurations at a time loses none unsaid: where the best one was not held, the
// result does not claim to be complete, and what was not held cannot be faster than it says.
TEST(SearchPlans, SaysWhatItCouldNotHold) {
  Rng rng(47);
  int lost = 0;
  int kept = 0;
  for (int i = 0; i < oracle::case_count(200); ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 6);
    PlanSearchRequest request = plan_case.request_of();
    if (!has_one_part(request)) {
      continue;
    }
    request.runners_up = 0;
    const PlanSearchResult whole = search_plans(request);
    request.most_candidates = 1 + i % 3;
    const PlanSearchResult held = search_plans(request);
    if (!held.fits()) {
      continue;
    }
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    EXPECT_EQ(held.lower_bound_ns, whole.lower_bound_ns);
    ASSERT_TRUE(whole.complete);
    const std::vector<std::int64_t> bounds = bounds_of_all(request);
    const auto held_most = static_cast<std::size_t>(request.most_candidates);
    if (bounds.size() > held_most && bounds[held_most] < total_ns(held.best())) {
      EXPECT_FALSE(held.complete);
      EXPECT_LE(held.left_bound_ns, bounds[held_most] / std::ssize(request.batches));
    }
    if (held.best().mean_ns > whole.best().mean_ns) {
      ++lost;
      EXPECT_FALSE(held.complete);
      EXPECT_GT(held.left, 0);
      EXPECT_LE(held.left_bound_ns, whole.best().mean_ns);
    } else {
      kept += held.complete ? 1 : 0;
    }
  }
  EXPECT_GT(lost, oracle::met_count(10));
  EXPECT_GT(kept, oracle::met_count(10));
}

// What is far behind the best plan is set aside, and judged in the end where the budget allows.
TEST(SearchPlans, SetsAsideWhatIsFarBehind) {
  Rng rng(53);
  int set_aside = 0;
  int saved = 0;  // simulated steps
  for (int i = 0; i < oracle::case_count(100); ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult whole = search_plans(request);
    EXPECT_TRUE(whole.set_aside.empty());
    request.most_simulations = 8;
    const PlanSearchResult little = search_plans(request);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    EXPECT_LE(little.set_aside.size(), static_cast<std::size_t>(little.left));
    for (const PlanCandidate& candidate : little.set_aside) {
      ++set_aside;
      saved += static_cast<int>(request.batches.size() - candidate.steps.size());
      EXPECT_FALSE(little.complete);
      EXPECT_EQ(candidate.state, CandidateState::kSetAside);
      ASSERT_LT(candidate.steps.size(), request.batches.size());
      EXPECT_GE(candidate.mean_ns, candidate.bound_ns);
      EXPECT_LE(little.left_bound_ns, candidate.mean_ns);
    }
  }
  EXPECT_GT(set_aside, oracle::met_count(20));
  EXPECT_GE(saved, set_aside);
}

TEST(SearchPlans, GivesEqualResultsForEqualRequests) {
  const oracle::PlanCase plan_case = make_search_case();
  int calls = 0;
  PlanSearchRequest request = plan_case.request_of();
  const PlanSearchResult first = search_plans(request);
  request.progress = [&calls](int) { ++calls; };
  const PlanSearchResult second = search_plans(request);
  EXPECT_EQ(calls, second.simulated_steps);
  ASSERT_EQ(first.plans.size(), second.plans.size());
  for (std::size_t i = 0; i < first.plans.size(); ++i) {
    EXPECT_EQ(first.plans[i].plan, second.plans[i].plan);
  }
}

// Clusters that fit a plan with recomputation alone; the search says so, and what it costs.
TEST(SearchPlans, RecomputesWhereNothingFitsWithout) {
  Rng rng(71);
  int with = 0;
  int full = 0;
  for (int i = 0; i < oracle::case_count(200); ++i) {
    const oracle::PlanCase plan_case = oracle::make_full_case(rng, 2);
    PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult any = search_plans(request);
    request.recompute = RecomputeRule::kNever;
    const PlanSearchResult never = search_plans(request);
    request.recompute = RecomputeRule::kFull;
    const PlanSearchResult all = search_plans(request);
    EXPECT_TRUE(any.fits() || !never.fits()) << oracle::describe(plan_case);
    EXPECT_EQ(never.reason.find("recomputed"), std::string::npos) << never.reason;
    for (const PlanCandidate& candidate : all.plans) {
      EXPECT_TRUE(recomputes(candidate.plan));
    }
    full += all.fits() ? 1 : 0;
    if (any.fits() && !never.fits()) {
      ++with;
      EXPECT_LE(any.lower_bound_ns, any.best().mean_ns);
      EXPECT_EQ(any.best().lane_recompute_ns.empty(), !recomputes(any.best().plan));
    }
  }
  EXPECT_GT(with, oracle::met_count(10));
  EXPECT_GT(full, oracle::met_count(10));
}

// What a bound has cut, and what is left: each shape and configuration is counted once.
TEST(SearchPlans, CountsWhatEachBoundHasCut) {
  struct Cut {
    std::int64_t count = 0;
    std::int64_t nearest_ns = kNoStop;
  };
  Rng rng(67);
  std::set<BoundCause> causes;
  for (int i = 0; i < 150; ++i) {
    const oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << oracle::describe(plan_case));
    const PlanSearchRequest request = plan_case.request_of();
    const PlanSearchResult result = search_plans(request);
    ASSERT_TRUE(result.complete);
    const auto last = static_cast<std::size_t>(request.runners_up);
    const std::int64_t to_beat =
        result.plans.size() > last ? total_ns(result.plans[last]) : kNoStop;
    const PlanScorer scorer(request);
    std::map<std::pair<BoundCause, int>, Cut> expected;
    const auto cuts = [&](const PlanBound& bound, int module) {
      if (bound.cause != BoundCause::kMemory && bound.ns < to_beat) {
        return false;
      }
      Cut& cut = expected[{bound.cause, module}];
      ++cut.count;
      cut.nearest_ns = std::min(cut.nearest_ns, bound.ns / std::ssize(request.batches));
      return true;
    };
    std::set<std::tuple<int, int, int, int>> cut_shapes;
    const std::int64_t shapes =
        count_shapes(plan_case, [&](int replicas, int module, int index, int stages) {
          if (cuts(scorer.bounds().module_bound(replicas, module, index, stages), module)) {
            cut_shapes.emplace(replicas, module, index, stages);
          }
        });
    std::int64_t configurations = 0;
    const std::vector<std::vector<Degrees>>& degrees = scorer.space().degrees();
    for (const PlanShape& config : oracle::all_configs(plan_case, degrees)) {
      bool cut_alone = false;
      for (int module = 0; module < plan_case.model.num_modules(); ++module) {
        const ModuleShape& shape = config.modules[at_module(module)];
        const std::vector<Degrees>& of_module = degrees[at_module(module)];
        const auto index =
            std::find(of_module.begin(), of_module.end(), shape.degrees) - of_module.begin();
        cut_alone =
            cut_alone ||
            cut_shapes.contains({config.replicas, module, static_cast<int>(index), shape.stages});
      }
      if (cut_alone) {
        continue;
      }
      ++configurations;
      if (!cuts(scorer.bounds().bound(config), -1)) {
        std::ptrdiff_t judged = 0;
        for (const auto* list : {&result.plans, &result.stopped, &result.no_fit}) {
          judged += std::count_if(list->begin(), list->end(), [&](const PlanCandidate& candidate) {
            return candidate.config == config;
          });
        }
        EXPECT_EQ(judged, 1) << describe(config, plan_case.model);
      }
    }
    EXPECT_EQ(result.shapes, shapes);
    EXPECT_EQ(result.configurations, configurations);
    EXPECT_EQ(result.cuts.size(), expected.size());
    for (const CutSummary& summary : result.cuts) {
      const Cut& cut = expected[{summary.cause, summary.module}];
      EXPECT_EQ(summary.count, cut.count);
      if (summary.cause != BoundCause::kMemory) {
        EXPECT_EQ(summary.nearest_ns, cut.nearest_ns);
        EXPECT_FALSE(summary.nearest.empty());
      }
      causes.insert(summary.cause);
    }
  }
  EXPECT_EQ(causes.size(), 4U);
}

// Gives every sample so many segments, all alike.
void set_segments(std::size_t count, oracle::PlanCase& plan_case) {
  for (std::vector<SampleWork>& batch : plan_case.request.batches) {
    for (SampleWork& sample : batch) {
      for (std::vector<SegmentWork>& segments : sample.segments) {
        segments.assign(count, {.tokens = 1, .attention_pairs = 1, .llm_tokens = 1});
      }
    }
  }
}

int walk_budget(int patience) {
  return default_budget(patience) * kWalkPercent / 100;
}

// Patience multiplies what a search may spend: what stops after the default budget goes on, and a
// plan that it finds is no slower. Near a plan that has just become the best it goes on a little.
TEST(SearchPlans, SpendsMoreWherePatient) {
  Rng rng(61);
  int went_on = 0;
  for (int i = 0; i < 3000 && went_on < 3; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    PlanSearchRequest request = plan_case.request_of();
    request.most_simulations = -1;
    if (!has_one_part(request)) {
      continue;
    }
    const PlanSearchResult hasty = search_plans(request);
    const auto batches = static_cast<int>(request.batches.size());
    PlanSearchRequest plain = request;
    plain.recompute = RecomputeRule::kNever;
    EXPECT_LE(search_plans(plain).simulated_steps, walk_budget(1) + batches);
    // The last configuration may be tried without recomputation and at four levels of it.
    EXPECT_LE(hasty.simulated_steps, walk_budget(1) + 5 * batches);
    if (hasty.complete || !hasty.fits() || hasty.simulated_steps < default_budget(1)) {
      continue;
    }
    request.patience = 3;
    const PlanSearchResult patient = search_plans(request);
    EXPECT_GT(patient.simulated_steps, hasty.simulated_steps);
    EXPECT_LE(patient.simulated_steps, walk_budget(3) + 5 * batches);
    EXPECT_LE(patient.best().mean_ns, hasty.best().mean_ns);
    ++went_on;
  }
  EXPECT_EQ(went_on, 3);
}

// Near a plan that has just become the best a search without a number goes on where one of the same
// budget ends, and what it finds is no slower.
TEST(SearchPlans, WalksOnFromAPlanThatHasJustBecomeTheBest) {
  constexpr int kWanted = oracle::kSanitized ? 1 : 2;
  Rng rng(67);
  int walked_on = 0;
  for (int i = 0; i < 300 && walked_on < kWanted; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    if (plan_case.model.encoders.size() != 2) {
      continue;
    }
    plan_case.cluster.devices_per_node = 24;
    plan_case.cluster.num_nodes = 1;
    plan_case.model.llm.num_layers = 12;
    for (EncoderSpec& encoder : plan_case.model.encoders) {
      encoder.num_layers = 12;
    }
    PlanSearchRequest request = plan_case.request_of();
    request.recompute = RecomputeRule::kNever;
    request.most_simulations = -1;
    const PlanSearchResult walking = search_plans(request);
    request.most_simulations = default_budget(1);
    const PlanSearchResult standing = search_plans(request);
    if (!walking.complete && walking.simulated_steps > standing.simulated_steps) {
      EXPECT_LE(walking.best().mean_ns, standing.best().mean_ns);
      ++walked_on;
    }
  }
  EXPECT_EQ(walked_on, kWanted);
}

// Without a number of its own a search stops after kMostSimulations, or kLeastSimulations of long
// steps.
TEST(SearchPlans, SpendsLessWhereStepsTakeLong) {
  Rng rng(59);
  int with_long_steps = 0;
  for (int i = 0; i < 3000 && with_long_steps < 2; ++i) {
    oracle::PlanCase plan_case = oracle::make_plan_case(rng, 8);
    const auto batches = static_cast<int>(plan_case.request.batches.size());
    if (plan_case.cluster.memory_bytes != 0 || plan_case.model.num_modules() != 2 ||
        plan_case.request.batches.front().size() < 6) {
      continue;
    }
    set_segments(20, plan_case);
    const int all = search_plans(plan_case.request_of()).simulated_steps;
    if (all < kLeastSimulations + batches || all >= kMostSimulations) {
      continue;
    }
    PlanSearchRequest request = plan_case.request_of();
    request.most_simulations = -1;
    EXPECT_EQ(search_plans(request).simulated_steps, all);
    // As much work as before, in three hundred times the units.
    set_segments(6'000, plan_case);
    for (LayerProfile& layer : plan_case.profile.layers) {
      if (layer.module != "llm") {
        for (CostCurve* curve : {&layer.forward, &layer.backward_input, &layer.backward_weight}) {
          curve->per_pair_ns /= 300;
          curve->per_token_ns /= 300;
        }
      }
    }
    request = plan_case.request_of();
    request.most_simulations = -1;
    const PlanSearchResult result = search_plans(request);
    with_long_steps += result.complete ? 0 : 1;
    const auto parts = std::ssize(PlanScorer(request).space().feature_sets());
    EXPECT_LT(result.simulated_steps, parts * (kLeastSimulations + batches));
  }
  EXPECT_EQ(with_long_steps, 2);
}

}  // namespace
}  // namespace entrain
