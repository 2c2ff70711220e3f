#include "entrain/core/spec/vision_sizes.h"

#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

// smart_resize() of one image is tested in workload_test.cc.

EncoderSpec encoder_of(int side) {
  EncoderSpec encoder;
  encoder.patch_size = 4;
  encoder.table_side = side / 4;
  return encoder;
}

// Width, height, longest edge, side of a tile → first size, tiles: from the image processor of
// Idefics3 in transformers 5.23.
struct EdgeCase {
  int width, height, longest_edge, side;
  int first_width, first_height;
  int rows, columns;
  bool whole;
};
const std::vector<EdgeCase> kEdgeCases = {
    {1, 1, 1456, 364, 1456, 1456, 4, 4, true},
    {640, 480, 1456, 364, 1456, 1092, 3, 4, true},
    {480, 640, 1456, 364, 1092, 1456, 4, 3, true},
    {1920, 1080, 1456, 364, 1456, 820, 3, 4, true},
    {4000, 3000, 1456, 364, 1456, 1092, 3, 4, true},
    {100, 2000, 1456, 364, 72, 1456, 4, 1, true},
    {5000, 7, 1456, 364, 1456, 2, 1, 4, true},
    {1457, 364, 1456, 364, 1456, 364, 1, 4, true},
    {201, 555, 1456, 364, 528, 1456, 4, 2, true},
    {875, 3069, 1456, 364, 416, 1456, 4, 2, true},
    {546, 2585, 1456, 364, 308, 1456, 4, 1, true},
    {1, 52, 1456, 364, 28, 1456, 4, 1, true},
    {54, 8, 1456, 364, 1456, 216, 1, 4, true},
    {102, 132, 1456, 364, 1126, 1456, 4, 4, true},
    {640, 480, 2048, 512, 2048, 1536, 3, 4, true},
    {200, 300, 512, 512, 342, 512, 1, 1, false},
    {31, 1000, 1999, 384, 62, 1999, 6, 1, true},
    {333, 1000, 1533, 512, 510, 1533, 3, 1, true},
};

TEST(ImageTiles, AreIdefics3sForALongestEdge) {
  for (const EdgeCase& c : kEdgeCases) {
    EncoderSpec encoder = encoder_of(c.side);
    encoder.tiling.kind = TilingSpec::Kind::kLongestEdge;
    encoder.tiling.longest_edge = c.longest_edge;
    const ImageSize image = {c.width, c.height};
    EXPECT_EQ(longest_edge_size(image, c.longest_edge), (ImageSize{c.first_width, c.first_height}))
        << c.width << "x" << c.height;
    EXPECT_EQ(image_tiles(encoder, image), (ImageTiles{c.rows, c.columns, c.whole}))
        << c.width << "x" << c.height;
    encoder.tiling.split = false;
    EXPECT_EQ(image_tiles(encoder, image), ImageTiles());
  }
}

// Width, height, fewest and most tiles of 448 pixels → rows, columns: from GotOcr2's. The 2 x 2
// tiles of 900 pixels and 6 x 6 of 5000 win a tie by their pixels, 800 x 800 too, 50 x 50 does not.
struct CanvasCase {
  int width, height, min_tiles, max_tiles;
  int rows, columns;
};
const std::vector<CanvasCase> kCanvasCases = {
    {448, 448, 1, 12, 1, 1},   {449, 448, 1, 12, 1, 1},   {800, 800, 1, 12, 2, 2},
    {900, 900, 1, 12, 2, 2},   {1344, 896, 1, 12, 2, 3},  {640, 480, 1, 12, 3, 4},
    {1920, 1080, 1, 12, 2, 4}, {100, 4000, 1, 12, 12, 1}, {4000, 3000, 1, 12, 3, 4},
    {896, 448, 1, 6, 1, 2},    {600, 300, 1, 6, 1, 2},    {300, 300, 2, 12, 2, 2},
    {448, 448, 5, 7, 3, 2},    {50, 50, 1, 40, 1, 1},     {5000, 5000, 1, 40, 6, 6},
    {1, 6, 1, 12, 6, 1},       {681, 3, 1, 12, 1, 12},    {5, 6, 1, 12, 4, 3},
    {4314, 1690, 1, 12, 2, 5},
};

TEST(ImageTiles, AreGotOcr2sForABestCanvas) {
  for (const CanvasCase& c : kCanvasCases) {
    EncoderSpec encoder = encoder_of(448);
    encoder.tiling.kind = TilingSpec::Kind::kBestCanvas;
    encoder.tiling.min_tiles = c.min_tiles;
    encoder.tiling.max_tiles = c.max_tiles;
    const ImageTiles tiles = image_tiles(encoder, {c.width, c.height});
    EXPECT_EQ(tiles, (ImageTiles{c.rows, c.columns, c.rows * c.columns > 1}))
        << c.width << "x" << c.height << " as " << tiles.rows << " x " << tiles.columns;
  }
}

TEST(ImageTiles, CountTheWholeImageLast) {
  EXPECT_EQ((ImageTiles{2, 3, true}.count()), 7);
  EXPECT_EQ(ImageTiles().count(), 1);
  EXPECT_EQ(image_tiles(encoder_of(448), {5000, 20}), ImageTiles());
}

TEST(ImageTiles, RefuseImpossibleSizes) {
  EncoderSpec encoder = encoder_of(448);
  encoder.tiling.kind = TilingSpec::Kind::kBestCanvas;
  const std::string message = oracle::error_of<InvalidInput>([&] {
    image_tiles(encoder, {0, 20});
  });
  EXPECT_NE(message.find("image of 0x20 pixels"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain
