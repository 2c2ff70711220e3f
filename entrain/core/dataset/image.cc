#include "entrain/core/dataset/image.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/image_formats.h"

namespace entrain {
namespace {

struct ImageFormat {
  bool (*begins)(std::string_view bytes);
  StoredImage (*read_header)(const BytesAt& bytes, std::int64_t size, const std::string& where);
  StoredImage (*decode)(std::string_view bytes, const std::string& where);
};

constexpr std::int64_t kSignature = 12;  // bytes that tell a format

constexpr std::array<ImageFormat, 4> kFormats = {
    {{[](std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1A\n"); },
      read_png_header,
      decode_png},
     {[](std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"); },
      read_jpeg_header,
      decode_jpeg},
     {[](std::string_view bytes) {
        return bytes.starts_with("RIFF") &&
               bytes.substr(std::min<std::size_t>(8, bytes.size())).starts_with("WEBP");
      },
      read_webp_header,
      decode_webp},
     {[](std::string_view bytes) {
        return bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a");
      },
      read_gif_header,
      decode_gif}}};

// What other images begin with.
std::string_view other_format(std::string_view bytes) {
  const std::string_view brand = bytes.substr(std::min<std::size_t>(4, bytes.size()));
  return bytes.starts_with("BM") ? "a BMP image"
         : bytes.starts_with("II*") || bytes.starts_with(std::string_view("MM\0*", 4))
             ? "a TIFF image"
         : brand.starts_with("ftypavif") || brand.starts_with("ftypavis") ? "an AVIF image"
         : brand.starts_with("ftyp") ? "a HEIC image or a video"
                                     : "another format";
}

const ImageFormat& format_of_image(std::string_view bytes, const std::string& where) {
  const auto* format = std::find_if(
      kFormats.begin(), kFormats.end(), [&](const auto& known) { return known.begins(bytes); });
  if (format == kFormats.end()) {
    throw InvalidInput(
        bytes.empty() ? fmt::format("{}: an empty image", where)
                      : fmt::format("{}: {}; allowed are PNG, JPEG, WebP and GIF: convert it, as "
                                    "`magick x.tiff x.png` does",
                                    where,
                                    other_format(bytes)));
  }
  return *format;
}

bool is_turned(int orientation) {
  return orientation >= 5;
}

ImageSize upright_size(const StoredImage& image) {
  return is_turned(image.orientation) ? ImageSize{image.size.height, image.size.width} : image.size;
}

std::vector<std::uint8_t> upright_pixels(StoredImage image) {
  if (image.orientation == 1) {
    return std::move(image.rgb);
  }
  constexpr auto kFlipped = [](int orientation, const std::array<int, 4>& orientations) {
    return std::find(orientations.begin(), orientations.end(), orientation) != orientations.end();
  };
  const bool flip_columns = kFlipped(image.orientation, {2, 3, 7, 8});
  const bool flip_rows = kFlipped(image.orientation, {3, 4, 6, 7});
  const auto width = static_cast<std::size_t>(image.size.width);
  const auto height = static_cast<std::size_t>(image.size.height);
  const ImageSize shown = upright_size(image);
  std::vector<std::uint8_t> rgb(image.rgb.size());
  auto target = rgb.begin();
  for (std::size_t y = 0; std::cmp_less(y, shown.height); ++y) {
    for (std::size_t x = 0; std::cmp_less(x, shown.width); ++x) {
      const std::size_t column = is_turned(image.orientation) ? y : x;
      const std::size_t row = is_turned(image.orientation) ? x : y;
      const std::size_t pixel = (flip_rows ? height - 1 - row : row) * width +
                                (flip_columns ? width - 1 - column : column);
      target = std::copy_n(image.rgb.begin() + static_cast<std::ptrdiff_t>(pixel * 3), 3, target);
    }
  }
  return rgb;
}

}  // namespace

ImageSize checked_size(std::int64_t width, std::int64_t height, const std::string& where) {
  if (width < 1 || height < 1 || width > kMaxImagePixels / height) {
    throw InvalidInput(fmt::format("{}: an image of {}x{} pixels; allowed are 1 to {} pixels",
                                   where,
                                   width,
                                   height,
                                   kMaxImagePixels));
  }
  return {static_cast<int>(width), static_cast<int>(height)};
}

std::vector<std::uint8_t> over_white(std::span<const std::uint8_t> rgba) {
  std::vector<std::uint8_t> rgb(rgba.size() / 4 * 3);
  for (std::size_t pixel = 0; pixel < rgba.size() / 4; ++pixel) {
    const unsigned alpha = rgba[pixel * 4 + 3];
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const unsigned colour = rgba[pixel * 4 + channel];
      rgb[pixel * 3 + channel] =
          static_cast<std::uint8_t>((colour * alpha + 255U * (255U - alpha) + 127U) / 255U);
    }
  }
  return rgb;
}

ImageSize image_size(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  const ImageFormat& format = format_of_image(bytes(0, std::min(kSignature, size)), where);
  return upright_size(format.read_header(bytes, size, where));
}

DecodedImage decode_image(std::string_view bytes, const std::string& where) {
  StoredImage image = format_of_image(bytes, where).decode(bytes, where);
  const ImageSize size = upright_size(image);
  return {size, upright_pixels(std::move(image))};
}

}  // namespace entrain
