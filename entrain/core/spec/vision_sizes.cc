#include "entrain/core/spec/vision_sizes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr int kLongestSide = 1 << 24;

void check_sides(ImageSize image) {
  const auto [shorter, longer] = std::minmax(image.width, image.height);
  if (shorter < 1 || longer > kLongestSide) {
    throw InvalidInput(fmt::format("image of {}x{} pixels; sides in [1, {}] are needed",
                                   image.width,
                                   image.height,
                                   kLongestSide));
  }
}

int tiles_along(int pixels, int side) {
  return (pixels + side - 1) / side;
}

// Tiles of `side` that cover an image: whole tiles along its longer edge, and along the other one
// what keeps the aspect ratio.
ImageTiles covering_tiles(ImageSize image, int side) {
  // In doubles and this order, since the original is.
  const double aspect_ratio = static_cast<double>(image.width) / image.height;
  ImageTiles tiles;
  if (image.width >= image.height) {
    tiles.columns = tiles_along(image.width, side);
    tiles.rows = tiles_along(static_cast<int>(tiles.columns * side / aspect_ratio), side);
  } else {
    tiles.rows = tiles_along(image.height, side);
    tiles.columns = tiles_along(static_cast<int>(tiles.rows * side * aspect_ratio), side);
  }
  return tiles;
}

ImageTiles best_canvas(ImageSize image, int side, int min_tiles, int max_tiles) {
  const double aspect_ratio = static_cast<double>(image.width) / image.height;
  const double half_tile = 0.5 * side * side;
  const double pixels = static_cast<double>(image.width) * image.height;
  ImageTiles best;
  double best_difference = std::numeric_limits<double>::infinity();
  for (int count = min_tiles; count <= max_tiles; ++count) {
    for (int columns = 1; columns <= count; ++columns) {
      if (count % columns != 0) {
        continue;
      }
      const int rows = count / columns;
      const double difference = std::abs(aspect_ratio - static_cast<double>(columns) / rows);
      if (difference < best_difference ||
          (difference == best_difference && pixels > half_tile * count)) {
        best_difference = difference;
        best = {rows, columns};
      }
    }
  }
  return best;
}

}  // namespace

ImageSize smart_resize(ImageSize image,
                       int factor,
                       std::int64_t min_pixels,
                       std::int64_t max_pixels,
                       std::int64_t frames) {
  check_sides(image);
  const auto [shorter, longer] = std::minmax(image.width, image.height);
  if (longer > std::int64_t{200} * shorter) {
    throw InvalidInput(
        fmt::format("image of {}x{} pixels; an aspect ratio of at most 200 is allowed",
                    image.width,
                    image.height));
  }
  const double width = image.width;
  const double height = image.height;
  const double area = static_cast<double>(frames) * height * width;
  // nearbyint rounds halves to even, as Python's round() does.
  auto columns = static_cast<std::int64_t>(std::nearbyint(width / factor));
  auto rows = static_cast<std::int64_t>(std::nearbyint(height / factor));
  const auto counted =
      frames == 1 ? 1
                  : 2 * static_cast<std::int64_t>(std::nearbyint(static_cast<double>(frames) / 2));
  const std::int64_t pixels = counted * columns * factor * rows * factor;
  if (pixels > max_pixels) {
    const double scale = std::sqrt(area / static_cast<double>(max_pixels));
    columns =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(width / scale / factor)));
    rows =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(height / scale / factor)));
  } else if (pixels < min_pixels) {
    const double scale = std::sqrt(static_cast<double>(min_pixels) / area);
    columns = static_cast<std::int64_t>(std::ceil(width * scale / factor));
    rows = static_cast<std::int64_t>(std::ceil(height * scale / factor));
  }
  return {static_cast<int>(columns * factor), static_cast<int>(rows * factor)};
}

ImageSize encoder_image_size(const EncoderSpec& encoder, ImageSize image) {
  if (has_one_size(encoder)) {
    const int side = encoder.table_side * encoder.patch_size;
    return {side, side};
  }
  return smart_resize(
      image, encoder.patch_size * encoder.merge_size, encoder.min_pixels, encoder.max_pixels);
}

ImageSize longest_edge_size(ImageSize image, int longest_edge) {
  const double aspect_ratio = static_cast<double>(image.width) / image.height;
  const auto even = [](double side) {
    const int whole = static_cast<int>(side);
    return std::max(1, whole + whole % 2);
  };
  return image.width >= image.height ? ImageSize{longest_edge, even(longest_edge / aspect_ratio)}
                                     : ImageSize{even(longest_edge * aspect_ratio), longest_edge};
}

ImageTiles image_tiles(const EncoderSpec& encoder, ImageSize image) {
  const TilingSpec& tiling = encoder.tiling;
  if (tiling.kind == TilingSpec::Kind::kNone) {
    return {};
  }
  check_sides(image);
  const int side = encoder.table_side * encoder.patch_size;
  ImageTiles tiles;
  if (tiling.kind == TilingSpec::Kind::kBestCanvas) {
    tiles = best_canvas(image, side, tiling.min_tiles, tiling.max_tiles);
  } else if (tiling.split) {
    tiles = covering_tiles(longest_edge_size(image, tiling.longest_edge), side);
  }
  tiles.whole = tiles.rows * tiles.columns > 1;
  return tiles;
}

}  // namespace entrain
