#include "entrain/core/base/mapped_file.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"

namespace entrain {

MappedFile::MappedFile(const std::filesystem::path& path) {
  std::error_code unreachable;
  if (!std::filesystem::is_regular_file(path, unreachable)) {
    throw InvalidInput(fmt::format("'{}' is no file", path.string()));
  }
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  const bool readable = file >= 0 && fstat(file, &status) == 0;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = readable && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0) : nullptr;
  const int error = errno;
  if (file >= 0) {
    close(file);
  }
  if (!readable || data == MAP_FAILED) {
    throw SystemFailure(
        fmt::format("cannot read '{}': {}", path.string(), std::generic_category().message(error)));
  }
  bytes_ = {static_cast<const char*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace entrain
