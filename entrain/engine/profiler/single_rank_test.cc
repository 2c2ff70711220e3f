#include "entrain/engine/profiler/single_rank.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/models/tensor_group.h"

namespace entrain::engine {
namespace {

// Of seven rows a group of two has four and three.
TEST(SingleRank, ExchangesHaveTheShapesOfAWholeGroups) {
  const TensorGroupPtr group = single_rank(2);
  ASSERT_EQ(group->size(), 2);
  EXPECT_EQ(group->index, 0);
  const at::Tensor whole = at::arange(14, at::kFloat).view({7, 2}).set_requires_grad(true);
  const at::Tensor own = scatter_rows(whole, group);
  EXPECT_TRUE(at::equal(own, whole.narrow(0, 0, 4)));
  const at::Tensor rows = gather_rows(own, 7, group);
  EXPECT_EQ(rows.sizes(), at::IntArrayRef({7, 2}));
  EXPECT_TRUE(at::equal(reduce_scatter(rows, group), own));
  all_reduce(rows, group).sum().backward();
  EXPECT_EQ(whole.grad().sizes(), whole.sizes());
}

TEST(SingleRank, RefusesMessages) {
  const TensorGroupPtr group = single_rank(3);
  EXPECT_THROW(group->comm->send({0, 1, 0}, 0, at::ones({1})), InternalError);
  EXPECT_THROW(group->comm->post_receive({1, 0, 0}, 0, {1}, at::kFloat), InternalError);
}

}  // namespace
}  // namespace entrain::engine
