#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <png.h>
#include <zlib.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/image_formats.h"

namespace entrain {
namespace {

// libpng reports errors with longjmp. The functions that call setjmp hold only trivial objects;
// memory and messages are in the state that their callers own.

constexpr std::size_t kPngMessageSize = 256;
constexpr std::int64_t kPngSizeEnd = 33;  // bytes: the signature and the chunk that has the size

struct PngState {
  std::string_view input;
  std::size_t position = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::vector<std::uint8_t> rgba;  // [height, width, 4]
  std::vector<png_bytep> rows;     // [height]
  std::array<char, kPngMessageSize> message{};
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
  std::snprintf(state->message.data(), kPngMessageSize, "%s", message);
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

// Walks the chunks (length, type, content and checksum) to the last one. Returns the orientation of
// the last eXIf chunk whose checksum holds.
int walk_png(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  constexpr std::int64_t kAround = 12;  // bytes of a chunk beside its content
  int orientation = 1;
  std::int64_t position = 8;
  while (position + kAround <= size) {
    const std::string_view header = bytes(position, 8);
    const std::int64_t length = big_endian(header.substr(0, 4));
    const bool last = header.substr(4) == "IEND";
    const bool exif = header.substr(4) == "eXIf";
    if (length > size - position - kAround) {
      throw InvalidInput(
          fmt::format("{}: damaged PNG: it ends inside a chunk of {} bytes at byte {}",
                      where,
                      length,
                      position));
    }
    if (last) {
      return orientation;
    }
    if (exif) {
      const std::string_view checked = bytes(position + 4, 4 + length + 4);
      const std::string_view body = checked.substr(0, checked.size() - 4);
      const uLong checksum = ::crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
      if (std::cmp_equal(checksum, big_endian(checked.substr(body.size())))) {
        orientation = exif_orientation(body.substr(4));
      }
    }
    position += kAround + length;
  }
  throw InvalidInput(fmt::format("{}: damaged PNG: it ends without its last chunk (IEND)", where));
}

}  // namespace

// The rest of a header may be long; libpng is shown only the chunk that has the size, and has it
// when it misses the rest.
StoredImage read_png_header(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  StoredImage image;
  {
    PngState state(bytes(0, std::min(kPngSizeEnd, size)), where);
    png_begin(state);
    if (png_get_rowbytes(state.png, state.info) == 0) {
      throw state.damaged(where);
    }
    image.size = checked_size(png_get_image_width(state.png, state.info),
                              png_get_image_height(state.png, state.info),
                              where);
  }
  image.orientation = walk_png(bytes, size, where);
  return image;
}

StoredImage decode_png(std::string_view bytes, const std::string& where) {
  StoredImage image =
      read_png_header(bytes_in_memory(bytes), static_cast<std::int64_t>(bytes.size()), where);
  PngState state(bytes, where);
  if (!png_begin(state)) {
    throw state.damaged(where);
  }
  const auto width = static_cast<std::size_t>(image.size.width);
  const auto height = static_cast<std::size_t>(image.size.height);
  // Deflate shrinks 1032 times at most: a file that claims more cannot hold its pixels.
  if (png_get_rowbytes(state.png, state.info) * height / 1032 > bytes.size()) {
    throw InvalidInput(
        fmt::format("{}: damaged PNG: it is too short for the size that its header claims", where));
  }
  if (!png_transform(state)) {
    throw state.damaged(where);
  }
  ENTRAIN_INVARIANT(png_get_rowbytes(state.png, state.info) == width * 4, "PNG rows are not RGBA");
  state.rgba.resize(width * height * 4);
  for (std::size_t row = 0; row < height; ++row) {
    state.rows.push_back(state.rgba.data() + row * width * 4);
  }
  if (!png_finish(state)) {
    throw state.damaged(where);
  }
  image.rgb = over_white(state.rgba);
  return image;
}

}  // namespace entrain
