#include "entrain/core/study/made_up.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/files.h"
#include "entrain/core/dataset/index.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

TEST(MadeUpData, SizesAreWithinTheFiguresRanges) {
  const fs::path folder = fs::path(testing::TempDir()) / "made-up";
  fs::create_directories(folder);
  std::vector<double> medians;
  for (const std::string& name : made_up_names()) {
    const fs::path path = folder / (name + ".csv");
    write_made_up(name, path);
    const std::string first = read_file(path);
    write_made_up(name, path);
    EXPECT_EQ(read_file(path), first) << "drawn anew";
    const Index index = read_index(path);
    ASSERT_EQ(index.samples.size(), 8000U);
    std::vector<double> tokens;
    for (const SampleSizes& sample : index.samples) {
      ASSERT_EQ(sample.images.size(), 1U);
      const double pixels = static_cast<double>(sample.images[0].width) *
                            static_cast<double>(sample.images[0].height);
      tokens.push_back(pixels / (28 * 28));
    }
    std::sort(tokens.begin(), tokens.end());
    // A number of tokens is rounded to rows and columns.
    EXPECT_GE(tokens.front(), 25) << name;
    EXPECT_LE(tokens.back(), 17000) << name;
    EXPECT_GT(tokens.back(), 8 * tokens[4000]) << name << ": few are large";
    medians.push_back(tokens[4000]);
  }
  fs::remove_all(folder);
  EXPECT_GT(medians[0], 2 * medians[1]) << "the two differ";
}

}  // namespace
}  // namespace entrain
