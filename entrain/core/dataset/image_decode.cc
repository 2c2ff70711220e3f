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

ImageSize checked_size(std::int64_t width, std::int64_t height, const std::string& where) {
  if (width * height > kMaxImagePixels) {
    throw InvalidInput(fmt::format("{}: an image of {}x{} pixels; allowed are 1 to {} pixels",
                                   where,
                                   width,
                                   height,
                                   kMaxImagePixels));
  }
  return {static_cast<int>(width), static_cast<int>(height)};
}

struct PngState {
  std::string_view input;
  std::size_t position = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::vector<std::uint8_t> rgba;  // [height, width, 4]
  std::vector<png_bytep> rows;     // [height]
  std::array<char, kMessageSize> message{};
  std::jmp_buf escape{};

  PngState(std::string_view bytes, const std::string& where);
  ~PngState() { png_destroy_read_struct(&png, &info, nullptr); }
  PngState(const PngState&) = delete;
  PngState& operator=(const PngState&) = delete;

  [[nodiscard]] InvalidInput damaged(const std::string& where) const {
    return InvalidInput(fmt::format("{}: damaged PNG: {}", where, message.data()));
  }
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

PngState::PngState(std::string_view bytes, const std::string& where)
    : input(bytes),
      png(png_create_read_struct(PNG_LIBPNG_VER_STRING, this, png_failed, png_warned)) {
  info = png == nullptr ? nullptr : png_create_info_struct(png);
  if (info == nullptr) {
    png_destroy_read_struct(&png, nullptr, nullptr);
    throw SystemFailure(fmt::format("{}: no memory to decode a PNG", where));
  }
}

// Reads up to the pixel data.
bool png_begin(PngState& state) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
  png_set_read_fn(state.png, &state, png_read_input);
  png_set_crc_action(state.png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
  png_read_info(state.png, state.info);
  return true;
}

// Asks for RGBA of 8 bits.
bool png_transform(PngState& state) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
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

// The rest of a header may be long; libpng is shown only the chunk that has the size, and has it
// when it misses the rest.
ImageSize png_size(std::string_view bytes, const std::string& where) {
  constexpr std::size_t kSizeEnd = 33;
  PngState state(bytes.substr(0, kSizeEnd), where);
  png_begin(state);
  if (png_get_rowbytes(state.png, state.info) == 0) {
    throw state.damaged(where);
  }
  return checked_size(png_get_image_width(state.png, state.info),
                      png_get_image_height(state.png, state.info),
                      where);
}

DecodedImage decode_png(std::string_view bytes, const std::string& where) {
  const ImageSize size = png_size(bytes, where);
  PngState state(bytes, where);
  if (!png_begin(state)) {
    throw state.damaged(where);
  }
  // Deflate shrinks 1032 times at most: a file that claims more cannot hold its pixels.
  if (std::uint64_t{png_get_rowbytes(state.png, state.info)} *
          static_cast<std::uint64_t>(size.height) / 1032 >
      bytes.size()) {
    throw InvalidInput(
        fmt::format("{}: damaged PNG: it is too short for the size that its header claims", where));
  }
  if (!png_transform(state)) {
    throw state.damaged(where);
  }
  const auto width = static_cast<std::size_t>(size.width);
  const auto height = static_cast<std::size_t>(size.height);
  ENTRAIN_INVARIANT(png_get_rowbytes(state.png, state.info) == width * 4, "PNG rows are not RGBA");
  state.rgba.resize(width * height * 4);
  for (std::size_t row = 0; row < height; ++row) {
    state.rows.push_back(state.rgba.data() + row * width * 4);
  }
  if (!png_finish(state)) {
    throw state.damaged(where);
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
  std::uint8_t* rgb = nullptr;  // [height, width, 3]; none while only the header is read
  std::array<char, JMSG_LENGTH_MAX> message{};
  std::jmp_buf escape{};

  JpegState() = default;
  ~JpegState() { jpeg_destroy_decompress(&decoder); }
  JpegState(const JpegState&) = delete;
  JpegState& operator=(const JpegState&) = delete;
};

JpegState& jpeg_state(j_common_ptr decoder) {
  return *static_cast<JpegState*>(decoder->client_data);
}

[[noreturn]] void jpeg_failed(j_common_ptr decoder) {
  JpegState& state = jpeg_state(decoder);
  (*decoder->err->format_message)(decoder, state.message.data());
  std::longjmp(state.escape, 1);
}

// Warnings that mean missing or damaged pixels are errors; others are left alone, which are stray
// bytes behind the header.
void jpeg_warned(j_common_ptr decoder, int level) {
  const int code = decoder->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                    code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC ||
                    (code == JWRN_EXTRANEOUS_DATA && jpeg_state(decoder).rgb == nullptr))) {
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

bool jpeg_begin(JpegState& state, std::string_view input) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
  state.decoder.progress = &state.progress;
  jpeg_mem_src(&state.decoder, reinterpret_cast<const unsigned char*>(input.data()), input.size());
  jpeg_read_header(&state.decoder, TRUE);
  return true;
}

bool jpeg_finish(JpegState& state) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
  jpeg_decompress_struct& decoder = state.decoder;
  decoder.out_color_space = JCS_RGB;
  jpeg_start_decompress(&decoder);
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW row = state.rgb + std::size_t{decoder.output_scanline} * decoder.output_width * 3;
    jpeg_read_scanlines(&decoder, &row, 1);
  }
  jpeg_finish_decompress(&decoder);
  return true;
}

InvalidInput damaged_jpeg(const JpegState& state, const std::string& where) {
  return InvalidInput(fmt::format("{}: damaged JPEG: {}", where, state.message.data()));
}

// Reads up to the first scan.
ImageSize jpeg_size(JpegState& state, std::string_view bytes, const std::string& where) {
  jpeg_decompress_struct& decoder = state.decoder;
  decoder.err = jpeg_std_error(&state.errors);
  state.errors.error_exit = jpeg_failed;
  state.errors.emit_message = jpeg_warned;
  state.errors.output_message = jpeg_silent;
  state.progress.progress_monitor = jpeg_progressed;
  decoder.client_data = &state;
  if (!jpeg_open(state)) {
    throw SystemFailure(fmt::format("{}: cannot decode JPEG: {}", where, state.message.data()));
  }
  if (!jpeg_begin(state, bytes)) {
    throw damaged_jpeg(state, where);
  }
  if (decoder.arith_code != FALSE || (decoder.num_components != 1 && decoder.num_components != 3)) {
    throw InvalidInput(
        fmt::format("{}: {} JPEG; allowed are grey and colour of three components, "
                    "not arithmetically coded (convert it to RGB)",
                    where,
                    decoder.arith_code != FALSE   ? "an arithmetically coded"
                    : decoder.num_components == 4 ? "a CMYK"
                                                  : "an unusual"));
  }
  return checked_size(decoder.image_width, decoder.image_height, where);
}

DecodedImage decode_jpeg(std::string_view bytes, const std::string& where) {
  JpegState state;
  DecodedImage image{jpeg_size(state, bytes, where), {}};
  image.rgb.resize(std::size_t{state.decoder.image_width} * state.decoder.image_height * 3);
  state.rgb = image.rgb.data();
  if (!jpeg_finish(state)) {
    throw damaged_jpeg(state, where);
  }
  return image;
}

// Whether it is a PNG, else a JPEG.
bool is_png(std::string_view bytes, const std::string& where) {
  if (bytes.starts_with("\x89PNG\r\n\x1A\n")) {
    return true;
  }
  if (!bytes.starts_with("\xFF\xD8\xFF")) {
    throw InvalidInput(fmt::format(
        "{}: {}", where, bytes.empty() ? "an empty image" : "neither a PNG nor a JPEG image"));
  }
  return false;
}

}  // namespace

ImageSize image_size(std::string_view bytes, const std::string& where) {
  if (is_png(bytes, where)) {
    return png_size(bytes, where);
  }
  JpegState state;
  return jpeg_size(state, bytes, where);
}

DecodedImage decode_image(std::string_view bytes, const std::string& where) {
  return is_png(bytes, where) ? decode_png(bytes, where) : decode_jpeg(bytes, where);
}

}  // namespace entrain
