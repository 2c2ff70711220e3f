#include "entrain/core/base/files.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/partial_files.h"

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

// The stream of this program that writes to the same file, nullptr where none does.
std::ostream* standard_stream(const fs::path& path) {
  struct stat given {};
  if (::stat(path.c_str(), &given) != 0) {
    return nullptr;
  }
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(descriptor, &own) == 0 && own.st_dev == given.st_dev &&
        own.st_ino == given.st_ino) {
      return descriptor == STDOUT_FILENO ? &std::cout : &std::cerr;
    }
  }
  return nullptr;
}

void check_written(const std::ostream& out, const fs::path& path) {
  if (!out) {
    throw SystemFailure(fmt::format("cannot write '{}': {}",
                                    path.string(),
                                    errno == 0 ? "write failed" : std::strerror(errno)));
  }
}

void write_stream(const fs::path& path, const std::function<void(std::ostream&)>& produce) {
  errno = 0;
  if (std::ostream* own = standard_stream(path); own != nullptr) {
    produce(*own);
    own->flush();
    check_written(*own, path);
    return;
  }
  std::ofstream out(path, std::ios::binary | std::ios::app);
  if (out) {
    produce(out);
    out.close();
  }
  check_written(out, path);
}

// Opening a pipe waits for its writer; without one, a command would wait for ever.
int open_pipe(const fs::path& path) {
  constexpr int kMilliseconds = 5000;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) {
    return descriptor;
  }
  pollfd waiting = {descriptor, POLLIN, 0};
  if (::poll(&waiting, 1, kMilliseconds) <= 0) {
    ::close(descriptor);
    throw InvalidInput(fmt::format("'{}' is a pipe into which nothing was written for {} seconds",
                                   path.string(),
                                   kMilliseconds / 1000));
  }
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

int open_to_read(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status) && status.type() != fs::file_type::unknown) {
    throw InvalidInput(fmt::format("file '{}' does not exist", path.string()));
  }
  if (fs::is_directory(status)) {
    throw InvalidInput(fmt::format("'{}' is a folder; a file is needed", path.string()));
  }
  if (fs::is_character_file(status) || fs::is_block_file(status) || fs::is_socket(status)) {
    throw InvalidInput(
        fmt::format("'{}' is a device or a socket; a file or a pipe is needed", path.string()));
  }
  return fs::is_fifo(status) ? open_pipe(path) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

std::string read_file(const fs::path& path) {
  const int descriptor = open_to_read(path);
  if (descriptor < 0) {
    throw SystemFailure(fmt::format("cannot open '{}': {}", path.string(), std::strerror(errno)));
  }
  // gzread passes plain files through unchanged.
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(::gzdopen(descriptor, "rb"), ::gzclose);
  if (file == nullptr) {
    ::close(descriptor);
    throw SystemFailure(fmt::format("cannot read '{}': out of memory", path.string()));
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

bool is_stream(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::is_character_file(status) || fs::is_fifo(status) || standard_stream(path) != nullptr;
}

fs::path follow_links(const fs::path& path) {
  constexpr int kMostLinks = 40;  // as the kernel allows
  fs::path current = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(current, error)); ++links) {
    const fs::path next = fs::read_symlink(current, error);
    if (error || links == kMostLinks) {
      throw SystemFailure(fmt::format("'{}' is a symbolic link that cannot be followed: {}",
                                      path.string(),
                                      error ? error.message() : "too many links"));
    }
    current = next.is_absolute() ? next : current.parent_path() / next;
  }
  return current;
}

void write_file(const fs::path& path, const std::function<void(std::ostream&)>& produce) {
  if (is_stream(path)) {
    write_stream(path, produce);
    return;
  }
  const fs::path target = follow_links(path);
  std::error_code error;
  if (fs::is_block_file(target, error) || fs::is_socket(target, error)) {
    throw SystemFailure(
        fmt::format("cannot write '{}': a block device or a socket is there", path.string()));
  }
  if (target.has_parent_path()) {
    fs::create_directories(target.parent_path(), error);
    if (error) {
      throw SystemFailure(fmt::format("cannot write '{}': cannot create folder '{}': {}",
                                      path.string(),
                                      target.parent_path().string(),
                                      error.message()));
    }
  }
  const fs::path temporary = target.string() + fmt::format(".partial-{}", ::getpid());
  const PartialFile partial(temporary);
  try {
    errno = 0;
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    if (out) {
      produce(out);
      out.close();
    }
    check_written(out, path);
    sync_path(temporary);
    fs::rename(temporary, target, error);
    if (error) {
      throw SystemFailure(fmt::format("cannot write '{}': {}", path.string(), error.message()));
    }
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
}

}  // namespace entrain
