#include "entrain/engine/models/parameter_split.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {
namespace {

TEST(ParameterSplit, EveryRankHasItsRunOfEveryBlock) {
  const at::Tensor whole = at::arange(12).view({12, 1});
  const at::Tensor first = part_of(whole, {0, 3}, 0, 2).flatten();
  const at::Tensor second = part_of(whole, {0, 3}, 1, 2).flatten();
  EXPECT_TRUE(at::equal(first, at::tensor({0, 1, 4, 5, 8, 9}, at::kLong)));
  EXPECT_TRUE(at::equal(second, at::tensor({2, 3, 6, 7, 10, 11}, at::kLong)));
  EXPECT_TRUE(at::equal(part_of(whole.t(), {1}, 1, 3).flatten(), at::tensor({4, 5, 6, 7})));
  EXPECT_TRUE(at::equal(part_of(whole, {}, 1, 3), whole));
}

TEST(ParameterSplit, PartsJoinToTheWhole) {
  const at::Tensor whole = at::arange(24 * 18).view({24, 18});
  for (const ParameterSplit& split :
       {ParameterSplit{}, ParameterSplit{0}, ParameterSplit{1}, ParameterSplit{0, 4}}) {
    for (const int ranks : {1, 2, 3, 6}) {
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        parts.push_back(part_of(whole, split, rank, ranks).clone());
        EXPECT_EQ(parts.back().sizes().vec(), part_shape(whole.sizes().vec(), split, ranks));
      }
      EXPECT_TRUE(at::equal(joined_parts(parts, split), whole)) << split.axis << " " << ranks;
    }
  }
}

TEST(ParameterSplit, RefusesWhatDoesNotDivide) {
  EXPECT_THROW(part_shape({10, 4}, {0}, 3), InternalError);
  EXPECT_THROW(part_shape({12, 4}, {0, 3}, 3), InternalError);
}

}  // namespace
}  // namespace entrain::engine
