#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/image_formats.h"

namespace entrain {
namespace {

// libjpeg reports errors with longjmp. The functions that call setjmp hold only trivial objects;
// memory and messages are in the state that their callers own.

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr std::int64_t kJpegPrefix = 1 << 16;  // bytes that nearly always hold a header

struct JpegState {
  jpeg_decompress_struct decoder{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::uint8_t* rgb = nullptr;     // [height, width, 3]; none while only the header is read
  std::vector<std::uint8_t> cmyk;  // [width, 4], of a row
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
  jpeg_save_markers(&state.decoder, kExifMarker, 0xFFFF);
  jpeg_mem_src(&state.decoder, reinterpret_cast<const unsigned char*>(input.data()), input.size());
  jpeg_read_header(&state.decoder, TRUE);
  return true;
}

// One row of stored, thus inverted, CMYK.
void cmyk_to_rgb(const std::uint8_t* cmyk, std::size_t width, std::uint8_t* rgb) {
  for (std::size_t pixel = 0; pixel < width; ++pixel) {
    const unsigned black = cmyk[pixel * 4 + 3];
    for (std::size_t channel = 0; channel < 3; ++channel) {
      rgb[pixel * 3 + channel] =
          static_cast<std::uint8_t>((cmyk[pixel * 4 + channel] * black + 127U) / 255U);
    }
  }
}

bool jpeg_finish(JpegState& state) {
  if (setjmp(state.escape) != 0) {
    return false;
  }
  jpeg_decompress_struct& decoder = state.decoder;
  decoder.out_color_space = decoder.num_components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&decoder);
  while (decoder.output_scanline < decoder.output_height) {
    std::uint8_t* rgb = state.rgb + std::size_t{decoder.output_scanline} * decoder.output_width * 3;
    JSAMPROW row = decoder.num_components == 4 ? state.cmyk.data() : rgb;
    jpeg_read_scanlines(&decoder, &row, 1);
    if (row != rgb) {
      cmyk_to_rgb(row, decoder.output_width, rgb);
    }
  }
  jpeg_finish_decompress(&decoder);
  return true;
}

InvalidInput damaged_jpeg(const JpegState& state, const std::string& where) {
  return InvalidInput(fmt::format("{}: damaged JPEG: {}", where, state.message.data()));
}

// Of the APP1 segments in front of the first scan that say Exif, which form one block.
int jpeg_orientation(const JpegState& state) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  std::string block;
  for (auto* marker = state.decoder.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view segment(reinterpret_cast<const char*>(marker->data),
                                   marker->data_length);
    if (marker->marker == kExifMarker && segment.starts_with(kExif)) {
      block += segment.substr(kExif.size());
    }
  }
  return exif_orientation(block);
}

// Reads up to the first scan.
StoredImage begin_jpeg(JpegState& state, std::string_view bytes, const std::string& where) {
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
  const int components = decoder.num_components;
  if (decoder.arith_code != FALSE || (components != 1 && components != 3 && components != 4)) {
    throw InvalidInput(
        fmt::format("{}: {} JPEG; allowed are one, three and four components, not arithmetically "
                    "coded (convert it: `magick x.jpg x.png`)",
                    where,
                    decoder.arith_code != FALSE ? "an arithmetically coded" : "an unusual"));
  }
  return {
      checked_size(decoder.image_width, decoder.image_height, where), jpeg_orientation(state), {}};
}

unsigned jpeg_byte(std::string_view bytes, std::size_t offset) {
  return static_cast<unsigned char>(bytes[offset]);
}
// Moves `position`, in a scan's data, to the marker that ends it; false when there is none.
// Stuffing (FF 00) and restarts belong to the data.
bool skip_scan(std::string_view bytes, std::size_t& position) {
  while ((position = bytes.find('\xFF', position)) != std::string_view::npos &&
         position + 1 < bytes.size()) {
    const unsigned marker = jpeg_byte(bytes, position + 1);
    const bool in_scan = marker == 0x00 || (marker >= 0xD0 && marker <= 0xD7);
    if (marker != 0xFF && !in_scan) {
      return true;
    }
    position += in_scan ? 2 : 1;
  }
  return false;
}

// Whether an end marker follows the scans: segments by their length, scans by their markers.
bool has_jpeg_end(std::string_view bytes) {
  std::size_t position = 2;
  bool scans = false;
  while (position + 1 < bytes.size() && jpeg_byte(bytes, position) == 0xFF) {
    const unsigned marker = jpeg_byte(bytes, position + 1);
    if (marker == 0xFF) {
      ++position;
      continue;
    }
    position += 2;
    if (marker == 0xD9) {
      return scans;
    }
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      continue;
    }
    if (position + 2 > bytes.size()) {
      return false;
    }
    position += static_cast<std::size_t>(big_endian(bytes.substr(position, 2)));
    if (marker == 0xDA) {
      scans = true;
      if (!skip_scan(bytes, position)) {
        return false;
      }
    }
  }
  return false;
}

void check_jpeg_end(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  constexpr std::int64_t kTail = 64;
  constexpr std::string_view kPadding("\0\n\r \xFF", 5);
  const std::int64_t tail_size = std::min(kTail, size);
  std::string_view tail = bytes(size - tail_size, tail_size);
  tail = tail.substr(0, tail.find_last_not_of(kPadding) + 1);
  // No data of a scan look like an end marker.
  if (!tail.ends_with("\xFF\xD9") && !has_jpeg_end(bytes(0, size))) {
    throw InvalidInput(fmt::format("{}: damaged JPEG: it ends without its end marker", where));
  }
}

}  // namespace

StoredImage read_jpeg_header(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  check_jpeg_end(bytes, size, where);
  if (size > kJpegPrefix) {
    try {
      JpegState state;
      return begin_jpeg(state, bytes(0, kJpegPrefix), where);
    } catch (const InvalidInput&) {
      // Large metadata in front of the first scan, or damage.
    }
  }
  JpegState state;
  return begin_jpeg(state, bytes(0, size), where);
}

StoredImage decode_jpeg(std::string_view bytes, const std::string& where) {
  JpegState state;
  StoredImage image = begin_jpeg(state, bytes, where);
  const std::size_t width = state.decoder.image_width;
  image.rgb.resize(width * state.decoder.image_height * 3);
  state.rgb = image.rgb.data();
  state.cmyk.resize(state.decoder.num_components == 4 ? width * 4 : 0);
  if (!jpeg_finish(state)) {
    throw damaged_jpeg(state, where);
  }
  return image;
}

}  // namespace entrain
