#include "entrain/engine/pipeline/overlapped_reduction.h"

#include <memory>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {

// Autograd hook, called on the backward's thread after adding to a parameter's gradient.
class OverlappedReduction::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(OverlappedReduction& owner, std::size_t parameter) : owner_(owner), parameter_(parameter) {}
  void operator()(const at::Tensor& /*parameter*/) override {
    owner_.added_to(owner_.parameters_[parameter_]);
  }

 private:
  OverlappedReduction& owner_;
  std::size_t parameter_;
};

OverlappedReduction::OverlappedReduction(const LaneStages& stages,
                                         const std::vector<char>& late,
                                         LaneGradients& gradients,
                                         Comm& comm,
                                         std::vector<int> ranks)
    : gradients_(gradients),
      comm_(comm),
      ranks_(std::move(ranks)),
      in_last_(stages.stage_begins().size(), 0) {
  const std::vector<NamedParameter>& all = stages.parameters();
  const std::vector<FlatBucket>& buckets = gradients.layout().buckets();
  std::size_t stage = 0;
  std::size_t bucket = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].tensor.requires_grad()) {
      continue;
    }
    while (stage + 1 < in_last_.size() && stages.stage_begins()[stage + 1] <= i) {
      ++stage;
    }
    while (bucket + 1 < buckets.size() && buckets[bucket + 1].first_parameter <= i) {
      ++bucket;
    }
    index_of_[all[i].tensor.unsafeGetTensorImpl()] = parameters_.size();
    parameters_.push_back({all[i].tensor, stage, bucket, late[i] != 0});
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor,
                                                   std::make_unique<Hook>(*this, i));
  }
}

OverlappedReduction::~OverlappedReduction() {
  for (const Parameter& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
  }
}

void OverlappedReduction::begin_step() {
  in_step_ = true;
  incomplete_.assign(gradients_.layout().buckets().size(), 0);
  for (Parameter& parameter : parameters_) {
    parameter.additions = 0;
    parameter.complete = false;
    ++incomplete_[parameter.bucket];
  }
}

void OverlappedReduction::begin_last(std::size_t stage) {
  in_last_[stage] = 1;
  for (Parameter& parameter : parameters_) {
    if (parameter.stage == stage) {
      parameter.additions = 1;
    }
  }
}

void OverlappedReduction::begin_last(std::size_t stage, const WeightGradients& waiting) {
  in_last_[stage] = 1;
  for (const at::Tensor& tensor : waiting.parameters()) {
    if (Parameter* parameter = find(tensor)) {
      ++parameter->additions;
    }
  }
  for (Parameter& parameter : parameters_) {
    if (parameter.stage == stage && parameter.additions == 0) {
      complete(parameter);
    }
  }
  send_complete();
}

void OverlappedReduction::added(const at::Tensor& tensor) {
  if (Parameter* parameter = find(tensor)) {
    added_to(*parameter);
  }
}

OverlappedReduction::Parameter* OverlappedReduction::find(const at::Tensor& parameter) {
  const auto found = index_of_.find(parameter.unsafeGetTensorImpl());
  return found == index_of_.end() ? nullptr : &parameters_[found->second];
}

void OverlappedReduction::added_to(Parameter& parameter) {
  if (!in_step_ || parameter.late) {
    return;
  }
  ENTRAIN_INVARIANT(!parameter.complete, "a gradient changed after it was sent");
  if (in_last_[parameter.stage] != 0 && --parameter.additions == 0) {
    complete(parameter);
    send_complete();
  }
}

void OverlappedReduction::end_last(std::size_t stage) {
  for (Parameter& parameter : parameters_) {
    if (parameter.stage == stage && !parameter.complete) {
      complete(parameter);
    }
  }
  in_last_[stage] = 0;
  send_complete();
}

void OverlappedReduction::complete(Parameter& parameter) {
  if (!parameter.late) {
    parameter.complete = true;
    --incomplete_[parameter.bucket];
  }
}

void OverlappedReduction::send_complete() {
  while (gradients_.buckets_to_send() > 0 && incomplete_[gradients_.buckets_to_send() - 1] == 0) {
    gradients_.send_bucket(comm_, ranks_);
  }
}

}  // namespace entrain::engine
