#include "entrain/core/dataset/tar.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

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
constexpr std::int64_t kMaxExtension = 1 << 20;  // bytes of a pax header or a long name
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

// A header field up to its first zero byte.
std::string_view text_field(std::string_view header, std::size_t begin, std::size_t size) {
  const std::string_view field = header.substr(begin, size);
  return field.substr(0, field.find('\0'));
}

// Octal with leading spaces, ended by a space or zero; or base-256 where the first bit is set.
std::optional<std::int64_t> number_field(std::string_view field) {
  std::uint64_t value = 0;
  if ((static_cast<unsigned char>(field[0]) & 0x80U) != 0) {
    for (std::size_t i = 0; i < field.size(); ++i) {
      const unsigned byte = static_cast<unsigned char>(field[i]) & (i == 0 ? 0x7FU : 0xFFU);
      if (value >> 55U != 0) {
        return std::nullopt;
      }
      value = value << 8U | byte;
    }
    return static_cast<std::int64_t>(value);
  }
  const std::size_t begin = std::min(field.find_first_not_of(' '), field.size());
  const std::size_t end =
      std::min(field.find_first_of(std::string_view(" \0", 2), begin), field.size());
  if (begin == end) {
    return 0;
  }
  const auto [stop, error] = std::from_chars(field.data() + begin, field.data() + end, value, 8);
  if (error != std::errc() || stop != field.data() + end || value >> 62U != 0) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(value);
}

std::optional<std::int64_t> size_of(std::string_view header) {
  return number_field(header.substr(124, 12));
}

// The sum of all bytes with the checksum field read as blanks; some old writers summed signed
// bytes.
bool checksum_holds(std::string_view header) {
  std::int64_t sum = 0;
  std::int64_t signed_sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const char byte = i >= 148 && i < 156 ? ' ' : header[i];
    sum += static_cast<unsigned char>(byte);
    signed_sum += static_cast<signed char>(byte);
  }
  const std::optional<std::int64_t> given = number_field(header.substr(148, 8));
  return given && (*given == sum || *given == signed_sum);
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

 private:
  std::optional<InputFile> file_;
  std::int64_t begin_ = 0;  // in the file
  std::int64_t size_;
  std::string window_;
  std::int64_t window_begin_ = 0;
};

// What extension headers say about the member behind them.
struct TarReader::Extension {
  std::optional<std::int64_t> begin;  // offset of the first one
  std::optional<std::string> path;
  std::optional<std::int64_t> size;
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
TarReader& TarReader::operator=(TarReader&&) noexcept = default;

std::optional<TarMember> TarReader::next() {
  Extension extension;
  while (true) {
    const std::int64_t offset = position_;
    if (fragment_ && offset == source_->size() && !extension.begin) {
      return std::nullopt;
    }
    const std::string header(block(offset));
    if (all_zero(header)) {
      if (extension.begin) {
        fail(offset, "the archive ends behind an extension header");
      }
      check_end(offset);
      return std::nullopt;
    }
    const char type = header[kTypeOffset];
    const bool describes_next = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    TarMember member = locate(header, offset, describes_next ? Extension() : extension);
    position_ = member.end_offset;
    if (describes_next) {
      extension.begin = extension.begin.value_or(offset);
      read_extension(header, offset, extension);
      continue;
    }
    if (type == '5') {
      extension = {};
      continue;
    }
    name_member(header, extension, member);
    return member;
  }
}

// Checks the header's checksum and that its content lies inside the archive.
TarMember TarReader::locate(std::string_view header,
                            std::int64_t offset,
                            const Extension& extension) const {
  if (!checksum_holds(header)) {
    fail(offset, "the checksum of the tar header is wrong: the archive is damaged");
  }
  const std::optional<std::int64_t> size = size_of(header);
  if (!size) {
    fail(offset, "the size in the tar header is no number");
  }
  TarMember member;
  member.header_offset = extension.begin.value_or(offset);
  member.data_offset = offset + kBlock;
  member.size = extension.size.value_or(*size);
  const std::int64_t left = source_->size() - member.data_offset;
  if (member.size > left) {
    fail(
        offset,
        fmt::format("truncated: a member of {} bytes begins here, {} are left", member.size, left));
  }
  member.end_offset = member.data_offset + (member.size + kBlock - 1) / kBlock * kBlock;
  if (member.end_offset > source_->size()) {
    fail(offset, "truncated: the padding of the last member is missing");
  }
  return member;
}

void TarReader::name_member(std::string_view header,
                            const Extension& extension,
                            TarMember& member) const {
  const bool ustar = header.substr(257, 6) == std::string_view("ustar\0", 6);
  const std::string_view prefix = ustar ? text_field(header, 345, 155) : std::string_view();
  member.name = extension.path.value_or(
      fmt::format("{}{}{}", prefix, prefix.empty() ? "" : "/", text_field(header, 0, 100)));
  const char type = header[kTypeOffset];
  if (type != '0' && type != '\0' && type != '7') {
    fail(member.header_offset,
         fmt::format("member '{}' is of type '{}' (link, device or sparse file); only regular "
                     "files and folders are allowed",
                     member.name,
                     type));
  }
  while (member.name.starts_with("./")) {
    member.name.erase(0, 2);
  }
  if (member.name.empty() || member.name.find('\0') != std::string::npos) {
    fail(member.header_offset, "a member without a usable name");
  }
}

// Requires  position_ stands behind the extension's content.
void TarReader::read_extension(std::string_view header, std::int64_t offset, Extension& extension) {
  const std::int64_t size = size_of(header).value_or(0);
  if (size > kMaxExtension) {
    fail(offset,
         fmt::format(
             "an extension header of {} bytes; at most {} are allowed", size, kMaxExtension));
  }
  std::string_view content = source_->at(offset + kBlock, size);
  const char type = header[kTypeOffset];
  if (type == 'L') {
    extension.path = std::string(content.substr(0, content.find('\0')));
  }
  if (type != 'x' && type != 'g') {
    return;
  }
  // Records "LENGTH key=value\n", LENGTH counting all of the record.
  while (!content.empty()) {
    std::size_t length = 0;
    const auto [end, error] =
        std::from_chars(content.data(), content.data() + content.size(), length);
    const auto digits = static_cast<std::size_t>(end - content.data());
    if (error != std::errc() || length < digits + 3 || length > content.size() || *end != ' ' ||
        content[length - 1] != '\n') {
      fail(offset, "a damaged pax header");
    }
    const std::string_view record = content.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) {
      fail(offset, "a damaged pax header");
    }
    take_record(
        record.substr(0, equals), record.substr(equals + 1), type == 'g', offset, extension);
    content.remove_prefix(length);
  }
}

void TarReader::take_record(std::string_view key,
                            std::string_view value,
                            bool global,
                            std::int64_t offset,
                            Extension& extension) const {
  if (key.starts_with("GNU.sparse.")) {
    fail(offset, "a sparse file; only regular files are allowed");
  }
  if (key != "path" && key != "size") {
    return;
  }
  if (global) {
    fail(offset, fmt::format("a global pax header sets '{}'", key));
  }
  if (key == "path") {
    extension.path = std::string(value);
    return;
  }
  std::int64_t number = -1;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || stop != value.data() + value.size() || number < 0 ||
      number >> 62 != 0) {
    fail(offset, fmt::format("a pax header with the impossible size '{}'", value));
  }
  extension.size = number;
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

std::string TarReader::content(const TarMember& member, std::int64_t limit) {
  return std::string(source_->at(member.data_offset, std::min(member.size, limit)));
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
