// The ranks that share a lane's layers (tensor parallelism), and their collectives within a layer,
// as autograd functions whose backward is the mirrored collective.
//
// Read first: the table below. A tensor of rows is *replicated* on a rank (all rows, equal on every
// rank), *sharded* (each rank has one run of the rows), or *partial* (all rows, to be summed over
// the ranks), as in DTensor. Gradients are of the same three kinds:
//
//   function           from        to          gradient, in -> out
//   shard_rows         replicated  sharded     sharded -> partial        no communication
//   scatter_rows       replicated  sharded     sharded -> replicated     gather
//   gather_rows        sharded     replicated  partial -> sharded        gather; reduce-scatter
//   gather_replicated  sharded     replicated  replicated -> sharded     gather; nothing
//   reduce_scatter     partial     sharded     sharded -> replicated     reduce-scatter; gather
//   all_reduce         partial     replicated  replicated -> replicated  all-reduce; nothing
//
// So norms and residuals run on sharded rows. A column-split linear followed by a row-split one
// takes gather_input() before and reduce_scatter() after it: gather_rows(), which keeps only the
// rank's shard and gathers it again for the weight gradient, in whichever half of a backward that
// runs. Gradients of replicated parameters are partial: their sum over the
// ranks is the gradient (LaneGradients). Sums run in rank order, so replicated tensors are bitwise
// equal on every rank.
//
// Without a group, or in one of a single rank, every function returns its argument; else no result
// shares its memory, so that a shard does not keep the full tensor alive. Collectives run in the
// order in which a rank's graph is built, and backward in reverse, weight halves in the order in
// which they run. All ranks of a group must therefore do the same, each from one thread.
//
// Source  Korthikanti et al. 2022, sequence parallelism; here rows may divide unevenly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/weight_gradients.h"

namespace entrain::engine {

struct TensorGroup {
  Comm* comm = nullptr;    // outlives the group and every graph
  std::vector<int> ranks;  // of the communicator, rising
  int index = 0;           // of this rank in `ranks`

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
};

// The shard of `rows` of rank `index` of `num_ranks`: equal sizes, rounded up; the last ranks have
// fewer rows, or none.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};
RowRange row_range(std::int64_t rows, int index, int num_ranks);

// Shapes  replicated and partial tensors: [T, D]; sharded: [row_range(T).size, D]. `rows` is T.
at::Tensor shard_rows(const at::Tensor& whole, const TensorGroupPtr& group);
at::Tensor scatter_rows(const at::Tensor& whole, const TensorGroupPtr& group);
at::Tensor gather_rows(const at::Tensor& own, std::int64_t rows, const TensorGroupPtr& group);
at::Tensor gather_replicated(const at::Tensor& own, std::int64_t rows, const TensorGroupPtr& group);
at::Tensor reduce_scatter(const at::Tensor& partial, const TensorGroupPtr& group);
at::Tensor all_reduce(const at::Tensor& partial, const TensorGroupPtr& group);

// The input of matrices: all rows, and a function that recomputes them for their weight gradients;
// null for a single rank, which keeps the rows.
struct MatrixInput {
  at::Tensor rows;
  RecomputedInputPtr again;
};
// gather_rows(), then `then` on the result if given: a pure function of its argument and captures.
using OfRows = std::function<at::Tensor(const at::Tensor& whole)>;
MatrixInput gather_input(const at::Tensor& own,
                         std::int64_t rows,
                         const TensorGroupPtr& group,
                         const OfRows& then = {});

// cross_entropy of rows whose scores are sharded over the ranks by the vocabulary.
//
// Shapes  scores: [N, V / ranks] float32 or wider, this rank's; targets: [N] int64 in [0, V);
// result:
//         [N], replicated. N >= 1.
// Cost    one gather of N numbers and one all-reduce of 2 N, forward; none backward. Keeps the
//         probabilities, as large as scores.
at::Tensor split_cross_entropy(const at::Tensor& scores,
                               const at::Tensor& targets,
                               const TensorGroupPtr& group);

// Rows of an embedding whose table is sharded over the ranks by the vocabulary.
//
// Shapes  table: [V / ranks, D], this rank's; ids: [T] int64 in [0, V); result: [T, D], replicated.
at::Tensor split_lookup(const at::Tensor& table,
                        const at::Tensor& ids,
                        const TensorGroupPtr& group);

// All parameters in full, gathered from every rank's shard. All ranks call it, with the same names.
std::vector<NamedParameter> whole_parameters(const std::vector<NamedParameter>& parts,
                                             const TensorGroup& group);

// All-reduce over the group's ranks in place, in rank order; not recorded by autograd.
void sum_over(const TensorGroup& group, at::Tensor& tensor);

}  // namespace entrain::engine
