// Time of the assigner: 512 samples, 4 replicas, 8 lanes, as the evaluation protocol has it.
//
// Every benchmark checks its own answer by simulate_step(); `ratio` is the simulated step
// time over the lower bound.
#include "entrain/core/assigner/assigner.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/random.h"
#include "entrain/core/step/step.h"

#include "benchmarks/micro/manifest_batch.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

// Heavy-tailed sizes: most samples small, one in a hundred or so fifty times as large; a fifth has
// no image, a tenth has several. Five encoder and three LLM lanes of equal work.
PlannedBatch heavy_tailed(int num_samples, int replicas) {
  constexpr int kStages[] = {5, 3};
  Rng rng(17);
  PlannedBatch result;
  result.plan.replicas = replicas;
  result.plan.num_slots = 32;
  result.costs.num_samples = num_samples;
  result.costs.modules.resize(2);
  std::vector<std::vector<std::int64_t>> sizes(2);
  const auto draw = [&rng] {
    const double uniform = 1 - rng.uniform();
    return static_cast<std::int64_t>(100'000 / (0.02 + uniform));
  };
  for (ModuleCosts& module : result.costs.modules) {
    module.first_unit.push_back(0);
  }
  for (int sample = 0; sample < num_samples; ++sample) {
    const std::uint64_t kind = rng.below(10);
    const std::uint64_t images = kind < 2 ? 0 : kind == 2 ? 2 + rng.below(8) : 1;
    for (std::uint64_t i = 0; i < images; ++i) {
      sizes[0].push_back(draw());
    }
    sizes[1].push_back(draw());
    for (std::size_t m = 0; m < 2; ++m) {
      result.costs.modules[m].first_unit.push_back(static_cast<int>(sizes[m].size()));
    }
  }
  for (std::size_t m = 0; m < 2; ++m) {
    ModulePlan& part = result.plan.modules.emplace_back();
    part.name = m == 0 ? "vision" : "llm";
    for (int s = 0; s < kStages[m]; ++s) {
      part.stages.push_back({s, s + 1});
      StageCosts& stage = result.costs.modules[m].stages.emplace_back();
      stage.trainable = true;
      stage.launch = {nanoseconds{20'000}, nanoseconds{20'000}, nanoseconds{20'000}};
      for (const std::int64_t size : sizes[m]) {
        stage.units.own().push_back(
            {{nanoseconds{size}, nanoseconds{size}, nanoseconds{size}}, size, 1});
      }
    }
  }
  result.plan.lanes = default_lanes(result.plan.modules);
  return result;
}

// Proves the assignment; its step time over the bound.
double ratio_of(const StepAssignment& assignment, const AssignRequest& request) {
  const SimulatedStep step =
      simulate_step(assignment, *request.plan, *request.costs, {.bound = true});
  return 1 + step.assignment.stats.gap;
}

void run_policy(benchmark::State& state, const char* policy, int evaluations) {
  PlannedBatch instance = heavy_tailed(512, 4);
  instance.plan.limits.evaluations = evaluations;
  const AssignRequest request = instance.request();
  StepAssignment result;
  for (auto _ : state) {
    result = assign(policy, request);
    benchmark::DoNotOptimize(result);
  }
  state.counters["ratio"] = ratio_of(result, request);
}

BENCHMARK_CAPTURE(run_policy, sequential, "sequential", 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_policy, lpt_2d, "lpt-2d", 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_policy, entrain_first, "entrain", 0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_policy, entrain, "entrain", 1000)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_policy, entrain_4000, "entrain", 4000)->Unit(benchmark::kMillisecond);

void run_manifest(benchmark::State& state, const char* name) {
  if (oracle::shared_folder().empty()) {
    state.SkipWithError("no shared data; set ENTRAIN_SHARED to its folder");
    return;
  }
  const PlannedBatch batch = manifest_batch(name);
  const AssignRequest request = batch.request();
  StepAssignment result;
  for (auto _ : state) {
    result = assign("entrain", request);
    benchmark::DoNotOptimize(result);
  }
  const auto step_ns = [&](const StepAssignment& assignment) {
    const SimulatedStep step = simulate_step(assignment, batch.plan, batch.costs);
    return static_cast<double>(step.timeline.makespan.count());
  };
  const auto over_ours = [&](const char* policy) {
    return step_ns(assign(policy, request)) / step_ns(result);
  };
  state.counters["ratio"] = ratio_of(result, request);
  state.counters["lpt_2d"] = over_ours("lpt-2d");
  state.counters["sequential"] = over_ours("sequential");
  state.counters["random"] = over_ours("random");
}

BENCHMARK_CAPTURE(run_manifest, opencqa, "opencqa_charts")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_manifest, mathvision, "mathvision_qa")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_manifest, chem_sections, "openstax_chem_sections")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_manifest, coco, "coco_val2017_captions")->Unit(benchmark::kMillisecond);

// Growth with the batch: 128 samples a replica, under a schedule that is found.
void run_scale(benchmark::State& state) {
  const auto replicas = static_cast<int>(state.range(0));
  PlannedBatch instance = heavy_tailed(128 * replicas, replicas);
  instance.plan.schedule = "entrain";
  instance.plan.limits.evaluations = static_cast<int>(state.range(1));
  const AssignRequest request = instance.request();
  double milliseconds = 0;
  StepAssignment result;
  for (auto _ : state) {
    result = assign("entrain", request);
    milliseconds += result.stats.assign_ms;
  }
  state.counters["assign_ms"] = milliseconds / static_cast<double>(state.iterations());
  state.counters["ratio"] = ratio_of(result, request);
}
BENCHMARK(run_scale)
    ->ArgNames({"replicas", "evaluations"})
    ->ArgsProduct({{4, 16, 64, 128}, {0, 1000}})
    ->Args({4, 200})
    ->Args({4, 4000})
    ->Args({4, 16000})
    ->Args({4, 100000})
    ->Unit(benchmark::kMillisecond);

void bound(benchmark::State& state) {
  const PlannedBatch instance = heavy_tailed(512, 4);
  nanoseconds result{0};
  for (auto _ : state) {
    result = step_lower_bound(instance.plan, instance.costs, "1f1b");
    benchmark::DoNotOptimize(result);
  }
  if (result <= nanoseconds{0}) {
    state.SkipWithError("the bound is not positive");
  }
}
BENCHMARK(bound)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace entrain
