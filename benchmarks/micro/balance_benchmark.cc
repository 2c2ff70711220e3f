// Time of balance() alone: 4,096 samples of a manifest, 256 ranks × 4 microbatches, one core.
//
// `over_perfect` is the step over all work / ranks, `over_bound` over step_time_bound().
#include "entrain/core/balance/balance.h"

#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "entrain/core/base/at.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/sample_costs.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/index.h"

#include "tests/oracle/shards.h"

namespace entrain {
namespace {

// 16 samples a rank of the manifest, drawn with replacement, by the analytic costs of an A40 for
// Qwen2.5-VL's encoders and Llama-3 3B.
BalanceRequest request_of(const std::string& name, bool audio, int ranks) {
  const ModelSpec model =
      read_model(oracle::source_root() / "configs/models" /
                 (audio ? "qwen2.5-vl-audio-llama-3b.toml" : "qwen2.5-vl-llama-3b.toml"));
  const Index index = read_index(oracle::shared_folder() / "data/manifests" / (name + ".csv"));
  const int count = ranks * 16;
  std::vector<std::string> ids(at(count));
  const CostTable table =
      sample_costs(model,
                   analytic_profile(model, device_model("a40")),
                   ids,
                   batch_work(model, draw_with_replacement(index.samples, count, 7, 0)));
  BalanceRequest request;
  request.ranks = ranks;
  request.microbatches = 4;
  request.num_modules = table.num_modules();
  request.samples.resize(ids.size());
  for (int module = 0; module < table.num_modules(); ++module) {
    for (std::size_t row = 0; row < ids.size(); ++row) {
      for (const TableUnit& unit : table.units[at(module)][row]) {
        request.samples[row].work[at(module)] += unit.forward_ns + unit.backward_ns;
        request.samples[row].tokens += module + 1 == table.num_modules() ? unit.tokens : 0;
      }
    }
  }
  return request;
}

void balance_step(
    benchmark::State& state, const std::string& name, bool audio, Layout layout, bool padded) {
  if (oracle::shared_folder().empty()) {
    state.SkipWithError("no shared data; set ENTRAIN_SHARED to its folder");
    return;
  }
  BalanceRequest request = request_of(name, audio, 256);
  request.layout = layout;
  request.padded = padded;
  CellOf cells;
  for (auto _ : state) {
    cells = balance(request);
    benchmark::DoNotOptimize(cells.data());
  }
  if (!balance_violations(request, cells).empty()) {
    state.SkipWithError("the assignment breaks a rule");
    return;
  }
  const auto time = static_cast<double>(step_time(request, cells));
  state.counters["over_perfect"] = time / static_cast<double>(perfect_step_time(request));
  state.counters["over_bound"] = time / static_cast<double>(step_time_bound(request));
}

void register_all() {
  struct Manifest {
    const char* name;
    bool audio;
  };
  for (const Manifest& manifest : {Manifest{"coco_val2017_captions", false},
                                   Manifest{"mathvision_qa", false},
                                   Manifest{"openstax_chem_sections", false},
                                   Manifest{"librispeech_multiclip", true}}) {
    const auto add = [&](const char* layout_name, Layout layout, bool padded) {
      benchmark::RegisterBenchmark(
          (std::string("balance/") + manifest.name + "/" + layout_name).c_str(),
          [=](benchmark::State& state) {
            balance_step(state, manifest.name, manifest.audio, layout, padded);
          })
          ->Unit(benchmark::kMillisecond);
    };
    add("fsdp", Layout::kFsdp, false);
    add("ddp", Layout::kDdp, false);
    add("padded", Layout::kFsdp, true);
  }
}

const bool kRegistered = (register_all(), true);

}  // namespace
}  // namespace entrain
