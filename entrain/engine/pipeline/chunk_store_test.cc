#include "entrain/engine/pipeline/chunk_store.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {
namespace {

// Sample 0 has 9 tokens, sample 1 has 4.
class ChunkStoreTest : public testing::Test {
 protected:
  ChunkStoreTest() {
    program_.num_stages = {2};
    costs_.work.own().resize(2);
    costs_.work[0].llm_tokens = 9;
    costs_.work[1].llm_tokens = 4;
  }

  static Group group_of(Slot items) {
    Group group;
    group.items = std::move(items);
    return group;
  }

  ModelSpec model_;
  Program program_;
  StepCosts costs_;
  ChunkStore store_{{model_, program_, costs_}};
  const Group first_ = group_of({{0, -1, 0, 3}});
  const Group second_ = group_of({{0, -1, 3, 5}});
  const Group last_ = group_of({{1}, {0, -1, 5, 9}});
};

TEST_F(ChunkStoreTest, LinksChunksOfAStageInOrder) {
  const auto first = store_.items_of(1, first_, true);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].rows, 3);
  EXPECT_EQ(first[0].begin, 0);
  EXPECT_TRUE(first[0].earlier.empty());
  ASSERT_TRUE(first[0].own);
  EXPECT_TRUE(first[0].own->takes_gradients);
  const auto second = store_.items_of(1, second_, true);
  EXPECT_EQ(second[0].rows, 2);
  EXPECT_EQ(second[0].begin, 3);
  EXPECT_EQ(second[0].earlier, std::vector{first[0].own});
  const auto last = store_.items_of(1, last_, true);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0].rows, 4);
  EXPECT_FALSE(last[0].own);
  EXPECT_EQ(last[1].rows, 4);
  EXPECT_EQ(last[1].begin, 5);
  EXPECT_EQ(last[1].earlier, (std::vector{first[0].own, second[0].own}));
  EXPECT_FALSE(last[1].own);
}

TEST_F(ChunkStoreTest, StagesAreApart) {
  store_.items_of(0, first_, true);
  EXPECT_THROW(store_.items_of(1, second_, true), InternalError);
}

TEST_F(ChunkStoreTest, KeepsAChunkUntilItsOwnBackward) {
  for (const Group* group : {&first_, &second_, &last_}) {
    store_.items_of(0, *group, true);
    store_.after_forward(0, *group);
  }
  store_.after_backward(0, last_);
  store_.after_backward(0, second_);
  EXPECT_FALSE(store_.empty());
  store_.after_backward(0, first_);
  EXPECT_TRUE(store_.empty());
}

TEST_F(ChunkStoreTest, WithoutBackwardAChunkGoesWithTheEndOfItsSample) {
  store_.items_of(0, first_, false);
  store_.after_forward(0, first_);
  const auto second = store_.items_of(0, second_, true);
  EXPECT_FALSE(second[0].earlier[0]->takes_gradients);
  store_.after_forward(0, second_);
  store_.items_of(0, last_, true);
  store_.after_forward(0, last_);
  store_.after_backward(0, last_);
  EXPECT_FALSE(store_.empty());
  store_.after_backward(0, second_);
  EXPECT_TRUE(store_.empty());
}

TEST_F(ChunkStoreTest, RefusesABackwardThatIsTooEarly) {
  store_.items_of(0, first_, true);
  store_.items_of(0, second_, true);
  EXPECT_THROW(store_.after_backward(0, first_), InternalError);
}

}  // namespace
}  // namespace entrain::engine
