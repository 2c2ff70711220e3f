#include "entrain/core/base/shared_vector.h"

#include <utility>

#include <gtest/gtest.h>

namespace entrain {
namespace {

SharedVector<int> one_two_three() {
  SharedVector<int> result;
  result.own() = {1, 2, 3};
  return result;
}

TEST(SharedVector, CopiesShareTheirItems) {
  const SharedVector<int> first = one_two_three();
  const SharedVector<int> second = first;
  EXPECT_EQ(first.begin(), second.begin());
  EXPECT_EQ(second.size(), 3U);
  EXPECT_EQ(second[2], 3);
}

TEST(SharedVector, AChangeOfOneLeavesTheOtherAsItWas) {
  const SharedVector<int> before = one_two_three();
  SharedVector<int> by_index = before;
  SharedVector<int> by_item = before;
  SharedVector<int> by_front = before;
  SharedVector<int> as_a_whole = before;
  by_index[1] = 20;
  for (int& item : by_item) {
    item = 0;
  }
  by_front.front() = 10;
  as_a_whole.own().push_back(4);
  EXPECT_EQ(before.size(), 3U);
  EXPECT_EQ(before[0] + before[1] + before[2], 6);
  EXPECT_EQ(std::as_const(by_index)[1], 20);
  EXPECT_EQ(std::as_const(by_item).front(), 0);
  EXPECT_EQ(std::as_const(by_front).front(), 10);
  EXPECT_EQ(as_a_whole.size(), 4U);
}

TEST(SharedVector, TheOnlyOwnerChangesItsItemsInPlace) {
  SharedVector<int> items = one_two_three();
  const int* const place = std::as_const(items).begin();
  items[0] = 7;
  EXPECT_EQ(std::as_const(items).begin(), place);
  EXPECT_EQ(*place, 7);
}

}  // namespace
}  // namespace entrain
