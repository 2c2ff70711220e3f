// Time of the search for a cluster's plan and its growth from 8 to 4,096 devices, at 8 samples of
// the global batch a device and the default budget of simulated steps.
//
// Checks its own answer: a plan that fits, no faster than its bound. `ratio` is simulated time over
// lower bound, `steps` the simulated steps, `checked` the further batches on which the plan's
// memory was checked (drawing them is part of the time), `configurations` those that were listed.
#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>

#include "entrain/core/base/random.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/planner/partition.h"
#include "entrain/core/planner/plan_search.h"

#include "tests/oracle/shards.h"

namespace entrain {
namespace {

// Images of 200 to 4,000 patches, a tenth of the samples without one, texts of 50 to 1,000 tokens.
std::vector<SampleWork> make_batch(const ModelSpec& model, int num_samples, std::uint64_t stream) {
  constexpr std::int64_t kMerge = 4;
  Rng rng(11, stream);
  std::vector<SampleWork> batch;
  for (int i = 0; i < num_samples; ++i) {
    SampleWork& work = batch.emplace_back();
    work.segments.resize(model.encoders.size());
    work.target_tokens = 20 + static_cast<std::int64_t>(rng.below(200));
    work.llm_tokens = 50 + work.target_tokens + static_cast<std::int64_t>(rng.below(750));
    for (std::vector<SegmentWork>& segments : work.segments) {
      if (rng.below(10) > 0) {
        const auto features = static_cast<std::int64_t>(50 + rng.below(950));
        const std::int64_t tokens = kMerge * features;
        segments.push_back({tokens, tokens * tokens, features});
        segments.back().window_pairs = 64 * tokens;
        work.llm_tokens += features;
      }
    }
    work.llm_attention_pairs = work.llm_tokens * work.llm_tokens / 2;
  }
  return batch;
}

void run_search(benchmark::State& state, const char* model_name) {
  constexpr int kBatches = 3;
  constexpr int kSamplesPerDevice = 8;
  const auto devices = static_cast<int>(state.range(0));
  const ModelSpec model =
      read_model(oracle::source_root() / "configs/models" / (std::string(model_name) + ".toml"));
  ClusterSpec cluster = read_cluster(oracle::source_root() / "configs/clusters/h100-64.toml");
  cluster.num_nodes = devices / cluster.devices_per_node;
  const Profile profile =
      analytic_profile(model, device_model("h100"), {{1, 2, 4, 8}, {1, 2, 4, 8}});
  PlanSearchRequest request;
  request.model = &model;
  request.profile = &profile;
  request.cluster = &cluster;
  request.state.parameter_dtype = profile.dtype;
  for (int batch = 0; batch < kBatches; ++batch) {
    request.batches.push_back(
        make_batch(model, kSamplesPerDevice * devices, static_cast<std::uint64_t>(batch)));
  }
  constexpr int kFurther = 100;  // as the command has by default
  request.further.first = kBatches;
  request.further.in_row = kFurther;
  request.further.may_stop = true;
  for (std::int64_t step = kBatches; step < kBatches + kFurther; ++step) {
    request.further.steps.push_back(step);
  }
  request.further.draw = [&](std::int64_t step) {
    return make_batch(model, kSamplesPerDevice * devices, static_cast<std::uint64_t>(step));
  };
  PlanSearchResult result;
  for (auto _ : state) {
    result = search_plans(request);
    benchmark::DoNotOptimize(result);
  }
  if (!result.fits() || result.best().mean_ns < result.lower_bound_ns) {
    state.SkipWithError("no plan, or one below its bound");
    return;
  }
  state.counters["ratio"] = result.best().plan.certificate.ratio;
  state.counters["steps"] = result.simulated_steps;
  state.counters["checked"] = result.further_batches;
  state.counters["configurations"] = static_cast<double>(result.configurations);
}

BENCHMARK_CAPTURE(run_search, one_encoder, "qwen2.5-vl-llama-3b")
    ->RangeMultiplier(4)
    ->Range(8, 2048)
    ->Arg(4096)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run_search, two_encoders, "qwen2.5-vl-audio-llama-3b")
    ->Arg(64)
    ->Arg(512)
    ->Arg(4096)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// Oobleck's speed case: 96 layers of mixed costs in 64 stages.
void run_partition(benchmark::State& state) {
  constexpr int kLayers = 96;
  constexpr int kStages = 64;
  std::vector<std::int64_t> layers;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(1'000'000 * (i % 13 + 1 + i % 7 + 1));
  }
  Partition result;
  for (auto _ : state) {
    result = partition_layers(layers, kStages);
    benchmark::DoNotOptimize(result);
  }
  if (result.stages.size() != kStages) {
    state.SkipWithError("no cut");
  }
}
BENCHMARK(run_partition)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace entrain
