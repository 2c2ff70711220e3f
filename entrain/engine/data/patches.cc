#include "entrain/engine/data/patches.h"

#include <algorithm>
#include <array>

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

SegmentData cut(const at::Tensor& pixels, ImageSize size, const EncoderSpec& encoder) {
  return {cut_patches(pixels, encoder.patch_size, encoder.merge_size, encoder.temporal_patch_size),
          size.height / encoder.patch_size,
          size.width / encoder.patch_size};
}

}  // namespace

SegmentData patches_of(const DecodedImage& image, const EncoderSpec& encoder) {
  const ImageSize target = encoder_image_size(encoder, image.size);
  const DecodedImage whole = resize_bicubic(image, whole_size(image.size, target, encoder));
  // from_blob takes no const memory; the tensor is only read.
  const at::Tensor bytes = at::from_blob(const_cast<std::uint8_t*>(whole.rgb.data()),
                                         {whole.size.height, whole.size.width, 3},
                                         at::TensorOptions(at::kByte));
  const at::Tensor pixels = bytes.permute({2, 0, 1}).to(at::kFloat).contiguous();
  return cut(normalised(encoder.center_crop ? cropped(pixels, target.width) : pixels, encoder),
             target,
             encoder);
}

SegmentData white_patches(ImageSize size, const EncoderSpec& encoder) {
  const ImageSize target = encoder_image_size(encoder, size);
  return cut(normalised(at::full({3, target.height, target.width}, 255.0, at::kFloat), encoder),
             target,
             encoder);
}

at::Tensor cut_patches(const at::Tensor& pixels, int patch_size, int merge_size, int frames) {
  const std::int64_t block = std::int64_t{patch_size} * merge_size;
  ENTRAIN_INVARIANT(pixels.dim() == 3 && pixels.size(0) == 3 && pixels.size(1) % block == 0 &&
                        pixels.size(2) % block == 0,
                    concat("pixels of ",
                           pixels.size(2),
                           "x",
                           pixels.size(1),
                           " do not divide into merge blocks of ",
                           block));
  const std::int64_t block_rows = pixels.size(1) / block;
  const std::int64_t block_columns = pixels.size(2) / block;
  return pixels.view({3, block_rows, merge_size, patch_size, block_columns, merge_size, patch_size})
      .permute({1, 4, 2, 5, 0, 3, 6})
      .unsqueeze(5)
      .expand({-1, -1, -1, -1, -1, frames, -1, -1})
      .reshape({block_rows * block_columns * merge_size * merge_size,
                std::int64_t{3} * frames * patch_size * patch_size});
}

}  // namespace entrain::engine
