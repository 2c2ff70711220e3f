#include "entrain/core/spec/positions.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

TEST(MultimodalPositions, CountTextAlikeOnAllAxes) {
  const std::vector<AxisPosition> positions = multimodal_positions(3, {});
  EXPECT_EQ(positions, (std::vector<AxisPosition>{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}}));
}

// As transformers' get_rope_index() has it; tests/parity compares 500 random layouts.
TEST(MultimodalPositions, CountRowsAndColumnsOfAGridAndGoOnAboveTheLargest) {
  const std::vector<GridSpan> grids = {{1, 2, 3}, {8, 1, 1}};
  const std::vector<AxisPosition> positions = multimodal_positions(10, grids);
  EXPECT_EQ(positions,
            (std::vector<AxisPosition>{{0, 0, 0},
                                       {1, 1, 1},
                                       {1, 1, 2},
                                       {1, 1, 3},
                                       {1, 2, 1},
                                       {1, 2, 2},
                                       {1, 2, 3},
                                       {4, 4, 4},
                                       {5, 5, 5},
                                       {6, 6, 6}}));
}

TEST(MultimodalPositions, RefuseGridsThatOverlapOrEndOutside) {
  EXPECT_THROW(multimodal_positions(4, std::vector<GridSpan>{{0, 2, 2}, {3, 1, 1}}), InternalError);
  EXPECT_THROW(multimodal_positions(4, std::vector<GridSpan>{{1, 2, 2}}), InternalError);
}

TEST(ImageGrids, AreOfImagesAloneByTheirPlace) {
  ModelSpec model;
  EncoderSpec audio;
  audio.modality = Modality::kAudio;
  EncoderSpec vision;
  vision.merge_size = 2;
  model.encoders = {audio, vision};
  SampleWork work;
  work.segments.resize(2);
  work.segments[0].resize(1);
  work.segments[1].resize(2);
  work.segments[1][0].rows = 4;
  work.segments[1][0].columns = 6;
  work.segments[1][1].rows = 2;
  work.segments[1][1].columns = 2;
  const std::vector<std::int64_t> begins = {1, 20, 9};
  const std::vector<GridSpan> grids = image_grids(model, work, begins);
  ASSERT_EQ(grids.size(), 2U);
  EXPECT_EQ(grids[0].begin, 9);
  EXPECT_EQ(grids[0].tokens(), 1);
  EXPECT_EQ(grids[1].begin, 20);
  EXPECT_EQ(grids[1].rows, 2);
  EXPECT_EQ(grids[1].columns, 3);
}

}  // namespace
}  // namespace entrain
