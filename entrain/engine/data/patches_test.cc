#include "entrain/engine/data/patches.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/dataset/resize.h"
#include "entrain/core/spec/workload.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

EncoderSpec small_encoder() {
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  encoder.min_pixels = 64;
  encoder.max_pixels = 64 * 64;
  return encoder;
}

DecodedImage random_image(int width, int height, std::uint64_t seed) {
  Rng rng(seed);
  DecodedImage image{{width, height}, {}};
  for (int i = 0; i < width * height * 3; ++i) {
    image.rgb.push_back(static_cast<std::uint8_t>(rng.below(256)));
  }
  return image;
}

// Of an image that is one segment.
SegmentData only_patches(const DecodedImage& image, const EncoderSpec& encoder) {
  return patches_of(resize_image(image, encoder), 0, encoder);
}

// Patches by plain loops; `pixel(channel, y, x)` in [-1, 1].
template <class Pixel>
std::vector<float> plain_patches(int rows, int columns, int patch, int merge, const Pixel& pixel) {
  std::vector<float> values;
  for (int block_row = 0; block_row < rows / merge; ++block_row) {
    for (int block_column = 0; block_column < columns / merge; ++block_column) {
      for (int row = block_row * merge; row < (block_row + 1) * merge; ++row) {
        for (int column = block_column * merge; column < (block_column + 1) * merge; ++column) {
          for (int channel = 0; channel < 3; ++channel) {
            for (int y = row * patch; y < (row + 1) * patch; ++y) {
              for (int x = column * patch; x < (column + 1) * patch; ++x) {
                values.push_back(pixel(channel, y, x));
              }
            }
          }
        }
      }
    }
  }
  return values;
}

void expect_equal(const SegmentData& data, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(data.input.scalar_type(), at::kFloat);
  ASSERT_TRUE(data.input.is_contiguous());
  ASSERT_EQ(data.input.numel(), static_cast<std::int64_t>(expected.size()));
  const float* values = data.input.const_data_ptr<float>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], tolerance) << "value " << i;
  }
}

TEST(PatchesOf, CutsMergeBlocksOfAnImageThatNeedsNoResizing) {
  const EncoderSpec encoder = small_encoder();
  const DecodedImage image = random_image(24, 16, 1);
  const SegmentData data = only_patches(image, encoder);
  ASSERT_EQ(data.rows, 4);
  ASSERT_EQ(data.columns, 6);
  ASSERT_EQ(data.input.sizes(), (std::vector<std::int64_t>{24, 48}));
  expect_equal(data,
               plain_patches(4,
                             6,
                             4,
                             2,
                             [&](int channel, int y, int x) {
                               const auto value = static_cast<float>(
                                   image.rgb[static_cast<std::size_t>((y * 24 + x) * 3 + channel)]);
                               return (value / 255.0F - 0.5F) / 0.5F;
                             }),
               1e-6F);
}

// resize_test.cc shows that the resizing is Pillow's.
TEST(PatchesOf, ResizesInEightBits) {
  const EncoderSpec encoder = small_encoder();
  for (const ImageSize size :
       {ImageSize{21, 13}, ImageSize{5, 3}, ImageSize{150, 90}, ImageSize{7, 70}}) {
    const DecodedImage image =
        random_image(size.width, size.height, static_cast<std::uint64_t>(size.width));
    const ImageSize target = smart_resize(size, 8, encoder.min_pixels, encoder.max_pixels);
    const SegmentData data = only_patches(image, encoder);
    ASSERT_EQ(data.rows * 4, target.height);
    ASSERT_EQ(data.columns * 4, target.width);
    EXPECT_TRUE(at::equal(
        data.input, only_patches(resize(image, target, ResizeFilter::kBicubic), encoder).input));
  }
}

TEST(WhitePatches, EqualThoseOfAWhiteImage) {
  const EncoderSpec encoder = small_encoder();
  for (const ImageSize size : {ImageSize{24, 16}, ImageSize{21, 13}}) {
    DecodedImage white{
        size,
        std::vector<std::uint8_t>(static_cast<std::size_t>(size.width * size.height * 3), 255)};
    const SegmentData expected = only_patches(white, encoder);
    const SegmentData given = white_patches(encoder_image_size(encoder, size), encoder);
    EXPECT_EQ(given.rows, expected.rows);
    EXPECT_EQ(given.columns, expected.columns);
    EXPECT_TRUE(at::allclose(given.input, expected.input, 0, 1e-5));
  }
}

TEST(PatchesOf, RefusesImpossibleAspectRatios) {
  oracle::error_of<InvalidInput>([] { only_patches(random_image(900, 4, 1), small_encoder()); });
}

TEST(PatchesOf, NormalisesByTheProcessorsMeanAndDeviation) {
  EncoderSpec encoder = small_encoder();
  const DecodedImage image = random_image(16, 8, 5);
  const at::Tensor usual = only_patches(image, encoder).input;
  encoder.pixel_mean = {0.1, 0.2, 0.3};
  encoder.pixel_deviation = {0.4, 0.5, 0.6};
  const at::Tensor other = only_patches(image, encoder).input;
  const at::Tensor pixels = (usual.view({-1, 3, 16}) + 1) / 2;
  for (int channel = 0; channel < 3; ++channel) {
    const auto index = static_cast<std::size_t>(channel);
    const at::Tensor expected =
        (pixels.select(1, channel) - encoder.pixel_mean[index]) / encoder.pixel_deviation[index];
    EXPECT_LT((other.view({-1, 3, 16}).select(1, channel) - expected).abs().max().item<double>(),
              1e-5);
  }
  EXPECT_NEAR(white_patches({16, 8}, encoder).input[0][0].item<double>(), 0.9 / 0.4, 1e-6);
}

TEST(PatchesOf, RepeatsAnImageForTheFramesOfAPatch) {
  EncoderSpec encoder = small_encoder();
  const DecodedImage image = random_image(16, 16, 6);
  const at::Tensor one = only_patches(image, encoder).input.view({-1, 3, 1, 16});
  encoder.temporal_patch_size = 2;
  const at::Tensor two = only_patches(image, encoder).input.view({-1, 3, 2, 16});
  EXPECT_TRUE(at::equal(two, one.expand({-1, -1, 2, -1})));
}

// Of a decoded image the rectangle from (left, top).
DecodedImage part_of(const DecodedImage& image, int left, int top, ImageSize size) {
  DecodedImage part{size, {}};
  for (int y = top; y < top + size.height; ++y) {
    const auto row = image.rgb.begin() + 3 * (static_cast<std::ptrdiff_t>(y) * image.size.width);
    part.rgb.insert(part.rgb.end(), row + 3 * left, row + 3 * (left + size.width));
  }
  return part;
}

EncoderSpec tiling_encoder(TilingSpec::Kind kind) {
  EncoderSpec encoder = small_encoder();
  encoder.table_side = 4;  // 16 × 16 pixels
  encoder.tiling.kind = kind;
  encoder.tiling.longest_edge = 45;
  encoder.resize_filter = ResizeFilter::kLanczos;
  return encoder;
}

void expect_tiles(const ResizedImage& found,
                  const DecodedImage& grid,
                  const DecodedImage& whole,
                  const EncoderSpec& encoder) {
  EncoderSpec plain = encoder;
  plain.tiling = {};
  const ImageTiles& tiles = found.tiles;
  ASSERT_TRUE(tiles.whole);
  for (int tile = 0; tile < tiles.count(); ++tile) {
    const DecodedImage expected =
        tile == tiles.count() - 1
            ? whole
            : part_of(grid, 16 * (tile % tiles.columns), 16 * (tile / tiles.columns), {16, 16});
    const SegmentData data = patches_of(found, tile, encoder);
    EXPECT_EQ(data.rows, 4);
    EXPECT_TRUE(at::equal(data.input, only_patches(expected, plain).input)) << "tile " << tile;
  }
}

TEST(PatchesOf, CutsTilesOfTheLongestEdgeAndShrinksTheirGrid) {
  const EncoderSpec encoder = tiling_encoder(TilingSpec::Kind::kLongestEdge);
  const DecodedImage image = random_image(50, 31, 9);
  const ResizedImage found = resize_image(image, encoder);
  EXPECT_EQ(found.tiles, (ImageTiles{2, 3, true}));
  const auto lanczos = [](const DecodedImage& from, ImageSize size) {
    return resize(from, size, ResizeFilter::kLanczos);
  };
  const DecodedImage grid = lanczos(lanczos(image, {45, 28}), {48, 32});
  expect_tiles(found, grid, lanczos(grid, {16, 16}), encoder);
  EncoderSpec unsplit = encoder;
  unsplit.tiling.split = false;
  EncoderSpec plain = encoder;
  plain.tiling = {};
  EXPECT_TRUE(at::equal(only_patches(image, unsplit).input,
                        only_patches(lanczos(image, {45, 28}), plain).input));
}

TEST(PatchesOf, CutsTilesOfTheBestCanvasAndShrinksTheImage) {
  const EncoderSpec encoder = tiling_encoder(TilingSpec::Kind::kBestCanvas);
  const DecodedImage image = random_image(31, 50, 10);
  const ResizedImage found = resize_image(image, encoder);
  EXPECT_EQ(found.tiles, (ImageTiles{3, 2, true}));
  expect_tiles(found,
               resize(image, {32, 48}, ResizeFilter::kLanczos),
               resize(image, {16, 16}, ResizeFilter::kLanczos),
               encoder);
}

EncoderSpec any_resolution_encoder() {
  EncoderSpec encoder = tiling_encoder(TilingSpec::Kind::kAnyResolution);
  encoder.merge_size = 1;
  encoder.unused_pixels = 1;  // 17 × 17 pixels, of which patches cover 16 × 16
  encoder.tiling.canvases = {{1, 2}, {2, 1}};
  encoder.tiling.single_image = true;
  return encoder;
}

// Black around an image in the middle, or the colour.
DecodedImage in_the_middle(const DecodedImage& image, ImageSize size, std::uint8_t colour) {
  DecodedImage result{size, {}};
  const int left = (size.width - image.size.width) / 2;
  const int top = (size.height - image.size.height) / 2;
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      const bool inside =
          y >= top && y < top + image.size.height && x >= left && x < left + image.size.width;
      for (int channel = 0; channel < 3; ++channel) {
        const int place = ((y - top) * image.size.width + x - left) * 3 + channel;
        result.rgb.push_back(inside ? image.rgb[static_cast<std::size_t>(place)] : colour);
      }
    }
  }
  return result;
}

TEST(PatchesOf, CutsACanvasAfterTheWholeImageIntoOneSegment) {
  const EncoderSpec encoder = any_resolution_encoder();
  EncoderSpec plain = encoder;
  plain.tiling = {};
  const DecodedImage image = random_image(30, 20, 14);
  const ResizedImage found = resize_image(image, encoder);
  EXPECT_EQ(found.tiles, (ImageTiles{1, 2, true}));
  const auto resized = [&](ImageSize size) { return resize(image, size, encoder.resize_filter); };
  const DecodedImage canvas = in_the_middle(resized({26, 17}), {34, 17}, 0);
  const SegmentData data = patches_of(found, 0, encoder);
  EXPECT_EQ(data.rows, 4);
  EXPECT_EQ(data.columns, 4);
  EXPECT_TRUE(at::equal(data.input,
                        at::cat({only_patches(resized({17, 17}), plain).input,
                                 only_patches(part_of(canvas, 0, 0, {17, 17}), plain).input,
                                 only_patches(part_of(canvas, 17, 0, {17, 17}), plain).input})));
}

TEST(PatchesOf, PadsOneOfSeveralImagesToASquareOfTheMeanColour) {
  EncoderSpec encoder = any_resolution_encoder();
  encoder.pixel_mean = {0.4, 0.4, 0.4};
  EncoderSpec plain = encoder;
  plain.tiling = {};
  const DecodedImage image = random_image(12, 21, 15);
  const ResizedImage found = resize_image(image, encoder, /*alone=*/false);
  EXPECT_EQ(found.tiles, (ImageTiles{0, 0, true}));
  const DecodedImage square = in_the_middle(image, {21, 21}, 102);
  EXPECT_TRUE(at::equal(patches_of(found, 0, encoder).input, only_patches(square, plain).input));
}

TEST(PatchesOfFrames, HoldBothFramesOfEveryPatch) {
  EncoderSpec encoder = small_encoder();
  encoder.temporal_patch_size = 2;
  const DecodedImage first = random_image(24, 16, 11);
  const DecodedImage second = random_image(24, 16, 12);
  const SegmentData both = patches_of_frames(first, second, encoder);
  EXPECT_EQ(both.rows, 4);
  EXPECT_EQ(both.columns, 6);
  const at::Tensor frames = both.input.view({24, 3, 2, 16});
  const auto alone = [&](const DecodedImage& frame) {
    return only_patches(frame, encoder).input.view({24, 3, 2, 16}).select(2, 0);
  };
  EXPECT_TRUE(at::equal(frames.select(2, 0), alone(first)));
  EXPECT_TRUE(at::equal(frames.select(2, 1), alone(second)));
}

TEST(PatchesOf, CutsTheCentreOfAnImageForATableOfPositions) {
  EncoderSpec encoder = small_encoder();
  encoder.merge_size = 1;
  encoder.table_side = 2;  // 8 × 8 pixels
  encoder.center_crop = true;
  const DecodedImage image = random_image(13, 8, 7);
  DecodedImage middle{{8, 8}, {}};
  for (int y = 0; y < 8; ++y) {
    for (int x = 2; x < 10; ++x) {
      for (int channel = 0; channel < 3; ++channel) {
        middle.rgb.push_back(image.rgb[static_cast<std::size_t>((y * 13 + x) * 3 + channel)]);
      }
    }
  }
  EXPECT_TRUE(at::equal(only_patches(image, encoder).input, only_patches(middle, encoder).input));
  encoder.center_crop = false;
  EXPECT_FALSE(at::equal(only_patches(image, encoder).input, only_patches(middle, encoder).input));
  EXPECT_EQ(only_patches(random_image(30, 50, 8), encoder).input.size(0), 4);
}

}  // namespace
}  // namespace entrain::engine
