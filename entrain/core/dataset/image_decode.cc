#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/image.h"

namespace entrain {
namespace {

// libpng and libjpeg report errors with longjmp. The functions that call setjmp hold only trivial
// objects; memory and messages live in the state that their callers own.

constexpr std::size_t kMessageSize = 256;

struct PngState {
  std::string_view input;
  std::size_t position = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::uint64_t expanded_bytes = 0;  // of the stored rows, filters left out
  std::vector<std::uint8_t> rgba;    // [height, width, 4]
  std::vector<png_bytep> rows;       // [height]
  std::array<char, kMessageSize> message{};
  std::jmp_buf escape{};
};

[[noreturn]] void png_failed(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state->message.data(), kMessageSize, "%s", message);
  std::longjmp(state->escape, 1);
}

void png_warned(png_structp, png_const_charp) {}

void png_read_input(png_structp png, png_bytep target, std::size_t size) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (size > state->input.size() - state->position) {
    png_error(png, "it ends too early");
  }
  std::memcpy(target, state->input.data() + state->position, size);
  state->position += size;
}

// Reads up to the pixel data and asks for RGBA of 8 bits.
bool png_begin(PngState& state) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
  png_set_read_fn(state.png, &state, png_read_input);
  png_set_crc_action(state.png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
  png_read_info(state.png, state.info);
  state.expanded_bytes = static_cast<std::uint64_t>(png_get_rowbytes(state.png, state.info)) *
                         png_get_image_height(state.png, state.info);
  png_set_scale_16(state.png);
  png_set_expand(state.png);
  png_set_gray_to_rgb(state.png);
  png_set_add_alpha(state.png, 0xFF, PNG_FILLER_AFTER);
  png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
  return true;
}

bool png_finish(PngState& state) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
  png_read_image(state.png, state.rows.data());
  png_read_end(state.png, nullptr);
  return true;
}

// c·a + white·(1 − a), rounded to nearest.
std::uint8_t over_white(unsigned colour, unsigned alpha) {
  return static_cast<std::uint8_t>((colour * alpha + 255U * (255U - alpha) + 127U) / 255U);
}

DecodedImage decode_png(std::string_view bytes, ImageSize size, const std::string& where) {
  PngState state;
  state.input = bytes;
  state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_failed, png_warned);
  state.info = state.png == nullptr ? nullptr : png_create_info_struct(state.png);
  struct Release {
    PngState& state;
    ~Release() { png_destroy_read_struct(&state.png, &state.info, nullptr); }
  } const release{state};
  if (state.info == nullptr) {
    throw SystemFailure(fmt::format("{}: no memory to decode a PNG", where));
  }
  const auto damaged = [&](const char* message) {
    return InvalidInput(fmt::format("{}: damaged PNG: {}", where, message));
  };
  if (!png_begin(state)) {
    throw damaged(state.message.data());
  }
  // Deflate shrinks 1032 times at most: a file that claims more cannot hold its pixels.
  if (state.expanded_bytes / 1032 > bytes.size()) {
    throw damaged("it is too short for the size that its header claims");
  }
  const auto width = static_cast<std::size_t>(size.width);
  const auto height = static_cast<std::size_t>(size.height);
  ENTRAIN_INVARIANT(png_get_rowbytes(state.png, state.info) == width * 4, "PNG rows are not RGBA");
  state.rgba.resize(width * height * 4);
  for (std::size_t row = 0; row < height; ++row) {
    state.rows.push_back(state.rgba.data() + row * width * 4);
  }
  if (!png_finish(state)) {
    throw damaged(state.message.data());
  }
  DecodedImage image{size, std::vector<std::uint8_t>(width * height * 3)};
  for (std::size_t pixel = 0; pixel < width * height; ++pixel) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      image.rgb[pixel * 3 + channel] =
          over_white(state.rgba[pixel * 4 + channel], state.rgba[pixel * 4 + 3]);
    }
  }
  return image;
}

struct JpegState {
  jpeg_decompress_struct decoder{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::uint8_t* rgb = nullptr;  // [height, width, 3]
  ImageSize size;
  std::array<char, JMSG_LENGTH_MAX> message{};
  std::jmp_buf escape{};
};

JpegState& jpeg_state(j_common_ptr decoder) {
  return *static_cast<JpegState*>(decoder->client_data);
}

[[noreturn]] void jpeg_failed(j_common_ptr decoder) {
  JpegState& state = jpeg_state(decoder);
  (*decoder->err->format_message)(decoder, state.message.data());
  std::longjmp(state.escape, 1);
}

// Warnings that mean missing or damaged pixels are errors; others (stray bytes) are left alone.
void jpeg_warned(j_common_ptr decoder, int level) {
  const int code = decoder->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                    code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC)) {
    jpeg_failed(decoder);
  }
}

// A progressive file of a few kilobytes may hold thousands of scans over all pixels.
void jpeg_progressed(j_common_ptr decoder) {
  constexpr int kMaxScans = 200;
  if (reinterpret_cast<j_decompress_ptr>(decoder)->input_scan_number > kMaxScans) {
    std::snprintf(
        jpeg_state(decoder).message.data(), JMSG_LENGTH_MAX, "more than %d scans", kMaxScans);
    std::longjmp(jpeg_state(decoder).escape, 1);
  }
}

void jpeg_silent(j_common_ptr) {}

bool jpeg_open(JpegState& state) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
  jpeg_create_decompress(&state.decoder);
  return true;
}

bool jpeg_read(JpegState& state, const unsigned char* input, unsigned long size) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
  jpeg_decompress_struct& decoder = state.decoder;
  decoder.progress = &state.progress;
  jpeg_mem_src(&decoder, input, size);
  jpeg_read_header(&decoder, TRUE);
  decoder.out_color_space = JCS_RGB;
  jpeg_start_decompress(&decoder);
  if (std::cmp_not_equal(decoder.output_width, state.size.width) ||
      std::cmp_not_equal(decoder.output_height, state.size.height) ||
      decoder.output_components != 3) {
    std::snprintf(state.message.data(), JMSG_LENGTH_MAX, "two frame headers that differ");
    return false;
  }
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW row = state.rgb + std::size_t{decoder.output_scanline} * decoder.output_width * 3;
    jpeg_read_scanlines(&decoder, &row, 1);
  }
  jpeg_finish_decompress(&decoder);
  return true;
}

DecodedImage decode_jpeg(std::string_view bytes, ImageSize size, const std::string& where) {
  DecodedImage image{size, {}};
  image.rgb.resize(static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height) *
                   3);
  JpegState state;
  state.size = size;
  state.rgb = image.rgb.data();
  state.decoder.err = jpeg_std_error(&state.errors);
  state.errors.error_exit = jpeg_failed;
  state.errors.emit_message = jpeg_warned;
  state.errors.output_message = jpeg_silent;
  state.progress.progress_monitor = jpeg_progressed;
  state.decoder.client_data = &state;
  struct Release {
    JpegState& state;
    ~Release() { jpeg_destroy_decompress(&state.decoder); }
  } const release{state};
  if (!jpeg_open(state)) {
    throw SystemFailure(fmt::format("{}: cannot decode JPEG: {}", where, state.message.data()));
  }
  if (!jpeg_read(state, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) {
    throw InvalidInput(fmt::format("{}: damaged JPEG: {}", where, state.message.data()));
  }
  return image;
}

}  // namespace

DecodedImage decode_image(std::string_view bytes, const std::string& where) {
  const ImageSize size = image_size(bytes, where);
  return bytes[0] == '\x89' ? decode_png(bytes, size, where) : decode_jpeg(bytes, size, where);
}

}  // namespace entrain
