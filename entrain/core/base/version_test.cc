#include "entrain/core/base/version.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace entrain {
namespace {

TEST(Version, IsThreeNumbers) {
  EXPECT_EQ(std::ranges::count(version(), '.'), 2);
  EXPECT_EQ(version().find_first_not_of("0123456789."), std::string_view::npos);
}

}  // namespace
}  // namespace entrain
