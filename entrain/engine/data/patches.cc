#include "entrain/engine/data/patches.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/resize.h"
#include "entrain/core/spec/workload.h"

namespace entrain::engine {

namespace {

at::Tensor cropped(const at::Tensor& pixels, std::int64_t side) {
  return pixels.narrow(1, (pixels.size(1) - side) / 2, side)
      .narrow(2, (pixels.size(2) - side) / 2, side)
      .contiguous();
}

// The size before it is cut.
ImageSize whole_size(ImageSize image, ImageSize target, const EncoderSpec& encoder) {
  if (!encoder.center_crop) {
    return target;
  }
  const std::int64_t shorter = std::min(image.width, image.height);
  const auto scaled = [&](int side) {
    return static_cast<int>(std::int64_t{target.width} * side / shorter);
  };
  return {scaled(image.width), scaled(image.height)};
}

// From [0, 255], in place.
at::Tensor normalised(at::Tensor pixels, const EncoderSpec& encoder) {
  const EncoderSpec usual;
  if (encoder.pixel_mean == usual.pixel_mean && encoder.pixel_deviation == usual.pixel_deviation) {
    return pixels.div_(127.5).sub_(1.0);
  }
  const auto channels = [](const std::array<double, 3>& values) {
    return at::tensor(at::ArrayRef<double>(values.data(), values.size()), at::kFloat)
        .view({3, 1, 1});
  };
  return pixels.div_(255.0)
      .sub_(channels(encoder.pixel_mean))
      .div_(channels(encoder.pixel_deviation));
}

SegmentData cut(std::vector<at::Tensor> frames, const EncoderSpec& encoder) {
  const std::int64_t rows = frames.front().size(1) / encoder.patch_size;
  const std::int64_t columns = frames.front().size(2) / encoder.patch_size;
  if (encoder.unused_pixels > 0) {
    at::Tensor& image = frames.front();
    image = image.narrow(1, 0, rows * encoder.patch_size)
                .narrow(2, 0, columns * encoder.patch_size)
                .contiguous();
  }
  frames.resize(static_cast<std::size_t>(encoder.temporal_patch_size), frames.back());
  return {cut_patches(frames, encoder.patch_size, encoder.merge_size), rows, columns};
}

// A rectangle of the image, [3, height, width] float32 in [0, 255].
at::Tensor pixels_of(const DecodedImage& image,
                     std::int64_t top,
                     std::int64_t left,
                     ImageSize size) {
  // from_blob takes no const memory; the tensor is only read.
  const at::Tensor bytes = at::from_blob(const_cast<std::uint8_t*>(image.rgb.data()),
                                         {image.size.height, image.size.width, 3},
                                         at::TensorOptions(at::kByte));
  return bytes.narrow(0, top, size.height)
      .narrow(1, left, size.width)
      .permute({2, 0, 1})
      .to(at::kFloat)
      .contiguous();
}

at::Tensor pixels_of(const DecodedImage& image) {
  return pixels_of(image, 0, 0, image.size);
}

// The image in the middle of one of this size and colour.
DecodedImage padded(const DecodedImage& image,
                    ImageSize size,
                    const std::array<std::uint8_t, 3>& colour) {
  DecodedImage result;
  result.size = size;
  result.rgb.resize(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) *
                    3);
  for (std::size_t i = 0; i < result.rgb.size(); ++i) {
    result.rgb[i] = colour[i % 3];
  }
  const auto row_bytes = static_cast<std::size_t>(image.size.width) * 3;
  const auto top = static_cast<std::size_t>((size.height - image.size.height) / 2);
  const auto left = static_cast<std::size_t>((size.width - image.size.width) / 2);
  for (std::size_t row = 0; row < static_cast<std::size_t>(image.size.height); ++row) {
    std::copy_n(
        image.rgb.begin() + static_cast<std::ptrdiff_t>(row * row_bytes),
        row_bytes,
        result.rgb.begin() + static_cast<std::ptrdiff_t>(
                                 ((top + row) * static_cast<std::size_t>(size.width) + left) * 3));
  }
  return result;
}

ResizedImage on_canvas(const DecodedImage& image, const EncoderSpec& encoder, bool alone) {
  const int side = image_side(encoder);
  ResizedImage result;
  result.tiles = image_tiles(encoder, image.size, alone);
  if (result.tiles.count() == 1) {
    std::array<std::uint8_t, 3> colour = {};
    for (std::size_t i = 0; i < colour.size(); ++i) {
      colour[i] = static_cast<std::uint8_t>(encoder.pixel_mean[i] * 255);
    }
    const int longer = std::max(image.size.width, image.size.height);
    result.whole =
        resize(padded(image, {longer, longer}, colour), {side, side}, encoder.resize_filter);
    return result;
  }
  const ImageSize canvas = {result.tiles.columns * side, result.tiles.rows * side};
  const ImageSize fitted = fitted_size(image.size, canvas);
  result.grid = padded(resize(image, fitted, encoder.resize_filter), canvas, {});
  result.whole = resize(image, {side, side}, encoder.resize_filter);
  return result;
}

}  // namespace

ResizedImage resize_image(DecodedImage image, const EncoderSpec& encoder, bool alone) {
  if (encoder.tiling.kind == TilingSpec::Kind::kAnyResolution) {
    return on_canvas(image, encoder, alone);
  }
  const ImageSize target = encoder_image_size(encoder, image.size);
  const ResizeFilter filter = encoder.resize_filter;
  const TilingSpec& tiling = encoder.tiling;
  ResizedImage result;
  result.tiles = image_tiles(encoder, image.size);
  if (tiling.kind == TilingSpec::Kind::kLongestEdge) {
    image = resize(image, longest_edge_size(image.size, tiling.longest_edge), filter);
  }
  const ImageSize grid = {target.width * result.tiles.columns, target.height * result.tiles.rows};
  result.grid = resize(image, whole_size(image.size, grid, encoder), filter);
  if (result.tiles.whole) {
    const bool twice = tiling.kind == TilingSpec::Kind::kLongestEdge;
    result.whole = resize(twice ? result.grid : image, target, filter);
  }
  return result;
}

SegmentData patches_of(const ResizedImage& image, std::int64_t tile, const EncoderSpec& encoder) {
  const ImageTiles& tiles = image.tiles;
  if (encoder.tiling.kind == TilingSpec::Kind::kAnyResolution) {
    ENTRAIN_INVARIANT(tile == 0, "the tiles are one segment");
    const int side = image_side(encoder);
    SegmentData data = cut({normalised(pixels_of(image.whole), encoder)}, encoder);
    std::vector<at::Tensor> inputs = {data.input};
    for (int i = 0; i < tiles.rows * tiles.columns; ++i) {
      const at::Tensor pixels =
          pixels_of(image.grid, i / tiles.columns * side, i % tiles.columns * side, {side, side});
      inputs.push_back(cut({normalised(pixels, encoder)}, encoder).input);
    }
    data.input = at::cat(inputs);
    return data;
  }
  ENTRAIN_INVARIANT(tile >= 0 && tile < tiles.count(),
                    concat("tile ", tile, " of ", tiles.count()));
  if (encoder.center_crop) {
    return cut({normalised(cropped(pixels_of(image.grid), image_side(encoder)), encoder)}, encoder);
  }
  if (tiles.whole && tile == tiles.count() - 1) {
    return cut({normalised(pixels_of(image.whole), encoder)}, encoder);
  }
  const ImageSize size = {image.grid.size.width / tiles.columns,
                          image.grid.size.height / tiles.rows};
  const std::int64_t top = tile / tiles.columns * size.height;
  const std::int64_t left = tile % tiles.columns * size.width;
  return cut({normalised(pixels_of(image.grid, top, left, size), encoder)}, encoder);
}

SegmentData patches_of_frames(const DecodedImage& first,
                              const DecodedImage& second,
                              const EncoderSpec& encoder) {
  ENTRAIN_INVARIANT(encoder.temporal_patch_size == 2, "patches of one frame");
  return cut({normalised(pixels_of(first), encoder), normalised(pixels_of(second), encoder)},
             encoder);
}

std::array<std::array<float, 256>, 3> normalised_values(const EncoderSpec& encoder) {
  const at::Tensor values =
      normalised(at::arange(256, at::kFloat).repeat({3, 1, 1}), encoder).contiguous();
  std::array<std::array<float, 256>, 3> result{};
  for (std::size_t channel = 0; channel < result.size(); ++channel) {
    std::copy_n(values.const_data_ptr<float>() + channel * 256, 256, result[channel].begin());
  }
  return result;
}

SegmentData white_patches(ImageSize size, const EncoderSpec& encoder) {
  return cut({normalised(at::full({3, size.height, size.width}, 255.0, at::kFloat), encoder)},
             encoder);
}

at::Tensor cut_patches(at::TensorList frames, int patch_size, int merge_size) {
  const std::int64_t block = std::int64_t{patch_size} * merge_size;
  const at::Tensor pixels = at::stack(frames, 1);
  ENTRAIN_INVARIANT(pixels.dim() == 4 && pixels.size(0) == 3 && pixels.size(2) % block == 0 &&
                        pixels.size(3) % block == 0,
                    concat("pixels of ",
                           pixels.size(3),
                           "x",
                           pixels.size(2),
                           " do not divide into merge blocks of ",
                           block));
  const std::int64_t num_frames = pixels.size(1);
  const std::int64_t block_rows = pixels.size(2) / block;
  const std::int64_t block_columns = pixels.size(3) / block;
  return pixels
      .view({3,
             num_frames,
             block_rows,
             merge_size,
             patch_size,
             block_columns,
             merge_size,
             patch_size})
      .permute({2, 5, 3, 6, 0, 1, 4, 7})
      .reshape({block_rows * block_columns * merge_size * merge_size,
                3 * num_frames * patch_size * patch_size});
}

}  // namespace entrain::engine
