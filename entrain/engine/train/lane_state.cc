#include "entrain/engine/train/lane_state.h"

#include <ATen/core/grad_mode.h>

#include "entrain/engine/checkpoint/manifest.h"
#include "entrain/engine/checkpoint/read.h"

namespace entrain::engine {

std::vector<NamedParameter> named_moments(const Executor& executor, const AdamW& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> named;
  for (std::size_t i = 0; i < kMomentSuffixes.size(); ++i) {
    const at::Tensor whole = executor.whole(optimizer.moments()[i]);
    const std::vector<NamedParameter> views = executor.layout().views(whole, kMomentSuffixes[i]);
    named.insert(named.end(), views.begin(), views.end());
  }
  return named;
}

void restore(const ResumePoint& resume,
             std::int64_t updates,
             Executor& executor,
             AdamW& optimizer) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> weights;
  for (const NamedParameter& weight : executor.weights()) {
    weights.push_back({weight.name, at::empty_like(weight.tensor)});
  }
  std::vector<NamedParameter> tensors = weights;
  std::vector<at::Tensor> moments;
  for (std::size_t i = 0; i < kMomentSuffixes.size(); ++i) {
    moments.push_back(at::zeros({executor.layout().size()}, optimizer.moments()[i].options()));
    const std::vector<NamedParameter> views =
        executor.layout().views(moments.back(), kMomentSuffixes[i]);
    tensors.insert(tensors.end(), views.begin(), views.end());
  }
  load_tensors(resume.checkpoint, resume.manifest, tensors);
  executor.set_weights(weights);
  for (std::size_t i = 0; i < moments.size(); ++i) {
    executor.take_shard(moments[i], optimizer.moments()[i]);
  }
  optimizer.set_updates(updates);
}

}  // namespace entrain::engine
