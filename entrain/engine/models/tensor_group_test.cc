#include "entrain/engine/models/tensor_group.h"

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/text.h"

#include "entrain/engine/models/live_bytes.h"

#include "tests/oracle/engine/tensor_ranks.h"
#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::on_tensor_ranks;
using oracle::random_tensor;

constexpr std::int64_t kWidth = 5;

at::Tensor of_rank(const char* what, int rank, std::vector<std::int64_t> shape) {
  return random_tensor(std::move(shape), concat(what, rank));
}

at::Tensor sum_of(const char* what, int num_ranks, const std::vector<std::int64_t>& shape) {
  at::Tensor sum = of_rank(what, 0, shape);
  for (int rank = 1; rank < num_ranks; ++rank) {
    sum = sum + of_rank(what, rank, shape);
  }
  return sum;
}

at::Tensor rows_of(const at::Tensor& whole, const TensorGroup& group) {
  const RowRange range = row_range(whole.size(0), group.index, group.size());
  return whole.narrow(0, range.begin, range.size);
}

using Exchange =
    std::function<at::Tensor(const at::Tensor&, std::int64_t rows, const TensorGroupPtr&)>;

enum class Kind { kWhole, kOwn, kPartial };

// What a rank brings of that kind, and what it must be given where `sums` bring it.
at::Tensor brought(Kind kind, const char* what, std::int64_t rows, const TensorGroup& group) {
  const std::vector<std::int64_t> shape = {rows, kWidth};
  return kind == Kind::kPartial ? of_rank(what, group.index, shape)
         : kind == Kind::kWhole ? of_rank(what, 0, shape)
                                : rows_of(of_rank(what, 0, shape), group).clone();
}

at::Tensor meant(Kind kind, const char* what, std::int64_t rows, int num_ranks) {
  const std::vector<std::int64_t> shape = {rows, kWidth};
  return kind == Kind::kPartial ? sum_of(what, num_ranks, shape) : of_rank(what, 0, shape);
}

void expect_kind(Kind kind,
                 const at::Tensor& actual,
                 const at::Tensor& whole,
                 const TensorGroup& group,
                 const std::string& name) {
  const at::Tensor expected = kind == Kind::kOwn ? rows_of(whole, group) : whole;
  EXPECT_TRUE(at::equal(actual, expected)) << name << ", rank " << group.index;
}

// Uneven runs, empty ones and a single row among them.
void expect_exchange(const std::string& name,
                     Kind from,
                     Kind to,
                     Kind gradient_from,
                     Kind gradient_to,
                     const Exchange& exchange) {
  for (const int num_ranks : {1, 2, 3, 4}) {
    for (const std::int64_t rows : {1, 2, 5, 8, 13}) {
      on_tensor_ranks(num_ranks, [&](const TensorGroupPtr& group) {
        const at::Tensor input = brought(from, "value", rows, *group).set_requires_grad(true);
        const at::Tensor result = exchange(input, rows, group);
        expect_kind(to, result, meant(from, "value", rows, num_ranks), *group, name);
        result.backward(brought(gradient_from, "gradient", rows, *group));
        const at::Tensor whole = meant(gradient_from, "gradient", rows, num_ranks);
        if (gradient_to == Kind::kPartial) {
          at::Tensor sum = input.grad().clone();
          sum_over(*group, sum);
          expect_kind(Kind::kWhole, sum, whole, *group, name + " gradient");
        } else {
          expect_kind(gradient_to, input.grad(), whole, *group, name + " gradient");
        }
      });
    }
  }
}

TEST(TensorGroup, RowsDivideInRunsThatCoverThem) {
  for (const int num_ranks : {1, 2, 3, 5}) {
    for (std::int64_t rows = 0; rows < 20; ++rows) {
      std::int64_t next = 0;
      for (int rank = 0; rank < num_ranks; ++rank) {
        const RowRange range = row_range(rows, rank, num_ranks);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(range.size, row_range(rows, 0, num_ranks).size);
        next += range.size;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

TEST(TensorGroup, EveryExchangeHasItsMirrorInBackward) {
  const auto plain = [](auto function) {
    return [function](const at::Tensor& x, std::int64_t /*rows*/, const TensorGroupPtr& group) {
      return function(x, group);
    };
  };
  constexpr Kind kWhole = Kind::kWhole;
  constexpr Kind kOwn = Kind::kOwn;
  constexpr Kind kPartial = Kind::kPartial;
  expect_exchange("shard_rows", kWhole, kOwn, kOwn, kPartial, plain(shard_rows));
  expect_exchange("scatter_rows", kWhole, kOwn, kOwn, kWhole, plain(scatter_rows));
  expect_exchange("gather_rows", kOwn, kWhole, kPartial, kOwn, gather_rows);
  expect_exchange("gather_replicated", kOwn, kWhole, kWhole, kOwn, gather_replicated);
  expect_exchange("reduce_scatter", kPartial, kOwn, kOwn, kWhole, plain(reduce_scatter));
  expect_exchange("all_reduce", kPartial, kWhole, kWhole, kWhole, plain(all_reduce));
}

// Rows of a norm between two residuals, as stages have them.
TEST(TensorGroup, AMatrixKeepsOwnRowsOfWhatItReads) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kResults = 3;
  const at::Tensor values = random_tensor({kRows, kWidth}, "value");
  const at::Tensor matrix = random_tensor({kResults, kWidth}, "matrix");
  const at::Tensor plain = values.clone().set_requires_grad(true);
  const at::Tensor plain_weight = matrix.clone().set_requires_grad(true);
  at::linear(2 * plain, plain_weight).square().sum().backward();
  for (const int num_ranks : {2, 4}) {
    on_tensor_ranks(num_ranks, [&](const TensorGroupPtr& group) {
      const at::Tensor own = rows_of(values, *group).clone().set_requires_grad(true);
      const at::Tensor weight = matrix.clone().set_requires_grad(true);
      const LiveBytes live;
      at::Tensor result;
      {
        const MatrixInput input = gather_input(2 * own, kRows, group);
        EXPECT_TRUE(at::equal(input.rows, 2 * values));
        result = split_linear(input.rows, weight, {}, input.again);
      }
      EXPECT_EQ(live.bytes(), static_cast<std::int64_t>(own.nbytes() + result.nbytes()));
      result.square().sum().backward();
      // Every rank computes all results here: gradients of own rows add up to as many times theirs.
      EXPECT_LT(oracle::largest_difference(own.grad(), rows_of(plain.grad(), *group) * num_ranks),
                1e-10);
      EXPECT_LT(oracle::largest_difference(weight.grad(), plain_weight.grad()), 1e-10);
    });
  }
}

TEST(TensorGroup, OwnRowsKeepNoWholeOnesAlive) {
  on_tensor_ranks(2, [](const TensorGroupPtr& group) {
    const LiveBytes live;
    at::Tensor whole = at::ones({64, kWidth}, at::kDouble);
    const at::Tensor own = shard_rows(whole, group);
    const at::Tensor scattered = scatter_rows(whole, group);
    whole.reset();
    EXPECT_EQ(live.bytes(), static_cast<std::int64_t>(own.nbytes() + scattered.nbytes()));
  });
}

// Scores of a thousand would overflow without the maximum of all ranks.
TEST(TensorGroup, CrossEntropyOfASplitVocabularyIsThatOfTheWhole) {
  constexpr std::int64_t kVocabulary = 24;
  for (const int num_ranks : {1, 2, 3, 4}) {
    for (const std::int64_t rows : {1, 7}) {
      const at::Tensor values = random_tensor({rows, kVocabulary}, "scores") * 500;
      const at::Tensor scores = values.clone().set_requires_grad(true);
      const at::Tensor targets = at::arange(rows, at::kLong).mul(5).remainder(kVocabulary);
      const at::Tensor weights = random_tensor({rows}, "weights");
      const at::Tensor expected =
          at::cross_entropy_loss(scores, targets, std::nullopt, at::Reduction::None);
      (expected * weights).sum().backward();
      on_tensor_ranks(num_ranks, [&](const TensorGroupPtr& group) {
        const ParameterSplit columns{1};
        const at::Tensor own =
            part_of(values, columns, group->index, num_ranks).clone().set_requires_grad(true);
        const at::Tensor losses = split_cross_entropy(own, targets, group);
        EXPECT_LT(oracle::largest_difference(losses, expected), 1e-12);
        (losses * weights).sum().backward();
        const at::Tensor gradient = part_of(scores.grad(), columns, group->index, num_ranks);
        EXPECT_LT(oracle::largest_difference(own.grad(), gradient), 1e-12);
      });
    }
  }
}

TEST(TensorGroup, LookupInASplitTableIsThatInTheWhole) {
  const at::Tensor table = random_tensor({12, kWidth}, "table");
  const at::Tensor ids = at::tensor({11, 0, 5, 6, 6, 3, 11, 8}, at::kLong);
  const at::Tensor gradient = random_tensor({8, kWidth}, "gradient");
  const at::Tensor whole = table.clone().set_requires_grad(true);
  at::embedding(whole, ids).backward(gradient);
  for (const int num_ranks : {1, 2, 3, 4}) {
    on_tensor_ranks(num_ranks, [&](const TensorGroupPtr& group) {
      const ParameterSplit rows{0};
      const at::Tensor own =
          part_of(table, rows, group->index, num_ranks).clone().set_requires_grad(true);
      const at::Tensor found = split_lookup(own, ids, group);
      EXPECT_TRUE(at::equal(found, at::embedding(table, ids)));
      found.backward(gradient);
      const at::Tensor expected = part_of(whole.grad(), rows, group->index, num_ranks);
      EXPECT_LT(oracle::largest_difference(own.grad(), expected), 1e-12);
    });
  }
}

TEST(TensorGroup, ParametersComeTogetherFromTheirParts) {
  const at::Tensor matrix = random_tensor({12, 6}, "matrix");
  const at::Tensor gain = random_tensor({6}, "gain");
  on_tensor_ranks(2, [&](const TensorGroupPtr& group) {
    std::vector<NamedParameter> parts;
    for (const ParameterSplit& split :
         {ParameterSplit{0}, ParameterSplit{1}, ParameterSplit{0, 3}}) {
      parts.push_back({"matrix", part_of(matrix, split, group->index, 2), split});
    }
    parts.push_back({"gain", gain, {}});
    const std::vector<NamedParameter> whole = whole_parameters(parts, *group);
    ASSERT_EQ(whole.size(), parts.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(whole[i].name, parts[i].name);
      EXPECT_TRUE(at::equal(whole[i].tensor, i < 3 ? matrix : gain)) << i;
    }
  });
}

// A rank that fails inside a backward's exchange keeps its error, the others are stopped.
TEST(TensorGroup, AFailureOfAnotherRankEndsABackwardPass) {
  std::vector<char> stopped(2, 0);
  EXPECT_THROW(on_tensor_ranks(
                   2,
                   [&](const TensorGroupPtr& group) {
                     const at::Tensor x = random_tensor({4, kWidth}, "x").set_requires_grad(true);
                     const at::Tensor y = scatter_rows(x, group);
                     if (group->index == 1) {
                       throw InvalidInput("this rank fails");
                     }
                     try {
                       y.sum().backward();
                     } catch (const CommAborted&) {
                       stopped[0] = 1;
                       throw;
                     }
                   }),
               InvalidInput);
  EXPECT_EQ(stopped[0], 1);
}

}  // namespace
}  // namespace entrain::engine
