#include "entrain/core/study/paper_study.h"

#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

class PaperCells : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "paper-cells";
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

TEST_F(PaperCells, QuickStudiesNeedNoManifests) {
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

TEST_F(PaperCells, ManifestsThatAreMissingAreNamed) {
  PaperStudy wanting = study();
  wanting.manifests = folder_;
  try {
    paper_cells(wanting);
    FAIL();
  } catch (const InvalidInput& error) {
    for (const char* name : {"coco_val2017_captions.csv", "opencqa_charts.csv", "vlm_small.csv"}) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace entrain
