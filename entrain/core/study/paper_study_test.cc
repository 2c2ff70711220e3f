#include "entrain/core/study/paper_study.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/study/made_up.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

class MadeUpData : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "made-up";
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] PaperStudy study() const {
    const fs::path configs = fs::path(ENTRAIN_SOURCE_DIR) / "configs";
    PaperStudy study;
    study.models = configs / "models";
    study.cluster = configs / "clusters" / "a40-64.toml";
    study.made_up = folder_;
    return study;
  }
  fs::path folder_;
};

TEST_F(MadeUpData, SizesAreWithinTheFiguresRanges) {
  std::vector<double> medians;
  for (const std::string& name : made_up_names()) {
    const fs::path path = folder_ / (name + ".csv");
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
  EXPECT_GT(medians[0], 2 * medians[1]) << "the two differ";
}

TEST_F(MadeUpData, QuickStudiesNeedNoManifests) {
  PaperStudy quick = study();
  quick.quick = true;
  std::set<std::string> names;
  for (const PaperCell& cell : paper_cells(quick)) {
    EXPECT_TRUE(names.insert(cell.name).second) << cell.name;
    EXPECT_TRUE(cell.name.starts_with("made-up-")) << cell.name;
    EXPECT_EQ(cell.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-"),
              std::string::npos)
        << cell.name;
    EXPECT_GT(cell.minutes, 0);
  }
  EXPECT_GE(names.size(), 8U);
}

TEST_F(MadeUpData, AManifestThatIsMissingIsNamed) {
  PaperStudy wanting = study();
  wanting.manifests = folder_;
  try {
    paper_cells(wanting);
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("coco_val2017_captions.csv"), std::string::npos);
  }
}

}  // namespace
}  // namespace entrain
