// A file's bytes in memory, read by the system where they are looked at.
#pragma once

#include <filesystem>
#include <string_view>

namespace entrain {

class MappedFile {
 public:
  // The file is not to change or shrink while it is mapped.
  //
  // Throws  InvalidInput when the path does not exist or is no regular file; SystemFailure when it
  //         cannot be read.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

}  // namespace entrain
