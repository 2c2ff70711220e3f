// Tar archives: members one after another, with everything checked that the format lets us check.
//
// libarchive reads the headers; what it lets pass is refused here: a missing end, data behind it,
// links, devices and sparse files, damaged pax headers, and global ones for paths and sizes. An
// archive compressed with gzip is read through, into memory: it has no offsets at which a sample
// could be read later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace entrain {

// One regular file of an archive. Offsets count from the start of the archive (or of the bytes).
struct TarMember {
  std::string name;                // leading "./" left out
  std::int64_t header_offset = 0;  // of its first header, extension headers included
  std::int64_t data_offset = 0;
  std::int64_t size = 0;        // bytes of content
  std::int64_t end_offset = 0;  // of the padded content
};

class TarReader {
 public:
  // A whole archive: ends with two blocks of zeros and nothing but zeros behind them.
  //
  // Throws  InvalidInput when the path does not exist or is no file; SystemFailure when it cannot
  // be opened.
  explicit TarReader(const std::filesystem::path& path);
  // A run of whole members of an archive; `base` is its offset there, for messages.
  TarReader(std::string bytes, std::string where, std::int64_t base);
  // The same, read from the archive's file as it is walked, for runs too long to be held.
  //
  // Throws  InvalidInput when the file does not exist or ends before base + size.
  TarReader(const std::filesystem::path& path, std::int64_t base, std::int64_t size);
  ~TarReader();
  TarReader(TarReader&&) noexcept;

  // Next regular file; folders are skipped. nullopt at the end.
  //
  // Throws  InvalidInput naming archive, offset and member: a truncated archive, a wrong checksum,
  //         an impossible field, a missing end. SystemFailure when reading fails.
  std::optional<TarMember> next();

  // Bytes [offset, offset + size) of a member's content. Valid until the reader is used again.
  //
  // Requires  the range lies inside the content.
  std::string_view content_at(const TarMember& member, std::int64_t offset, std::int64_t size);

  // "train-000000.tar, offset 1024, member 'a.png'"
  [[nodiscard]] std::string where(const TarMember& member) const;

  class Source;  // bytes at offsets: of a file or of memory

 private:
  std::string_view block(std::int64_t offset);
  void check_global_headers(const TarMember& member);
  void check_end(std::int64_t offset);
  [[noreturn]] void fail(std::int64_t offset, const std::string& message) const;

  std::unique_ptr<Source> source_;
  std::string where_;
  std::int64_t base_ = 0;
  std::int64_t position_ = 0;
  bool fragment_ = false;
};

// `size` bytes of a file from `offset`, read with one pread (more only when the system returns
// less).
//
// Throws  InvalidInput when the file does not exist or ends earlier; SystemFailure when reading
// fails.
std::string read_range(const std::filesystem::path& path, std::int64_t offset, std::int64_t size);

}  // namespace entrain
