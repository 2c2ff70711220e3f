#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <gif_lib.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/image_formats.h"

namespace entrain {
namespace {

using GifColours = std::array<std::array<std::uint8_t, 3>, 256>;

// What giflib reads, frame by frame.
class GifReader {
 public:
  GifReader(const BytesAt& bytes, std::int64_t size, const std::string& where)
      : input_{bytes, size}, where_(where) {
    int error = 0;
    file_.reset(DGifOpen(&input_, read, &error));
    check(file_ != nullptr, error);
  }

  // Moves to the data of the next frame, which is described then; false at the trailer.
  bool next_frame() {
    for (;;) {
      GifRecordType type{};
      check(DGifGetRecordType(file_.get(), &type) != GIF_ERROR);
      if (type == IMAGE_DESC_RECORD_TYPE) {
        check(DGifGetImageDesc(file_.get()) != GIF_ERROR);
        return true;
      }
      if (type == TERMINATE_RECORD_TYPE) {
        return false;
      }
      read_extension();
    }
  }

  // Passes over the frame's data, undecoded.
  void skip_frame() {
    int code_size = 0;
    GifByteType* block = nullptr;
    check(DGifGetCode(file_.get(), &code_size, &block) != GIF_ERROR);
    while (block != nullptr) {
      check(DGifGetCodeNext(file_.get(), &block) != GIF_ERROR);
    }
  }

  // The frame's next line, as stored.
  void read_line(std::span<GifPixelType> line) {
    check(DGifGetLine(file_.get(), line.data(), static_cast<int>(line.size())) != GIF_ERROR);
  }

  [[nodiscard]] const GifFileType& file() const { return *file_; }
  // Palette index that the extensions read so far call transparent.
  [[nodiscard]] std::optional<std::uint8_t> transparent() const { return transparent_; }

  [[noreturn]] void fail(const std::string& message) const {
    throw InvalidInput(fmt::format("{}: damaged GIF: {}", where_, message));
  }

 private:
  static int read(GifFileType* file, GifByteType* target, int wanted) {
    return static_cast<int>(static_cast<ByteStream*>(file->UserData)->read(target, wanted));
  }

  void read_extension() {
    int code = 0;
    GifByteType* block = nullptr;  // its length, then its bytes
    check(DGifGetExtension(file_.get(), &code, &block) != GIF_ERROR);
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4 &&
        (block[1] & 1) != 0) {
      transparent_ = block[4];
    }
    while (block != nullptr) {
      check(DGifGetExtensionNext(file_.get(), &block) != GIF_ERROR);
    }
  }

  void check(bool done, int error = 0) const {
    input_.rethrow_failure();
    if (!done) {
      const char* reason = GifErrorString(file_ ? file_->Error : error);
      fail(input_.position == input_.size ? "it ends too early"
           : reason != nullptr            ? reason
                                          : "unknown error");
    }
  }

  struct Close {
    void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
  };
  ByteStream input_;
  const std::string& where_;
  std::unique_ptr<GifFileType, Close> file_;
  std::optional<std::uint8_t> transparent_;
};

// Moves to the first frame's data. The canvas grows to what that covers.
ImageSize begin_gif(GifReader& gif, const std::string& where) {
  if (!gif.next_frame()) {
    gif.fail("it has no frame");
  }
  const GifFileType& file = gif.file();
  if (file.Image.Width == 0 || file.Image.Height == 0) {
    gif.fail("its first frame has no pixels");
  }
  return checked_size(std::max(file.SWidth, file.Image.Left + file.Image.Width),
                      std::max(file.SHeight, file.Image.Top + file.Image.Height),
                      where);
}

// The frame's palette, else the file's. Without one, or where it is grey i at i, all are grey.
GifColours gif_colours(const GifFileType& file) {
  GifColours colours{};
  const ColorMapObject* palette =
      file.Image.ColorMap != nullptr ? file.Image.ColorMap : file.SColorMap;
  bool grey = true;
  for (int i = 0; palette != nullptr && i < palette->ColorCount; ++i) {
    const GifColorType& colour = palette->Colors[i];
    colours[static_cast<std::size_t>(i)] = {colour.Red, colour.Green, colour.Blue};
    grey = grey && colour.Red == i && colour.Green == i && colour.Blue == i;
  }
  for (std::size_t i = 0; grey && i < colours.size(); ++i) {
    colours[i].fill(static_cast<std::uint8_t>(i));
  }
  return colours;
}

// Rows of a frame in the order of its lines.
std::vector<std::size_t> gif_rows(std::size_t height, bool interlaced) {
  std::vector<std::size_t> rows;
  const auto add = [&](std::size_t first, std::size_t step) {
    for (std::size_t row = first; row < height; row += step) {
      rows.push_back(row);
    }
  };
  if (!interlaced) {
    add(0, 1);
    return rows;
  }
  add(0, 8);
  add(4, 8);
  add(2, 4);
  add(1, 2);
  return rows;
}

}  // namespace

StoredImage read_gif_header(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  GifReader gif(bytes, size, where);
  StoredImage image{begin_gif(gif, where), 1, {}};
  do {
    gif.skip_frame();
  } while (gif.next_frame());
  return image;
}

StoredImage decode_gif(std::string_view bytes, const std::string& where) {
  const BytesAt memory = bytes_in_memory(bytes);
  const auto file_size = static_cast<std::int64_t>(bytes.size());
  StoredImage image = read_gif_header(memory, file_size, where);
  GifReader gif(memory, file_size, where);
  begin_gif(gif, where);
  const GifImageDesc& frame = gif.file().Image;
  // A code has three bits at least and stands for 4,096 pixels at most.
  constexpr std::int64_t kMaxPixelsPerByte = 4096 * 8 / 3 + 1;
  if (std::int64_t{frame.Width} * frame.Height / kMaxPixelsPerByte > file_size) {
    gif.fail("it is too short for the size that its frame claims");
  }
  GifColours colours = gif_colours(gif.file());
  const std::uint8_t outside = gif.transparent().value_or(0);
  if (gif.transparent()) {
    colours[outside].fill(255);  // white shows through
  }
  const auto width = static_cast<std::size_t>(image.size.width);
  image.rgb.resize(width * static_cast<std::size_t>(image.size.height) * 3);
  if (frame.Width != image.size.width || frame.Height != image.size.height) {
    for (std::size_t i = 0; i < image.rgb.size(); i += 3) {
      std::copy_n(colours[outside].data(), 3, &image.rgb[i]);
    }
  }
  std::vector<GifPixelType> line(static_cast<std::size_t>(frame.Width));
  const auto top = static_cast<std::size_t>(frame.Top);
  for (const std::size_t row : gif_rows(static_cast<std::size_t>(frame.Height), frame.Interlace)) {
    gif.read_line(line);
    std::uint8_t* target =
        image.rgb.data() + ((top + row) * width + static_cast<std::size_t>(frame.Left)) * 3;
    for (const GifPixelType index : line) {
      target = std::copy_n(colours[index].data(), 3, target);
    }
  }
  return image;
}

}  // namespace entrain
