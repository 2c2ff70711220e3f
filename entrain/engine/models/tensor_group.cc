#include "entrain/engine/models/tensor_group.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kGroup = "group";
constexpr const char* kRows = "rows";

bool alone(const TensorGroupPtr& group) {
  return group == nullptr || group->size() == 1;
}

std::int64_t run_of(std::int64_t rows, const TensorGroup& group) {
  return row_range(rows, 0, group.size()).size;
}

RowRange own_range(std::int64_t rows, const TensorGroup& group) {
  return row_range(rows, group.index, group.size());
}

// The tensor padded with rows of zeros to `rows`.
at::Tensor padded(const at::Tensor& tensor, std::int64_t rows) {
  if (tensor.size(0) == rows) {
    return tensor.contiguous();
  }
  std::vector<std::int64_t> missing = tensor.sizes().vec();
  missing[0] = rows - tensor.size(0);
  return at::cat({tensor, at::zeros(missing, tensor.options())});
}

// Every rank's sharded rows, concatenated.
at::Tensor gathered(const at::Tensor& own, std::int64_t rows, const TensorGroup& group) {
  const std::int64_t run = run_of(rows, group);
  ENTRAIN_INVARIANT(own.size(0) == own_range(rows, group).size,
                    concat(own.size(0), " sharded rows of ", rows));
  std::vector<std::int64_t> shape = own.sizes().vec();
  shape[0] = run * group.size();
  const at::Tensor all = group.comm->all_gather(padded(own, run).view(-1), group.ranks).view(shape);
  // Without its padding as a copy: the bytes of a sent tensor are counted by its rows.
  return all.size(0) == rows ? all : all.narrow(0, 0, rows).clone();
}

// Sharded rows of the sum over the ranks.
at::Tensor reduced_rows(const at::Tensor& partial, const TensorGroup& group) {
  const std::int64_t run = run_of(partial.size(0), group);
  std::vector<std::int64_t> shape = partial.sizes().vec();
  shape[0] = run;
  return group.comm->reduce_scatter_sum(padded(partial, run * group.size()).view(-1), group.ranks)
      .view(shape)
      .narrow(0, 0, own_range(partial.size(0), group).size);
}

// Reduce-scatter and all-gather, so that every rank frees only what it has allocated.
at::Tensor reduced(const at::Tensor& partial, const TensorGroup& group) {
  return gathered(reduced_rows(partial, group), partial.size(0), group);
}

at::Tensor own_of(const at::Tensor& whole, const TensorGroup& group) {
  const RowRange range = own_range(whole.size(0), group);
  return whole.narrow(0, range.begin, range.size);
}

struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(TensorGroupPtr held) : group(std::move(held)) {}
  TensorGroupPtr group;
};

void remember(AutogradContext* context, const TensorGroupPtr& group, std::int64_t rows = 0) {
  context->saved_data[kGroup] = c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group));
  context->saved_data[kRows] = rows;
}

TensorGroupPtr remembered(AutogradContext* context) {
  const auto capsule = context->saved_data[kGroup].toCapsule();
  return static_cast<const GroupHolder&>(*capsule).group;
}

std::int64_t remembered_rows(AutogradContext* context) {
  return context->saved_data[kRows].toInt();
}

struct ScatterRows : torch::autograd::Function<ScatterRows> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& whole,
                            const TensorGroupPtr& group) {
    remember(context, group, whole.size(0));
    return own_of(whole, *group).clone();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gathered(gradients[0], remembered_rows(context), *remembered(context)), at::Tensor()};
  }
};

// The forward of both gathers; they differ in the kind of their gradients.
struct Gather {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& own,
                            std::int64_t rows,
                            const TensorGroupPtr& group) {
    remember(context, group);
    return gathered(own, rows, *group);
  }
};

struct GatherRows : Gather, torch::autograd::Function<GatherRows> {
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {reduced_rows(gradients[0], *remembered(context)), at::Tensor(), at::Tensor()};
  }
};

struct GatherReplicated : Gather, torch::autograd::Function<GatherReplicated> {
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {own_of(gradients[0], *remembered(context)), at::Tensor(), at::Tensor()};
  }
};

struct ReduceScatter : torch::autograd::Function<ReduceScatter> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& partial,
                            const TensorGroupPtr& group) {
    remember(context, group, partial.size(0));
    return reduced_rows(partial, *group);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gathered(gradients[0], remembered_rows(context), *remembered(context)), at::Tensor()};
  }
};

struct AllReduce : torch::autograd::Function<AllReduce> {
  static at::Tensor forward(AutogradContext* /*context*/,
                            const at::Tensor& partial,
                            const TensorGroupPtr& group) {
    return reduced(partial, *group);
  }
  static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

// Ids or targets relative to this rank's shard of the vocabulary, and whether they are in it.
struct LocalIds {
  at::Tensor ids;     // clamped into the run
  at::Tensor inside;  // bool
};

LocalIds local_ids(const at::Tensor& ids, std::int64_t run, int index) {
  const at::Tensor local = ids - run * index;
  return {local.clamp(0, run - 1), at::logical_and(local.ge(0), local.lt(run))};
}

struct SplitCrossEntropy : torch::autograd::Function<SplitCrossEntropy> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& scores,
                            const at::Tensor& targets,
                            const TensorGroupPtr& group) {
    const std::int64_t rows = scores.size(0);
    const LocalIds local = local_ids(targets, scores.size(1), group->index);
    const at::Tensor column = local.ids.unsqueeze(1);
    const at::Tensor inside = local.inside.to(scores.scalar_type());
    const at::Tensor maximum =
        group->comm->all_gather(scores.amax(1), group->ranks).view({group->size(), rows}).amax(0);
    const at::Tensor shifted = scores - maximum.unsqueeze(1);
    const at::Tensor exponentials = shifted.exp();
    const at::Tensor own_target = shifted.gather(1, column).squeeze(1) * inside;
    const at::Tensor sums = reduced(at::cat({exponentials.sum(1), own_target}), *group);
    const at::Tensor total = sums.narrow(0, 0, rows);
    context->save_for_backward({exponentials / total.unsqueeze(1), column, inside});
    return total.log() - sums.narrow(0, rows, rows);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].unsqueeze(1);
    const at::Tensor of_scores = saved[0] * gradient;
    of_scores.scatter_add_(1, saved[1], -gradient * saved[2].unsqueeze(1));
    return {of_scores, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RowRange row_range(std::int64_t rows, int index, int num_ranks) {
  const std::int64_t run = (rows + num_ranks - 1) / num_ranks;
  const std::int64_t begin = std::min(rows, run * index);
  return {begin, std::min(rows, begin + run) - begin};
}

at::Tensor shard_rows(const at::Tensor& whole, const TensorGroupPtr& group) {
  return alone(group) ? whole : own_of(whole, *group).clone();
}

at::Tensor scatter_rows(const at::Tensor& whole, const TensorGroupPtr& group) {
  return alone(group) ? whole : ScatterRows::apply(whole, group);
}

at::Tensor gather_rows(const at::Tensor& own, std::int64_t rows, const TensorGroupPtr& group) {
  return alone(group) ? own : GatherRows::apply(own, rows, group);
}

at::Tensor gather_replicated(const at::Tensor& own,
                             std::int64_t rows,
                             const TensorGroupPtr& group) {
  return alone(group) ? own : GatherReplicated::apply(own, rows, group);
}

at::Tensor reduce_scatter(const at::Tensor& partial, const TensorGroupPtr& group) {
  return alone(group) ? partial : ReduceScatter::apply(partial, group);
}

at::Tensor all_reduce(const at::Tensor& partial, const TensorGroupPtr& group) {
  return alone(group) ? partial : AllReduce::apply(partial, group);
}

MatrixInput gather_input(const at::Tensor& own,
                         std::int64_t rows,
                         const TensorGroupPtr& group,
                         const OfRows& then) {
  const auto of = [then](const at::Tensor& whole) { return then ? then(whole) : whole; };
  MatrixInput input = {of(gather_rows(own, rows, group)), {}};
  if (!alone(group)) {
    input.again = c10::make_intrusive<RecomputedInput>(
        [kept = own.detach(), rows, group, of] { return of(gathered(kept, rows, *group)); });
  }
  return input;
}

at::Tensor split_cross_entropy(const at::Tensor& scores,
                               const at::Tensor& targets,
                               const TensorGroupPtr& group) {
  return alone(group) ? at::cross_entropy_loss(scores, targets, std::nullopt, at::Reduction::None)
                      : SplitCrossEntropy::apply(scores, targets, group);
}

at::Tensor split_lookup(const at::Tensor& table,
                        const at::Tensor& ids,
                        const TensorGroupPtr& group) {
  if (alone(group)) {
    return split_embedding(table, ids);
  }
  const LocalIds local = local_ids(ids, table.size(0), group->index);
  const at::Tensor inside = local.inside.to(table.scalar_type()).unsqueeze(1);
  return all_reduce(split_embedding(table, local.ids) * inside, group);
}

std::vector<NamedParameter> whole_parameters(const std::vector<NamedParameter>& parts,
                                             const TensorGroup& group) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter> result;
  result.reserve(parts.size());
  for (const NamedParameter& part : parts) {
    if (part.split.whole() || group.size() == 1) {
      result.push_back(part);
      continue;
    }
    const at::Tensor own = part.tensor.detach().contiguous();
    std::vector<std::int64_t> shape = own.sizes().vec();
    shape.insert(shape.begin(), group.size());
    const std::vector<at::Tensor> all =
        group.comm->all_gather(own.view(-1), group.ranks).view(shape).unbind(0);
    result.push_back({part.name, joined_parts(all, part.split), part.split});
  }
  return result;
}

void sum_over(const TensorGroup& group, at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (group.size() > 1) {
    group.comm->all_reduce_sum(tensor, group.ranks);
  }
}

}  // namespace entrain::engine
