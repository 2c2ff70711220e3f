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

// The canvas on which an image has the most pixels, though not more than its own; of equal ones
// that with the least rest, then the first.
ImageTiles fullest_canvas(ImageSize image, int side, const TilingSpec& tiling) {
  const std::int64_t own = std::int64_t{image.width} * image.height;
  ImageTiles best;
  std::int64_t most = -1;
  std::int64_t least_rest = 0;
  for (const auto& [rows, columns] : tiling.canvases) {
    const std::int64_t width = std::int64_t{columns} * side;
    const std::int64_t height = std::int64_t{rows} * side;
    const double scale = std::min(static_cast<double>(width) / image.width,
                                  static_cast<double>(height) / image.height);
    const std::int64_t pixels = std::min(own,
                                         static_cast<std::int64_t>(image.width * scale) *
                                             static_cast<std::int64_t>(image.height * scale));
    const std::int64_t rest = width * height - pixels;
    if (pixels > most || (pixels == most && rest < least_rest)) {
      most = pixels;
      least_rest = rest;
      best = {rows, columns, true};
    }
  }
  return best;
}

// How often `step` fits into `length`, as Python's // says of doubles.
int whole_times(int length, double step) {
  const double rest = std::fmod(static_cast<double>(length), step);
  return static_cast<int>(std::nearbyint((length - rest) / step));
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
    return {image_side(encoder), image_side(encoder)};
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

ImageSize fitted_size(ImageSize image, ImageSize canvas) {
  // In doubles and this order, since the original is.
  const double by_width = static_cast<double>(canvas.width) / image.width;
  const double by_height = static_cast<double>(canvas.height) / image.height;
  return by_width < by_height
             ? ImageSize{canvas.width,
                         std::min(static_cast<int>(std::ceil(image.height * by_width)),
                                  canvas.height)}
             : ImageSize{
                   std::min(static_cast<int>(std::ceil(image.width * by_height)), canvas.width),
                   canvas.height};
}

ImageTiles tile_segments(const EncoderSpec& encoder, ImageSize image) {
  return encoder.tiling.kind == TilingSpec::Kind::kAnyResolution ? ImageTiles()
                                                                 : image_tiles(encoder, image);
}

FeatureCanvas feature_canvas(const EncoderSpec& encoder, ImageSize image, bool alone) {
  FeatureCanvas canvas;
  canvas.tiles = image_tiles(encoder, image, alone);
  if (canvas.tiles.count() == 1) {
    return canvas;
  }
  canvas.rows = canvas.tiles.rows * encoder.table_side;
  canvas.columns = canvas.tiles.columns * encoder.table_side;
  // In doubles and this order, since the original is; it rounds to seven digits and then down.
  constexpr double kRounding = 0.5e-7;
  const double aspect_ratio = static_cast<double>(image.width) / image.height;
  if (aspect_ratio > static_cast<double>(canvas.columns) / canvas.rows) {
    const double scale = static_cast<double>(canvas.columns) / image.width;
    canvas.top = (canvas.rows - static_cast<int>(image.height * scale + kRounding)) / 2;
    canvas.rows -= 2 * canvas.top;
  } else {
    const double scale = static_cast<double>(canvas.rows) / image.height;
    canvas.left = (canvas.columns - static_cast<int>(image.width * scale + kRounding)) / 2;
    canvas.columns -= 2 * canvas.left;
  }
  canvas.resized_rows = canvas.rows;
  canvas.resized_columns = canvas.columns;
  if (encoder.tiling.feature_tiles > 0) {
    const double most =
        static_cast<double>(encoder.tiling.feature_tiles) * encoder.table_side * encoder.table_side;
    const double ratio = std::sqrt(static_cast<double>(canvas.rows) * canvas.columns / most);
    if (ratio > 1.1) {
      canvas.resized_rows = whole_times(canvas.rows, ratio);
      canvas.resized_columns = whole_times(canvas.columns, ratio);
      if (canvas.resized_rows < 1 || canvas.resized_columns < 1) {
        throw InvalidInput(
            fmt::format("image of {}x{} pixels; its {}x{} features are too narrow to "
                        "be resized to {} tiles",
                        image.width,
                        image.height,
                        canvas.columns,
                        canvas.rows,
                        encoder.tiling.feature_tiles));
      }
    }
  }
  return canvas;
}

std::int64_t canvas_features(const EncoderSpec& encoder, const FeatureCanvas& canvas) {
  const std::int64_t of_canvas =
      std::int64_t{canvas.resized_rows} * (std::int64_t{canvas.resized_columns} + 1);
  return std::int64_t{encoder.table_side} * encoder.table_side +
         (canvas.tiles.count() == 1 ? 1 : of_canvas);
}

ImageTiles image_tiles(const EncoderSpec& encoder, ImageSize image, bool alone) {
  const TilingSpec& tiling = encoder.tiling;
  if (tiling.kind == TilingSpec::Kind::kNone) {
    return {};
  }
  check_sides(image);
  const int side = image_side(encoder);
  if (tiling.kind == TilingSpec::Kind::kAnyResolution) {
    const bool cut = alone || !tiling.single_image;
    return cut ? fullest_canvas(image, side, tiling) : ImageTiles{0, 0, true};
  }
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
