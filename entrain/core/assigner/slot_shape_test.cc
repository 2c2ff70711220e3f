#include "entrain/core/assigner/slot_shape.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace entrain {
namespace {

TEST(SlotTargets, ArePositiveAndAsManyAsSlots) {
  for (const SlotShape shape : kSlopedShapes) {
    for (int num_slots = 1; num_slots < 70; ++num_slots) {
      const std::vector<double> targets = slot_targets(shape, num_slots);
      ASSERT_EQ(targets.size(), static_cast<std::size_t>(num_slots));
      for (const double target : targets) {
        ASSERT_GT(target, 0.0);
        ASSERT_LE(target, 1.0);
      }
    }
  }
}

TEST(SlotTargets, OfTheTriangleRiseByOneAndFallByOne) {
  const std::vector<double> targets = slot_targets(kTriangle, 5);
  for (int slot = 0; slot < 5; ++slot) {
    EXPECT_DOUBLE_EQ(targets[static_cast<std::size_t>(slot)] / targets[0],
                     std::min(slot + 1, 5 - slot));
  }
}

TEST(SlotTargets, OfTheRootAreFlatter) {
  const std::vector<double> triangle = slot_targets(kTriangle, 9);
  const std::vector<double> root = slot_targets(kRootTriangle, 9);
  EXPECT_DOUBLE_EQ(root[0] * root[0], triangle[0]);
  EXPECT_GT(root[0], triangle[0]);
}

TEST(SlotTargets, PeakWhereTheShapeSays) {
  const auto peak = [](SlotShape shape) {
    const std::vector<double> targets = slot_targets(shape, 29);
    return std::max_element(targets.begin(), targets.end()) - targets.begin();
  };
  EXPECT_EQ(peak(kLateTriangle), 19);
  EXPECT_EQ(peak(kEarlyTriangle), 9);
  const std::vector<double> trapezoid = slot_targets(kTrapezoid, 16);
  EXPECT_DOUBLE_EQ(trapezoid[5], 1.0);
  EXPECT_DOUBLE_EQ(trapezoid[10], 1.0);
  EXPECT_LT(trapezoid[1], 0.5);
}

TEST(SlotTargets, OfFlatSlotsAreEqual) {
  EXPECT_EQ(slot_targets(kFlat, 3), (std::vector<double>{1.0, 1.0, 1.0}));
}

}  // namespace
}  // namespace entrain
