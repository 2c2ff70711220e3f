#include "entrain/engine/pipeline/tied_table.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

namespace entrain::engine {

TiedTable::TiedTable(const ModelSpec& model,
                     const Plan& plan,
                     const RankPlace& place,
                     const LaneStages& stages,
                     at::ScalarType precision) {
  const int llm = model.llm_module();
  const int last_stage = static_cast<int>(std::ssize(plan.modules.back().stages)) - 1;
  const int first = plan.lane_of(llm, 0);
  const int last = plan.lane_of(llm, last_stage);
  if (!model.llm.tie_word_embeddings || first == last ||
      (place.lane != first && place.lane != last)) {
    return;
  }
  copy_ = place.lane == last;
  table_ = stages.llm(copy_ ? last_stage : 0).table();
  if (copy_) {
    table_.set_data(table_.detach().to(precision));
    if (table_.requires_grad()) {
      table_.set_grad_dtype(at::promoteTypes(precision, at::kFloat));
    }
  }
  const RankPlaces places(plan);
  const auto rank_on = [&](int lane) {
    return places.rank_of({place.replica, lane, place.tensor_rank});
  };
  owner_ = rank_on(first);
  ranks_ = {rank_on(std::min(first, last)), rank_on(std::max(first, last))};
}

void TiedTable::share(Comm& comm) {
  if (table_.defined()) {
    at::Tensor values = table_.detach();
    comm.broadcast(values, owner_, ranks_);
  }
}

void TiedTable::clear_gradient() {
  if (copy_) {
    table_.mutable_grad() = at::Tensor();
  }
}

void TiedTable::scale_gradient(double factor) {
  if (copy_ && table_.grad().defined()) {
    table_.mutable_grad().mul_(factor);
  }
}

void TiedTable::give_gradient(Comm& comm) {
  if (!table_.defined() || !table_.requires_grad()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = at::promoteTypes(table_.scalar_type(), at::kFloat);
  at::Tensor& gradient = table_.mutable_grad();
  at::Tensor sum = gradient.defined() ? gradient.to(dtype)
                                      : at::zeros(table_.sizes(), table_.options().dtype(dtype));
  comm.all_reduce_sum(sum, ranks_);
  if (copy_) {
    gradient = at::Tensor();
  } else if (!gradient.defined()) {
    gradient = sum;
  } else {
    gradient.copy_(sum);
  }
}

}  // namespace entrain::engine
