#include "entrain/engine/data/patches.h"

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/workload.h"

namespace entrain::engine {

SegmentData patches_of(const DecodedImage& image, const EncoderSpec& encoder) {
  const ImageSize target = encoder_image_size(encoder, image.size);
  // from_blob takes no const memory; the tensor is only read.
  const at::Tensor bytes = at::from_blob(const_cast<std::uint8_t*>(image.rgb.data()),
                                         {image.size.height, image.size.width, 3},
                                         at::TensorOptions(at::kByte));
  at::Tensor pixels = bytes.permute({2, 0, 1}).to(at::kFloat).contiguous();
  if (target != image.size) {
    pixels = at::_upsample_bicubic2d_aa(
                 pixels.unsqueeze(0), {target.height, target.width}, /*align_corners=*/false)
                 .squeeze(0)
                 .clamp_(0, 255);
  }
  pixels.div_(127.5).sub_(1.0);
  return {cut_patches(pixels, encoder.patch_size, encoder.merge_size, encoder.temporal_patch_size),
          target.height / encoder.patch_size,
          target.width / encoder.patch_size};
}

SegmentData white_patches(ImageSize size, const EncoderSpec& encoder) {
  const ImageSize target = encoder_image_size(encoder, size);
  const std::int64_t rows = target.height / encoder.patch_size;
  const std::int64_t columns = target.width / encoder.patch_size;
  const std::int64_t values = patch_values(encoder);
  return {at::ones({rows * columns, values}, at::kFloat), rows, columns};
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
