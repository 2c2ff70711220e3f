#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <ogg/ogg.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/audio_formats.h"

namespace entrain {
namespace {

// Pages one after another, each with its checksum verified.
class OggPages {
 public:
  OggPages(const BytesAt& bytes, std::int64_t size, const std::string& where)
      : bytes_(bytes), size_(size), where_(where) {
    ogg_sync_init(&sync_);
  }
  ~OggPages() { ogg_sync_clear(&sync_); }
  OggPages(const OggPages&) = delete;
  OggPages& operator=(const OggPages&) = delete;

  // Valid until the next call.
  const ogg_page& next() {
    for (;;) {
      const long found = ogg_sync_pageseek(&sync_, &page_);
      if (found > 0) {
        position_ += found;
        return page_;
      }
      if (found < 0) {
        fail(fmt::format("no sound page begins at byte {}", position_));
      }
      if (read_ == size_) {
        fail("it ends without its last page");
      }
      constexpr std::int64_t kPiece = 1 << 14;
      const std::string_view piece = bytes_(read_, std::min(kPiece, size_ - read_));
      char* target = ogg_sync_buffer(&sync_, static_cast<long>(piece.size()));
      if (target == nullptr) {
        throw SystemFailure(fmt::format("{}: no memory to read Ogg", where_));
      }
      piece.copy(target, piece.size());
      ogg_sync_wrote(&sync_, static_cast<long>(piece.size()));
      read_ += std::ssize(piece);
    }
  }

  // Behind the last page.
  [[nodiscard]] std::int64_t position() const { return position_; }

  [[noreturn]] void fail(const std::string& message) const {
    throw InvalidInput(fmt::format("{}: damaged Ogg: {}", where_, message));
  }

 private:
  const BytesAt& bytes_;
  std::int64_t size_;
  const std::string& where_;
  ogg_sync_state sync_{};
  ogg_page page_{};
  std::int64_t read_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace

std::int64_t end_of_ogg(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  constexpr std::string_view kPage = "OggS";
  OggPages pages(bytes, size, where);
  int stream = 0;
  bool last = false;
  for (long number = 0; !last; ++number) {
    const ogg_page& page = pages.next();
    stream = number == 0 ? ogg_page_serialno(&page) : stream;
    if (ogg_page_serialno(&page) != stream) {
      pages.fail("it has several streams");
    }
    if (ogg_page_pageno(&page) != number) {
      pages.fail(fmt::format("page {} is missing", number));
    }
    last = ogg_page_eos(&page) != 0;
  }
  const std::int64_t end = pages.position();
  if (bytes(end, std::min(std::ssize(kPage), size - end)) == kPage) {
    pages.fail("it has several streams");
  }
  return end;
}

}  // namespace entrain
