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

// Width, height → rows, columns and features of an image alone in its sample: from the processors
// of LLaVA-NeXT and of LLaVA-OneVision (anyres_max_9) in transformers 5.23.
struct AnyResolutionCase {
  int width, height;
  int rows, columns;
  std::int64_t features;
};
const std::vector<AnyResolutionCase> kNextCases = {
    {1, 1, 1, 2, 1176},
    {640, 480, 2, 2, 2340},
    {480, 640, 2, 2, 2352},
    {336, 336, 1, 2, 1176},
    {1000, 300, 1, 3, 2182},
    {300, 1000, 3, 1, 2232},
    {672, 100, 1, 2, 968},
    {1920, 1080, 2, 2, 1948},
    {333, 1001, 3, 1, 2376},
    {2304, 2304, 2, 2, 2928},
    {5000, 700, 1, 3, 1306},
    {77, 2000, 3, 1, 792},
};
const std::vector<AnyResolutionCase> kOneVisionCases = {
    {1, 1, 1, 1, 1485},
    {640, 480, 2, 2, 2929},
    {480, 640, 2, 2, 2943},
    {1000, 300, 1, 3, 2779},
    {672, 100, 1, 2, 1224},
    {1920, 1080, 3, 5, 7269},
    {4000, 3000, 5, 6, 7309},
    {53, 8, 1, 1, 869},
    {2304, 2304, 6, 6, 7371},
    {5000, 700, 1, 6, 4478},
    {77, 2000, 6, 1, 2025},
};

EncoderSpec any_resolution(bool onevision) {
  EncoderSpec encoder;
  encoder.patch_size = 14;
  encoder.merge_size = 1;
  encoder.table_side = onevision ? 27 : 24;
  encoder.unused_pixels = onevision ? 6 : 0;
  encoder.tiling.kind = TilingSpec::Kind::kAnyResolution;
  encoder.tiling.canvases = {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}};
  if (onevision) {
    encoder.tiling.canvases.clear();
    encoder.tiling.single_image = true;
    encoder.tiling.feature_tiles = 9;
    for (int rows = 1; rows <= 6; ++rows) {
      for (int columns = 1; columns <= 6; ++columns) {
        encoder.tiling.canvases.push_back({rows, columns});
      }
    }
  }
  return encoder;
}

TEST(FeatureCanvas, IsLlavaNextsAndLlavaOneVisions) {
  for (const bool onevision : {false, true}) {
    const EncoderSpec encoder = any_resolution(onevision);
    EXPECT_EQ(image_side(encoder), onevision ? 384 : 336);
    for (const AnyResolutionCase& c : onevision ? kOneVisionCases : kNextCases) {
      const FeatureCanvas canvas = feature_canvas(encoder, {c.width, c.height}, true);
      EXPECT_EQ(canvas.tiles, (ImageTiles{c.rows, c.columns, true})) << c.width << "x" << c.height;
      EXPECT_EQ(canvas_features(encoder, canvas), c.features) << c.width << "x" << c.height;
    }
  }
}

TEST(FeatureCanvas, HasTheFeaturesOfAnImageWithoutItsPadding) {
  // 640 x 480 on 672 x 672: 504 pixels high, of 48 rows of features the 36 in the middle.
  const FeatureCanvas next = feature_canvas(any_resolution(false), {640, 480}, true);
  EXPECT_EQ(next, (FeatureCanvas{{2, 2, true}, 6, 0, 36, 48, 36, 48}));
  const FeatureCanvas tall = feature_canvas(any_resolution(false), {480, 640}, true);
  EXPECT_EQ(tall, (FeatureCanvas{{2, 2, true}, 0, 6, 48, 36, 48, 36}));
  // 162 x 162 features of 36 tiles become those of 9.
  const FeatureCanvas large = feature_canvas(any_resolution(true), {2304, 2304}, true);
  EXPECT_EQ(large, (FeatureCanvas{{6, 6, true}, 0, 0, 162, 162, 81, 81}));
}

TEST(FeatureCanvas, OfSeveralImagesIsTheWholeImageAndANewline) {
  const EncoderSpec encoder = any_resolution(true);
  const FeatureCanvas canvas = feature_canvas(encoder, {640, 480}, false);
  EXPECT_EQ(canvas.tiles, (ImageTiles{0, 0, true}));
  EXPECT_EQ(canvas_features(encoder, canvas), 27 * 27 + 1);
  EXPECT_EQ(feature_canvas(any_resolution(false), {640, 480}, false),
            feature_canvas(any_resolution(false), {640, 480}, true));
}

TEST(FeatureCanvas, RefusesFeaturesThatWouldBeResizedToNone) {
  EncoderSpec encoder = any_resolution(true);
  encoder.tiling.canvases = {{20, 1}};
  encoder.tiling.feature_tiles = 1;
  encoder.table_side = 1;
  const std::string message = oracle::error_of<InvalidInput>([&] {
    feature_canvas(encoder, {10, 4000}, true);
  });
  EXPECT_NE(message.find("10x4000 pixels"), std::string::npos) << message;
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
