// The ranks that share a lane's layers (tensor parallelism), and what they exchange within a layer,
// as functions of autograd whose backward is the mirrored exchange.
//
// Read first: the table below. A tensor of rows is *whole* on a rank (all rows, the same values on
// every rank), *own* (a run of its rows, one run a rank), or *partial* (all rows, to be summed over
// the ranks). Gradients are of the same three kinds:
//
//   function         from     to       gradient that comes -> goes
//   own_rows         whole    own      own -> partial          nothing is exchanged
//   scatter_rows     whole    own      own -> whole            gather
//   gather_rows      own      whole    partial -> own          gather; reduce-scatter
//   gather_whole     own      whole    whole -> own            gather; nothing
//   reduce_scatter   partial  own      own -> whole            reduce-scatter; gather
//   all_reduce       partial  whole    whole -> whole          reduce-scatter and gather; nothing
//
// So norms and residuals run on own rows, and a column-split linear followed by a row-split one
// takes gather_input() before and reduce_scatter() behind it: gather_rows(), of which own rows
// alone are kept and gathered once more for the weight gradient, in whichever half of a backward
// that runs. Gradients of parameters that every rank holds whole are partial: their sum over the
// ranks is the gradient (LaneGradients). Sums run in rank order, so whole tensors are the same bits
// on every rank.
//
// Without a group, or in one of a single rank, every function returns its argument; else no result
// shares its memory, so that own rows do not keep whole ones alive. Collectives run in the order in
// which a rank's graph is built, and backward in the reverse, weight halves in the order in which
// they run, so all ranks of a group must do the same, each from one thread.
//
// Source  Korthikanti et al. 2022, sequence parallelism; rows may divide unevenly here.
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
  int index = 0;           // of this rank among them

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
};

// The run of `rows` that is rank `index`'s of `num_ranks`: as many for each, rounded up; the last
// ones have fewer, or none.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};
RowRange row_range(std::int64_t rows, int index, int num_ranks);

// Shapes  whole and partial tensors: [T, D]; own ones: [row_range(T).size, D]. `rows` is T.
at::Tensor own_rows(const at::Tensor& whole, const TensorGroupPtr& group);
at::Tensor scatter_rows(const at::Tensor& whole, const TensorGroupPtr& group);
at::Tensor gather_rows(const at::Tensor& own, std::int64_t rows, const TensorGroupPtr& group);
at::Tensor gather_whole(const at::Tensor& own, std::int64_t rows, const TensorGroupPtr& group);
at::Tensor reduce_scatter(const at::Tensor& partial, const TensorGroupPtr& group);
at::Tensor all_reduce(const at::Tensor& partial, const TensorGroupPtr& group);

// What matrices read: all rows, and what makes these again for their weight gradients; null on one
// rank, which keeps them.
struct MatrixInput {
  at::Tensor rows;
  RemadeInputPtr again;
};
// gather_rows() and, where given, `then` of them: a function of its argument and what it captured.
using OfRows = std::function<at::Tensor(const at::Tensor& whole)>;
MatrixInput gather_input(const at::Tensor& own,
                         std::int64_t rows,
                         const TensorGroupPtr& group,
                         const OfRows& then = {});

// cross_entropy of rows whose scores lie on the ranks by runs of the vocabulary.
//
// Shapes  scores: [N, V / ranks] float32 or wider, this rank's; targets: [N] int64 in [0, V);
// result:
//         [N], whole. N >= 1.
// Cost    one gather of N numbers and one all-reduce of 2 N, forward; none backward. Keeps the
//         probabilities, as large as scores.
at::Tensor split_cross_entropy(const at::Tensor& scores,
                               const at::Tensor& targets,
                               const TensorGroupPtr& group);

// Rows of an embedding whose table lies on the ranks by runs of the vocabulary.
//
// Shapes  table: [V / ranks, D], this rank's; ids: [T] int64 in [0, V); result: [T, D], whole.
at::Tensor split_lookup(const at::Tensor& table,
                        const at::Tensor& ids,
                        const TensorGroupPtr& group);

// All parameters whole, from every rank's part. All ranks call it, with the same names.
std::vector<NamedParameter> whole_parameters(const std::vector<NamedParameter>& parts,
                                             const TensorGroup& group);

// The sum over the group's ranks in place, in rank order; nothing is recorded.
void sum_over(const TensorGroup& group, at::Tensor& tensor);

}  // namespace entrain::engine
