#include "entrain/core/base/files.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

void sync_path(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw SystemFailure(
        fmt::format("cannot open '{}' to sync it: {}", path.string(), std::strerror(errno)));
  }
  const int status = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (status != 0 && error != EINVAL && error != EROFS) {
    throw SystemFailure(fmt::format("cannot sync '{}': {}", path.string(), std::strerror(error)));
  }
}

}  // namespace

std::string read_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw InvalidInput(fmt::format("file '{}' does not exist", path.string()));
  }
  if (fs::is_directory(status)) {
    throw InvalidInput(fmt::format("'{}' is a folder; a file is needed", path.string()));
  }
  // gzread passes plain files through unchanged.
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(::gzopen(path.c_str(), "rb"), ::gzclose);
  if (file == nullptr) {
    throw SystemFailure(fmt::format("cannot open '{}': {}", path.string(), std::strerror(errno)));
  }
  std::string content;
  std::string buffer(1U << 18U, '\0');
  while (true) {
    const int count = ::gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()));
    if (count < 0) {
      int code = Z_OK;
      const char* reason = ::gzerror(file.get(), &code);
      throw SystemFailure(fmt::format(
          "cannot read '{}': {}", path.string(), code == Z_ERRNO ? std::strerror(errno) : reason));
    }
    if (count == 0) {
      break;
    }
    content.append(buffer.data(), static_cast<std::size_t>(count));
  }
  int code = Z_OK;
  ::gzerror(file.get(), &code);
  if (code == Z_BUF_ERROR) {
    throw SystemFailure(fmt::format("'{}' is a truncated gzip file", path.string()));
  }
  return content;
}

void sync_folder(const fs::path& folder) {
  sync_path(folder);
}

void write_file(const fs::path& path, std::string_view content) {
  write_file(path, [&](std::ostream& out) {
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
  });
}

void write_file(const fs::path& path, const std::function<void(std::ostream&)>& produce) {
  std::error_code error;
  if (path.has_parent_path()) {
    fs::create_directories(path.parent_path(), error);
    if (error) {
      throw SystemFailure(fmt::format("cannot write '{}': cannot create folder '{}': {}",
                                      path.string(),
                                      path.parent_path().string(),
                                      error.message()));
    }
  }
  const fs::path temporary = path.string() + fmt::format(".partial-{}", ::getpid());
  try {
    errno = 0;
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    if (out) {
      produce(out);
      out.close();
    }
    if (!out) {
      throw SystemFailure(fmt::format("cannot write '{}': {}",
                                      path.string(),
                                      errno == 0 ? "write failed" : std::strerror(errno)));
    }
    sync_path(temporary);
    fs::rename(temporary, path, error);
    if (error) {
      throw SystemFailure(fmt::format("cannot write '{}': {}", path.string(), error.message()));
    }
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
}

}  // namespace entrain
