#include "entrain/engine/train/update_in_progress.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain::engine {
namespace {

TEST(UpdateInProgress, DividesByAllStepsWhereNoneIsSkipped) {
  UpdateInProgress update;
  update.begin(60);
  for (const std::int64_t tokens : {10, 20, 30}) {
    EXPECT_EQ(update.divisor(), 60);
    update.add(tokens);
    EXPECT_FALSE(update.empty());
  }
  update.begin(7);
  EXPECT_TRUE(update.empty());
  EXPECT_EQ(update.divisor(), 7);
}

TEST(UpdateInProgress, LeavesStepsOutBeforeBetweenAndAfterOthers) {
  UpdateInProgress update;
  update.begin(100);
  EXPECT_EQ(update.leave_out(10), 1.0);  // nothing to scale yet
  EXPECT_TRUE(update.empty());
  EXPECT_EQ(update.divisor(), 90);
  update.add(45);
  EXPECT_EQ(update.leave_out(15), 90.0 / 75.0);
  EXPECT_EQ(update.leave_out(30), 75.0 / 45.0);
  EXPECT_EQ(update.divisor(), 45);
  EXPECT_FALSE(update.empty());
}

TEST(UpdateInProgress, IsEmptyWhereEveryStepIsLeftOut) {
  UpdateInProgress update;
  update.begin(30);
  EXPECT_EQ(update.leave_out(10), 1.0);
  EXPECT_EQ(update.leave_out(20), 1.0);
  EXPECT_TRUE(update.empty());
  EXPECT_EQ(update.divisor(), 0);
}

TEST(UpdateInProgress, ContinuesWithTheStepsAfterADrop) {
  UpdateInProgress update;
  update.begin(60);
  update.add(10);
  update.add(20);
  update.drop();
  EXPECT_TRUE(update.empty());
  EXPECT_EQ(update.divisor(), 30);
  update.add(30);
  EXPECT_FALSE(update.empty());
  update.drop();
  EXPECT_TRUE(update.empty());
}

TEST(UpdateInProgress, RefusesMoreTokensThanItHas) {
  UpdateInProgress update;
  update.begin(30);
  update.add(20);
  EXPECT_THROW(update.leave_out(11), InternalError);
  update.begin(30);
  EXPECT_THROW(update.add(31), InternalError);
}

}  // namespace
}  // namespace entrain::engine
