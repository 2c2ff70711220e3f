#include "entrain/core/cost/runnable.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/cost/sharding.h"
#include "entrain/core/spec/video.h"

namespace entrain {
namespace {

bool is_runnable(const LayerProfile& layer) {
  return layer.context_parallel <= kMostContextParallel;
}

}  // namespace

bool engine_reads(const ModelSpec& model, const SampleSizes& sample) {
  return sample.videos.empty() ||
         std::all_of(model.encoders.begin(), model.encoders.end(), [](const EncoderSpec& encoder) {
           return encoder.modality != Modality::kVision || reads_videos(encoder);
         });
}

void check_runnable(const Plan& plan, const ModelSpec& model, const std::string& where) {
  for (std::size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (module.context_parallel > kMostContextParallel) {
      throw InvalidInput(fmt::format("{}: module '{}' has context_parallel {}; this engine runs {}",
                                     where,
                                     module.name,
                                     module.context_parallel,
                                     kMostContextParallel));
    }
    const std::string obstacle =
        sharding_obstacle(model, static_cast<int>(m), module.tensor_parallel);
    if (!obstacle.empty()) {
      throw InvalidInput(fmt::format("{}: module '{}' has tensor_parallel {}: {}",
                                     where,
                                     module.name,
                                     module.tensor_parallel,
                                     obstacle));
    }
  }
}

std::string keep_runnable(Profile& profile) {
  std::set<int> left_out;
  std::set<std::string> modules;
  for (const LayerProfile& layer : profile.layers) {
    modules.insert(layer.module);
    if (!is_runnable(layer)) {
      left_out.insert(layer.context_parallel);
    }
  }
  std::erase_if(profile.layers, [](const LayerProfile& layer) { return !is_runnable(layer); });
  for (const LayerProfile& layer : profile.layers) {
    modules.erase(layer.module);
  }
  if (!modules.empty()) {
    throw InvalidInput(
        fmt::format("the profile has costs of '{}' only at context parallelism {}; `entrain train` "
                    "runs {} (--for-study plans with more)",
                    *modules.begin(),
                    fmt::join(left_out, ", "),
                    kMostContextParallel));
  }
  return left_out.empty() ? "" : fmt::format("context parallelism {}", fmt::join(left_out, ", "));
}

}  // namespace entrain
