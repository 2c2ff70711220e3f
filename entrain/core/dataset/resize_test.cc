#include "entrain/core/dataset/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

DecodedImage noise(int width, int height, std::uint64_t seed) {
  Rng rng(seed);
  DecodedImage image{{width, height}, {}};
  for (int i = 0; i < 3 * width * height; ++i) {
    image.rgb.push_back(static_cast<std::uint8_t>(rng.below(256)));
  }
  return image;
}

// Values (70 x + 90 y + 40 c) mod 256 of an image of 5 × 4, and Pillow 11.3's results.
DecodedImage ramp() {
  DecodedImage image{{5, 4}, {}};
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 5; ++x) {
      for (int c = 0; c < 3; ++c) {
        image.rgb.push_back(static_cast<std::uint8_t>((70 * x + 90 * y + 40 * c) % 256));
      }
    }
  }
  return image;
}

TEST(Resize, IsPillowsBitForBit) {
  const std::vector<std::uint8_t> smaller = {
      92, 118, 144, 158, 124, 137, 102, 147, 116, 129, 120, 92, 145, 108, 160, 139, 130, 106};
  const std::vector<std::uint8_t> larger = {
      0,   32,  72,  31,  70,  110, 86,  129, 176, 136, 187, 227, 214, 255, 75,  136, 175, 47,
      8,   48,  104, 55,  93,  153, 92,  157, 205, 158, 159, 200, 217, 54,  94,  119, 104, 83,
      74,  128, 131, 82,  122, 186, 147, 195, 83,  196, 155, 132, 210, 91,  141, 147, 43,  83,
      82,  100, 164, 112, 172, 159, 181, 220, 107, 136, 188, 13,  188, 100, 51,  180, 59,  114,
      77,  136, 176, 141, 132, 187, 170, 164, 116, 164, 208, 34,  3,   42,  94,  41,  88,  133,
      100, 156, 195, 158, 198, 238, 228, 46,  85,  146, 18,  63,  19,  75,  127};
  EXPECT_EQ(resize(ramp(), {3, 2}, ResizeFilter::kBicubic).rgb, smaller);
  EXPECT_EQ(resize(ramp(), {7, 5}, ResizeFilter::kBicubic).rgb, larger);
}

TEST(Resize, IsPillowsLanczosBitForBit) {
  const std::vector<std::uint8_t> smaller = {
      95, 117, 144, 160, 125, 137, 101, 152, 115, 132, 125, 92, 148, 101, 163, 138, 131, 107};
  const std::vector<std::uint8_t> larger = {
      0,  33,  68,  30,  64,  94,  85,  127, 190, 132, 191, 231, 231, 255, 78,  136, 173, 37,
      2,  42,  106, 46,  76,  153, 70,  159, 213, 164, 168, 210, 222, 59,  99,  133, 94,  61,
      64, 127, 132, 73,  109, 194, 163, 217, 79,  216, 174, 138, 236, 73,  132, 147, 22,  62,
      49, 82,  175, 112, 192, 179, 209, 242, 100, 126, 188, 9,   189, 93,  38,  173, 52,  119,
      72, 146, 186, 142, 138, 199, 183, 161, 102, 155, 204, 26,  0,   37,  98,  33,  78,  127,
      99, 177, 214, 162, 198, 238, 245, 42,  79,  139, 6,   55,  9,   77,  138};
  EXPECT_EQ(resize(ramp(), {3, 2}, ResizeFilter::kLanczos).rgb, smaller);
  EXPECT_EQ(resize(ramp(), {7, 5}, ResizeFilter::kLanczos).rgb, larger);
}

TEST(Resize, LeavesAnImageOfTheSizeAndAFlatOneAsTheyAre) {
  const DecodedImage image = noise(9, 7, 1);
  EXPECT_EQ(resize(image, {9, 7}, ResizeFilter::kBicubic).rgb, image.rgb);
  DecodedImage flat{{50, 20}, std::vector<std::uint8_t>(50 * 20 * 3, 77)};
  for (const ImageSize size : {ImageSize{1, 1}, {13, 90}, {200, 3}}) {
    for (const ResizeFilter filter : {ResizeFilter::kBicubic, ResizeFilter::kLanczos}) {
      for (const std::uint8_t value : resize(flat, size, filter).rgb) {
        ASSERT_EQ(value, 77);
      }
    }
  }
}

// The definition in double precision, each pass rounded: within one of the fixed-point result, of
// Lanczos two.
double cubic(double x) {
  x = std::abs(x);
  return x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
         : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
                 : 0;
}

double lanczos(double x) {
  const double pi = std::acos(-1.0);
  return x == 0             ? 1
         : std::abs(x) >= 3 ? 0
                            : 3 * std::sin(pi * x) * std::sin(pi * x / 3) / (pi * x * pi * x);
}

DecodedImage slow_pass(const DecodedImage& image, int to, bool columns, ResizeFilter filter) {
  const bool wide = filter == ResizeFilter::kLanczos;
  const int from = columns ? image.size.width : image.size.height;
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const ImageSize size =
      columns ? ImageSize{to, image.size.height} : ImageSize{image.size.width, to};
  DecodedImage result{
      size, std::vector<std::uint8_t>(static_cast<std::size_t>(size.width * size.height * 3))};
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const double center = ((columns ? x : y) + 0.5) * scale;
        double sum = 0;
        double weights = 0;
        for (int i = 0; i < from; ++i) {
          // Whole pixels whose middle is within the filter, as Pillow rounds its ends.
          if (i < static_cast<int>(center - (wide ? 3 : 2) * stretch + 0.5) ||
              i >= static_cast<int>(center + (wide ? 3 : 2) * stretch + 0.5)) {
            continue;
          }
          const double place = (i + 0.5 - center) / stretch;
          const double weight = wide ? lanczos(place) : cubic(place);
          const int row = columns ? y : i;
          const int column = columns ? i : x;
          sum += weight *
                 image.rgb[static_cast<std::size_t>((row * image.size.width + column) * 3 + c)];
          weights += weight;
        }
        result.rgb[static_cast<std::size_t>((y * size.width + x) * 3 + c)] =
            static_cast<std::uint8_t>(std::clamp(std::floor(sum / weights + 0.5), 0.0, 255.0));
      }
    }
  }
  return result;
}

TEST(Resize, IsNearItsDefinition) {
  Rng rng(3);
  for (int i = 0; i < 400; ++i) {
    const auto side = [&] { return 1 + static_cast<int>(rng.below(40)); };
    const DecodedImage image = noise(side(), side(), rng.next());
    const ImageSize size = {side(), side()};
    const ResizeFilter filter = i % 2 == 0 ? ResizeFilter::kBicubic : ResizeFilter::kLanczos;
    const DecodedImage found = resize(image, size, filter);
    DecodedImage expected = image;
    if (size.width != image.size.width) {
      expected = slow_pass(expected, size.width, true, filter);
    }
    if (size.height != image.size.height) {
      expected = slow_pass(expected, size.height, false, filter);
    }
    ASSERT_EQ(found.rgb.size(), expected.rgb.size());
    for (std::size_t k = 0; k < found.rgb.size(); ++k) {
      // A first pass that is off by one weighs more in the second where weights are negative.
      ASSERT_LE(std::abs(found.rgb[k] - expected.rgb[k]), 1 + i % 2)
          << image.size.width << "x" << image.size.height << " to " << size.width << "x"
          << size.height;
    }
  }
}

}  // namespace
}  // namespace entrain
