#include <algorithm>
#include <cstddef>
#include <memory>

#include <fmt/format.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/image_formats.h"

namespace entrain {
namespace {

constexpr std::int64_t kWebpHead = 30;  // bytes that hold the size of each kind

InvalidInput damaged_webp(const std::string& message, const std::string& where) {
  return InvalidInput(fmt::format("{}: damaged WebP: {}", where, message));
}

const std::uint8_t* webp_data(std::string_view bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

ImageSize webp_size(std::string_view head, const std::string& where) {
  int width = 0;
  int height = 0;
  if (WebPGetInfo(webp_data(head), head.size(), &width, &height) == 0) {
    throw damaged_webp("its header is not there or not sound", where);
  }
  return checked_size(width, height, where);
}

// Walks the chunks, which fill what the RIFF header claims; those of a file without VP8X end with
// the first. Returns the orientation of the first EXIF chunk.
int walk_webp(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  constexpr std::int64_t kHeader = 8;  // bytes of a chunk: type and length
  const std::int64_t end = little_endian(bytes(4, 4)) + kHeader;
  if (end > size) {
    throw damaged_webp(fmt::format("its header claims {} bytes, {} are there", end, size), where);
  }
  std::int64_t position = 12;
  bool extended = false;
  bool has_exif = false;
  bool has_pixels = false;
  int orientation = 1;
  do {
    if (kHeader > end - position) {
      throw damaged_webp(fmt::format("no whole chunk begins at byte {}", position), where);
    }
    const std::string_view header = bytes(position, kHeader);
    const std::string type(header.substr(0, 4));
    const std::int64_t length = little_endian(header.substr(4));
    const std::int64_t content = position + kHeader;
    if (length + length % 2 > end - content) {
      throw damaged_webp(
          fmt::format("it ends inside a chunk of {} bytes at byte {}", length, position), where);
    }
    has_pixels = has_pixels || type == "VP8 " || type == "VP8L" || type == "ANMF";
    if (type == "VP8X" && length > 0) {
      extended = true;
      has_exif = (bytes(content, 1)[0] & EXIF_FLAG) != 0;
    } else if (type == "EXIF" && has_exif) {
      has_exif = false;
      orientation = exif_orientation(bytes(content, length));
    }
    position = content + length + length % 2;
  } while (extended && position < end);
  if (!has_pixels) {
    throw damaged_webp("it has no pixels", where);
  }
  return orientation;
}

}  // namespace

StoredImage read_webp_header(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  const ImageSize canvas = webp_size(bytes(0, std::min(kWebpHead, size)), where);
  return {canvas, walk_webp(bytes, size, where), {}};
}

StoredImage decode_webp(std::string_view bytes, const std::string& where) {
  StoredImage image =
      read_webp_header(bytes_in_memory(bytes), static_cast<std::int64_t>(bytes.size()), where);
  const WebPData data = {webp_data(bytes), bytes.size()};
  const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> chunks(WebPDemux(&data),
                                                                    WebPDemuxDelete);
  const auto width = static_cast<std::size_t>(image.size.width);
  const auto height = static_cast<std::size_t>(image.size.height);
  if (!chunks || WebPDemuxGetI(chunks.get(), WEBP_FF_CANVAS_WIDTH) != width ||
      WebPDemuxGetI(chunks.get(), WEBP_FF_CANVAS_HEIGHT) != height) {
    throw damaged_webp("its chunks are not those of an image", where);
  }
  WebPIterator frame{};
  WebPDecoderConfig config;
  if (WebPDemuxGetFrame(chunks.get(), 1, &frame) == 0 || WebPInitDecoderConfig(&config) == 0) {
    throw damaged_webp("it has no frame", where);
  }
  std::vector<std::uint8_t> canvas(width * height * 4);  // transparent around the frame
  const std::size_t begin = (static_cast<std::size_t>(frame.y_offset) * width +
                             static_cast<std::size_t>(frame.x_offset)) *
                            4;
  ENTRAIN_INVARIANT(begin < canvas.size(), "a WebP's frame is outside its canvas");
  config.output.colorspace = MODE_RGBA;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {
      canvas.data() + begin, static_cast<int>(width * 4), canvas.size() - begin};
  const VP8StatusCode status = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  if (status != VP8_STATUS_OK) {
    throw damaged_webp(
        fmt::format("its pixels are not there or not sound (libwebp: status {})", int{status}),
        where);
  }
  image.rgb = over_white(canvas);
  return image;
}

}  // namespace entrain
