#include "entrain/core/dataset/resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr int kChannels = 3;
constexpr int kFractionBits = 32 - 8 - 2;  // so that a sum of weighted pixels fits into 32 bits

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) {
    return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  }
  return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * kA : 0.0;
}

double sinc(double x) {
  x *= std::numbers::pi;
  return x == 0.0 ? 1.0 : std::sin(x) / x;
}

double lanczos(double x) {
  return std::abs(x) < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0;
}

struct Kernel {
  double (*weight)(double);
  double support;  // in pixels on either side
};

Kernel kernel_of(ResizeFilter filter) {
  return filter == ResizeFilter::kLanczos ? Kernel{lanczos, 3.0} : Kernel{bicubic, 2.0};
}

// What each position of a side reads: a run of positions of the other, with weights.
struct Taps {
  struct Run {
    int begin = 0;
    int size = 0;
  };
  std::vector<Run> runs;              // [position]
  std::vector<std::int32_t> weights;  // [position × width]
  std::size_t width = 0;              // most weights of a position

  [[nodiscard]] const std::int32_t* of(std::size_t position) const {
    return weights.data() + position * width;
  }
};

Taps taps_of(int from, int to, const Kernel& kernel) {
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double support = kernel.support * stretch;
  Taps taps;
  taps.width = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
  taps.weights.resize(static_cast<std::size_t>(to) * taps.width);
  std::vector<double> exact(taps.width);
  for (int position = 0; position < to; ++position) {
    const double center = (position + 0.5) * scale;
    const int begin = std::max(static_cast<int>(center - support + 0.5), 0);
    const int end = std::min(static_cast<int>(center + support + 0.5), from);
    double sum = 0;
    for (int i = begin; i < end; ++i) {
      const double weight = kernel.weight((i - center + 0.5) * (1.0 / stretch));
      exact[static_cast<std::size_t>(i - begin)] = weight;
      sum += weight;
    }
    std::int32_t* weights = taps.weights.data() + static_cast<std::size_t>(position) * taps.width;
    for (int i = 0; i < end - begin; ++i) {
      const double weight = exact[static_cast<std::size_t>(i)] / sum * (1 << kFractionBits);
      weights[i] = static_cast<std::int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    taps.runs.push_back({begin, end - begin});
  }
  return taps;
}

std::uint8_t clipped(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

constexpr std::int32_t kHalf = 1 << (kFractionBits - 1);

DecodedImage resize_columns(const DecodedImage& image, int width, const Kernel& kernel) {
  const Taps taps = taps_of(image.size.width, width, kernel);
  DecodedImage result{{width, image.size.height}, {}};
  result.rgb.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(image.size.height) *
                    kChannels);
  const std::size_t row_bytes = static_cast<std::size_t>(image.size.width) * kChannels;
  std::uint8_t* out = result.rgb.data();
  for (int row = 0; row < image.size.height; ++row) {
    const std::uint8_t* in = image.rgb.data() + static_cast<std::size_t>(row) * row_bytes;
    for (std::size_t column = 0; column < static_cast<std::size_t>(width); ++column) {
      const Taps::Run run = taps.runs[column];
      const std::int32_t* weights = taps.of(column);
      const std::uint8_t* pixel = in + static_cast<std::size_t>(run.begin) * kChannels;
      std::int32_t red = kHalf;
      std::int32_t green = kHalf;
      std::int32_t blue = kHalf;
      for (int i = 0; i < run.size; ++i, pixel += kChannels) {
        red += pixel[0] * weights[i];
        green += pixel[1] * weights[i];
        blue += pixel[2] * weights[i];
      }
      *out++ = clipped(red);
      *out++ = clipped(green);
      *out++ = clipped(blue);
    }
  }
  return result;
}

DecodedImage resize_rows(const DecodedImage& image, int height, const Kernel& kernel) {
  const Taps taps = taps_of(image.size.height, height, kernel);
  const std::size_t row_bytes = static_cast<std::size_t>(image.size.width) * kChannels;
  DecodedImage result{{image.size.width, height}, {}};
  result.rgb.resize(row_bytes * static_cast<std::size_t>(height));
  std::vector<std::int32_t> sums(row_bytes);
  for (std::size_t row = 0; row < static_cast<std::size_t>(height); ++row) {
    std::fill(sums.begin(), sums.end(), kHalf);
    const Taps::Run run = taps.runs[row];
    for (int i = 0; i < run.size; ++i) {
      const std::uint8_t* in =
          image.rgb.data() + static_cast<std::size_t>(run.begin + i) * row_bytes;
      const std::int32_t weight = taps.of(row)[i];
      for (std::size_t byte = 0; byte < row_bytes; ++byte) {
        sums[byte] += in[byte] * weight;
      }
    }
    std::transform(sums.begin(), sums.end(), result.rgb.data() + row * row_bytes, clipped);
  }
  return result;
}

}  // namespace

DecodedImage resize(const DecodedImage& image, ImageSize size, ResizeFilter filter) {
  ENTRAIN_INVARIANT(std::min({image.size.width, image.size.height, size.width, size.height}) >= 1,
                    "an image without pixels");
  if (image.size == size) {
    return image;
  }
  const Kernel kernel = kernel_of(filter);
  if (image.size.width == size.width) {
    return resize_rows(image, size.height, kernel);
  }
  const DecodedImage columns = resize_columns(image, size.width, kernel);
  return image.size.height == size.height ? columns : resize_rows(columns, size.height, kernel);
}

}  // namespace entrain
