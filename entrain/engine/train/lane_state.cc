#include "entrain/engine/train/lane_state.h"

#include <ATen/core/grad_mode.h>

#include "entrain/engine/checkpoint/manifest.h"
#include "entrain/engine/checkpoint/read.h"

namespace entrain::engine {

std::vector<NamedParameter> named_moments(const Executor& executor, const AdamW& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> named;
  for (std::size_t i = 0; i < kMomentSuffixes.size(); ++i) {
    const std::vector<NamedParameter> moments =
        executor.whole(optimizer.moments()[i], kMomentSuffixes[i]);
    named.insert(named.end(), moments.begin(), moments.end());
  }
  return named;
}

void restore(const ResumePoint& resume,
             std::int64_t updates,
             Executor& executor,
             AdamW& optimizer) {
  const at::NoGradGuard no_grad;
  const auto like = [](const std::vector<NamedParameter>& tensors) {
    std::vector<NamedParameter> result;
    for (const NamedParameter& tensor : tensors) {
      result.push_back({tensor.name, at::empty_like(tensor.tensor)});
    }
    return result;
  };
  const std::vector<NamedParameter> weights = like(executor.weights());
  std::vector<NamedParameter> tensors = weights;
  std::vector<std::vector<NamedParameter>> moments;
  for (std::size_t i = 0; i < kMomentSuffixes.size(); ++i) {
    moments.push_back(like(executor.whole(optimizer.moments()[i], kMomentSuffixes[i])));
    tensors.insert(tensors.end(), moments.back().begin(), moments.back().end());
  }
  load_tensors(resume.checkpoint, resume.manifest, tensors);
  executor.set_weights(weights);
  for (std::size_t i = 0; i < moments.size(); ++i) {
    executor.take(moments[i], optimizer.moments()[i]);
  }
  optimizer.set_updates(updates);
}

}  // namespace entrain::engine
