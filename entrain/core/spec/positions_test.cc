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

// Temporal patches of one grid: later in time, at the same rows and columns; text follows those.
TEST(MultimodalPositions, CountTimeOfAVideoFromItsFirstPatch) {
  const std::vector<GridSpan> grids = {{1, 1, 2}, {3, 1, 2, true, 5}};
  const std::vector<AxisPosition> positions = multimodal_positions(6, grids);
  EXPECT_EQ(positions,
            (std::vector<AxisPosition>{
                {0, 0, 0}, {1, 1, 1}, {1, 1, 2}, {6, 1, 1}, {6, 1, 2}, {3, 3, 3}}));
}

TEST(ImageGrids, TellTemporalPatchesOfOneGridFromGridsOfTheirOwn) {
  ModelSpec model;
  EncoderSpec vision;
  vision.merge_size = 2;
  model.encoders = {vision};
  SampleWork work;
  work.segments.assign(1, std::vector<SegmentWork>(5));
  for (SegmentWork& segment : work.segments[0]) {
    segment.rows = segment.columns = 4;
  }
  // An image, a video of three patches at 1.5 positions, one of a patch.
  work.videos = {
      {{.frames = 6, .size = {}, .time_step = 1.5F}, {.frames = 1, .size = {}, .time_step = 1.5F}}};
  const std::vector<std::int64_t> begins = {1, 10, 14, 18, 30};
  const auto times = [&] {
    std::vector<std::pair<bool, std::int64_t>> result;
    for (const GridSpan& grid : image_grids(model, work, begins)) {
      result.emplace_back(grid.continues, grid.time);
    }
    return result;
  };
  using Times = std::vector<std::pair<bool, std::int64_t>>;
  EXPECT_EQ(times(), (Times{{false, 0}, {false, 0}, {true, 1}, {true, 3}, {false, 0}}));
  work.videos[0][0].time_step = 0.0F;
  EXPECT_EQ(times(), Times(5));
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
