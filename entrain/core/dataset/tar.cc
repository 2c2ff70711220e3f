#include "entrain/core/dataset/tar.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <utility>

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

namespace entrain {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr std::size_t kTypeOffset = 156;
// Bytes read at once where less is asked for: small, since a walk skips most contents.
constexpr std::int64_t kWindow = 1 << 14;

// A file open for reading, closed with the object.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path) : path_(path.string()) {
    // Without waiting for the writer of a pipe, which is refused.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) {
      const int error = errno;
      const std::string message = fmt::format("cannot open '{}': {}", path_, std::strerror(error));
      if (error == ENOENT || error == ENOTDIR) {
        throw InvalidInput(message);
      }
      throw SystemFailure(message);
    }
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(descriptor_);
      throw InvalidInput(fmt::format("'{}' is not a file", path_));
    }
    size_ = status.st_size;
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] std::int64_t size() const { return size_; }

  // Requires  the range lies inside the file.
  [[nodiscard]] std::string read(std::int64_t offset, std::int64_t size) const {
    std::string bytes(static_cast<std::size_t>(size), '\0');
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::pread(descriptor_,
                                    bytes.data() + done,
                                    bytes.size() - done,
                                    offset + static_cast<std::int64_t>(done));
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count <= 0) {
        throw SystemFailure(fmt::format("cannot read '{}' at offset {}: {}",
                                        path_,
                                        offset,
                                        count < 0 ? std::strerror(errno) : "it became shorter"));
      }
      done += static_cast<std::size_t>(count);
    }
    return bytes;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

void check_range(const InputFile& file,
                 const std::filesystem::path& path,
                 std::int64_t offset,
                 std::int64_t size) {
  if (offset < 0 || size < 0 || size > file.size() || offset > file.size() - size) {
    throw InvalidInput(fmt::format("'{}' has {} bytes; {} bytes from offset {} are needed",
                                   path.string(),
                                   file.size(),
                                   size,
                                   offset));
  }
}

bool all_zero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

}  // namespace

class TarReader::Source {
 public:
  // A whole file.
  explicit Source(const std::filesystem::path& path)
      : file_(std::in_place, path), size_(file_->size()) {
    if (at(0, std::min<std::int64_t>(2, size_)) == "\x1F\x8B") {
      file_.reset();
      try {
        window_ = read_file(path);
      } catch (const SystemFailure& error) {  // nearly always a damaged or truncated stream
        throw InvalidInput(fmt::format("{}, offset 0: {}", path.string(), error.what()));
      }
      size_ = static_cast<std::int64_t>(window_.size());
    }
  }
  // Bytes [begin, begin + size) of a file.
  Source(const std::filesystem::path& path, std::int64_t begin, std::int64_t size)
      : file_(std::in_place, path), begin_(begin), size_(size) {
    check_range(*file_, path, begin, size);
  }
  explicit Source(std::string bytes)
      : size_(static_cast<std::int64_t>(bytes.size())), window_(std::move(bytes)) {}

  [[nodiscard]] std::int64_t size() const { return size_; }

  // Requires  the range lies inside. Valid until the next call.
  std::string_view at(std::int64_t offset, std::int64_t size) {
    const auto held = static_cast<std::int64_t>(window_.size());
    if (file_ && (offset < window_begin_ || offset + size > window_begin_ + held)) {
      window_ = file_->read(begin_ + offset, std::min(std::max(size, kWindow), size_ - offset));
      window_begin_ = offset;
    }
    return std::string_view(window_).substr(static_cast<std::size_t>(offset - window_begin_),
                                            static_cast<std::size_t>(size));
  }

  // The next header, which libarchive finds; skips the content of the one before.
  int next(archive_entry** entry) {
    int result = ARCHIVE_OK;
    if (!archive_) {
      archive_.reset(::archive_read_new());
      ::archive_read_support_format_tar(archive_.get());
      result = ::archive_read_open2(archive_.get(), this, nullptr, read, skip, nullptr);
    }
    if (result == ARCHIVE_OK) {
      result = ::archive_read_next_header(archive_.get(), entry);
    }
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return result;
  }
  [[nodiscard]] archive* headers() const { return archive_.get(); }

 private:
  // Exceptions must not pass through libarchive, which keeps `bytes` until it asks for more.
  static la_ssize_t read(archive*, void* user, const void** bytes) {
    auto* source = static_cast<Source*>(user);
    try {
      source->block_ =
          source->at(source->walked_, std::min(kWindow, source->size_ - source->walked_));
    } catch (...) {
      source->failure_ = std::current_exception();
      return ARCHIVE_FATAL;
    }
    *bytes = source->block_.data();
    source->walked_ += std::ssize(source->block_);
    return std::ssize(source->block_);
  }
  static la_int64_t skip(archive*, void* user, la_int64_t count) {
    auto* source = static_cast<Source*>(user);
    const std::int64_t skipped = std::min<std::int64_t>(count, source->size_ - source->walked_);
    source->walked_ += skipped;
    return skipped;
  }

  struct Free {
    void operator()(archive* opened) const { ::archive_read_free(opened); }
  };
  std::unique_ptr<archive, Free> archive_;
  std::int64_t walked_ = 0;  // what libarchive has seen or skipped
  std::string block_;
  std::exception_ptr failure_;
  std::optional<InputFile> file_;
  std::int64_t begin_ = 0;  // in the file
  std::int64_t size_;
  std::string window_;
  std::int64_t window_begin_ = 0;
};

TarReader::TarReader(const std::filesystem::path& path)
    : source_(std::make_unique<Source>(path)), where_(path.string()) {}
TarReader::TarReader(std::string bytes, std::string where, std::int64_t base)
    : source_(std::make_unique<Source>(std::move(bytes))),
      where_(std::move(where)),
      base_(base),
      fragment_(true) {}
TarReader::TarReader(const std::filesystem::path& path, std::int64_t base, std::int64_t size)
    : source_(std::make_unique<Source>(path, base, size)),
      where_(path.string()),
      base_(base),
      fragment_(true) {}
TarReader::~TarReader() = default;
TarReader::TarReader(TarReader&&) noexcept = default;

std::optional<TarMember> TarReader::next() {
  while (!fragment_ || position_ < source_->size()) {
    if (source_->size() == 0) {
      fail(0, "the archive is empty");
    }
    archive_entry* entry = nullptr;
    const int result = source_->next(&entry);
    if (result == ARCHIVE_EOF) {
      check_end(position_);
      return std::nullopt;
    }
    archive* headers = source_->headers();
    // Of a name that is no text of the current locale libarchive warns, and leaves it as it is.
    if (result != ARCHIVE_OK && (result != ARCHIVE_WARN || ::archive_errno(headers) != EILSEQ)) {
      const char* reason = ::archive_error_string(headers);
      fail(position_,
           fmt::format("the archive is truncated or damaged, or a checksum is wrong: {}",
                       reason == nullptr ? "no reason given" : reason));
    }
    TarMember member;
    member.header_offset = ::archive_read_header_position(headers);
    member.data_offset = ::archive_filter_bytes(headers, 0);
    member.size = ::archive_entry_size(entry);
    // libarchive's own sum of what it skipped may be anything.
    const bool inside = member.data_offset >= 0 && member.data_offset <= source_->size();
    const std::int64_t left = inside ? source_->size() - member.data_offset : 0;
    if (member.header_offset != position_ || !inside || member.size < 0 || member.size > left) {
      fail(position_,
           fmt::format("truncated or damaged: a member of {} bytes begins here, {} are left",
                       member.size,
                       left));
    }
    member.end_offset = member.data_offset + (member.size + kBlock - 1) / kBlock * kBlock;
    if (member.end_offset > source_->size()) {
      fail(position_, "truncated: the padding of the last member is missing");
    }
    position_ = member.end_offset;
    check_global_headers(member);
    const char* name = ::archive_entry_pathname(entry);
    member.name = name == nullptr ? "" : name;
    const std::string_view header = block(member.data_offset - kBlock);
    const std::string_view size = header.substr(124, 12);
    if ((size[0] & 0x80) == 0 && size.find_first_not_of({" 01234567\0", 10}) != size.npos) {
      fail(member.header_offset, "the size in the tar header is no number");
    }
    const char type = header[kTypeOffset];
    if (type == '5') {
      continue;
    }
    if ((type != '0' && type != '\0' && type != '7') ||
        ::archive_entry_filetype(entry) != AE_IFREG || ::archive_entry_sparse_count(entry) != 0) {
      fail(member.header_offset,
           fmt::format("member '{}' is of type '{}' (link, device or sparse file); only regular "
                       "files and folders are allowed",
                       member.name,
                       type));
    }
    while (member.name.starts_with("./")) {
      member.name.erase(0, 2);
    }
    if (member.name.empty()) {
      fail(member.header_offset, "a member without a usable name");
    }
    return member;
  }
  return std::nullopt;
}

// libarchive leaves out what global headers say of the members behind them.
void TarReader::check_global_headers(const TarMember& member) {
  for (std::int64_t at = member.header_offset; at + kBlock < member.data_offset; at += kBlock) {
    const std::string_view header = block(at);
    if (header[kTypeOffset] != 'g' || header.substr(257, 5) != "ustar") {
      continue;
    }
    std::int64_t size = 0;
    std::from_chars(header.data() + 124, header.data() + 135, size, 8);
    const std::string_view content = source_->at(
        at + kBlock, std::clamp<std::int64_t>(size, 0, member.data_offset - at - kBlock));
    for (const std::string_view key : {" path=", " size="}) {  // behind the length of the record
      const std::size_t found = content.find(key);
      if (found != std::string_view::npos && found > 0 && std::isdigit(content[found - 1]) != 0) {
        fail(at, fmt::format("a global pax header sets '{}'", key.substr(1, 4)));
      }
    }
  }
}

std::string_view TarReader::block(std::int64_t offset) {
  if (offset + kBlock > source_->size()) {
    fail(offset,
         source_->size() == 0
             ? "the archive is empty"
             : "truncated: a tar header or the end mark (two blocks of zeros) is missing");
  }
  return source_->at(offset, kBlock);
}

void TarReader::check_end(std::int64_t offset) {
  if (fragment_) {
    fail(offset, "the end mark of the archive stands inside a sample");
  }
  if (!all_zero(block(offset + kBlock))) {
    fail(offset, "a single block of zeros between members: the archive is damaged");
  }
  for (std::int64_t at = offset + 2 * kBlock; at < source_->size();) {
    const std::int64_t size = std::min(kBlock, source_->size() - at);
    if (!all_zero(source_->at(at, size))) {
      fail(at,
           "data behind the end mark of the archive (archives joined with cat are not allowed)");
    }
    at += size;
  }
}

std::string_view TarReader::content_at(const TarMember& member,
                                       std::int64_t offset,
                                       std::int64_t size) {
  ENTRAIN_INVARIANT(offset >= 0 && size >= 0 && offset <= member.size - size,
                    "a range beyond a member's content");
  return source_->at(member.data_offset + offset, size);
}

std::string TarReader::where(const TarMember& member) const {
  return fmt::format(
      "{}, offset {}, member '{}'", where_, base_ + member.header_offset, member.name);
}

void TarReader::fail(std::int64_t offset, const std::string& message) const {
  throw InvalidInput(fmt::format("{}, offset {}: {}", where_, base_ + offset, message));
}

std::string read_range(const std::filesystem::path& path, std::int64_t offset, std::int64_t size) {
  const InputFile file(path);
  check_range(file, path, offset, size);
  return file.read(offset, size);
}

}  // namespace entrain
