#include "tests/oracle/slow_tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace entrain::oracle {
namespace {

int next_multiple(int value, int side) {
  int result = 0;
  while (result < value) {
    result += side;
  }
  return result;
}

ImageTiles cut_tiles(ImageSize image, int longest_edge, int side) {
  double ratio = static_cast<double>(image.width) / image.height;
  int width = longest_edge;
  int height = longest_edge;
  if (image.width >= image.height) {
    height = static_cast<int>(width / ratio);
    height += height % 2 == 0 ? 0 : 1;
  } else {
    width = static_cast<int>(height * ratio);
    width += width % 2 == 0 ? 0 : 1;
  }
  width = std::max(width, 1);
  height = std::max(height, 1);
  ratio = static_cast<double>(width) / height;
  if (width >= height) {
    width = next_multiple(width, side);
    height = next_multiple(static_cast<int>(width / ratio), side);
  } else {
    height = next_multiple(height, side);
    width = next_multiple(static_cast<int>(height * ratio), side);
  }
  ImageTiles tiles = {0, 0, width > side || height > side};
  for (int top = 0; top < height; top += side) {
    ++tiles.rows;
  }
  for (int left = 0; left < width; left += side) {
    ++tiles.columns;
  }
  return tiles;
}

ImageTiles choose_canvas(ImageSize image, int side, int min_tiles, int max_tiles) {
  std::vector<std::pair<int, int>> grids;  // columns, rows
  for (int columns = 1; columns <= max_tiles; ++columns) {
    for (int rows = 1; rows <= max_tiles; ++rows) {
      if (rows * columns >= min_tiles && rows * columns <= max_tiles) {
        grids.emplace_back(columns, rows);
      }
    }
  }
  std::stable_sort(grids.begin(), grids.end(), [](const auto& a, const auto& b) {
    return a.first * a.second < b.first * b.second;
  });
  const double ratio = static_cast<double>(image.width) / image.height;
  const auto difference = [&](const std::pair<int, int>& grid) {
    return std::abs(ratio - static_cast<double>(grid.first) / grid.second);
  };
  std::pair<int, int> best = grids.front();
  for (const std::pair<int, int>& grid : grids) {
    const double pixels = static_cast<double>(image.width) * image.height;
    const bool large = pixels > 0.5 * side * side * grid.first * grid.second;
    if (difference(grid) < difference(best) || (difference(grid) == difference(best) && large)) {
      best = grid;
    }
  }
  return {best.second, best.first, best.first * best.second > 1};
}

// By sorting all canvases: most of the image's pixels first, then least rest.
ImageTiles choose_largest(ImageSize image, int side, std::vector<std::array<int, 2>> canvases) {
  const auto pixels = [&](const std::array<int, 2>& canvas) {
    const double scale = std::min(static_cast<double>(canvas[1] * side) / image.width,
                                  static_cast<double>(canvas[0] * side) / image.height);
    const double shown = std::floor(image.width * scale) * std::floor(image.height * scale);
    return std::min(shown, static_cast<double>(image.width) * image.height);
  };
  std::stable_sort(canvases.begin(), canvases.end(), [&](const auto& a, const auto& b) {
    const auto rest = [&](const auto& canvas) {
      return static_cast<double>(canvas[0] * canvas[1]) * side * side - pixels(canvas);
    };
    return pixels(a) > pixels(b) || (pixels(a) == pixels(b) && rest(a) < rest(b));
  });
  return {canvases.front()[0], canvases.front()[1], true};
}

}  // namespace

ImageTiles slow_image_tiles(const EncoderSpec& encoder, ImageSize image) {
  const TilingSpec& tiling = encoder.tiling;
  const int side = encoder.table_side * encoder.patch_size + encoder.unused_pixels;
  switch (tiling.kind) {
    case TilingSpec::Kind::kNone:
      return {};
    case TilingSpec::Kind::kLongestEdge:
      return tiling.split ? cut_tiles(image, tiling.longest_edge, side) : ImageTiles();
    case TilingSpec::Kind::kBestCanvas:
      return choose_canvas(image, side, tiling.min_tiles, tiling.max_tiles);
    case TilingSpec::Kind::kAnyResolution:
      return choose_largest(image, side, tiling.canvases);
  }
  return {};
}

}  // namespace entrain::oracle
