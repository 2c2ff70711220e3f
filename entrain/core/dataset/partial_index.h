// What was measured of the files of an index that is not finished, kept beside it: the same command
// continues from there after it was ended at any moment.
//
// Read first: PartialIndex. One file for each data file that was measured to its end, in the folder
// OUTPUT.partial, each written under another name and then renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "entrain/core/base/mapped_file.h"
#include "entrain/core/base/partial_files.h"
#include "entrain/core/dataset/measured_files.h"
#include "entrain/core/dataset/token_workers.h"

namespace entrain {

// A sample as it was measured, for PartialFileWriter. `json`: with its text.
std::string to_bytes(const MeasuredSample& sample, bool json);

// Writes one file while its samples are measured. It counts once it is finished.
class PartialFileWriter {
 public:
  // Throws  SystemFailure when it cannot be written.
  PartialFileWriter(std::filesystem::path path, const MeasuredFile& file);
  ~PartialFileWriter();  // nothing stays of a file that is not finished
  PartialFileWriter(const PartialFileWriter&) = delete;
  PartialFileWriter& operator=(const PartialFileWriter&) = delete;
  // `sample`: of to_bytes(). `tokens`: if they were made.
  void add(const std::string& sample, const TokenResult* tokens);
  void finish();

 private:
  void check() const;

  std::filesystem::path path_;
  std::filesystem::path written_;  // the name until it is finished
  PartialFile unfinished_;
  std::ofstream out_;
};

// A file that was measured by an earlier run.
class KeptFile {
 public:
  // nullptr where the file is missing, damaged or unfinished.
  static std::unique_ptr<KeptFile> open(const std::filesystem::path& path);

  [[nodiscard]] const MeasuredFile& file() const { return file_; }
  struct Sample {
    MeasuredSample measured;
    std::optional<TokenResult> tokens;
  };
  // Called file().num_samples times.
  Sample next();

 private:
  explicit KeptFile(const std::filesystem::path& path) : content_(path) {}

  MappedFile content_;
  std::string_view rest_;  // of its content, not yet read
  MeasuredFile file_;
};

class PartialIndex {
 public:
  // Of the index at `output`. Nothing is written yet.
  explicit PartialIndex(const std::filesystem::path& output);

  // When indexing began, in seconds since 1970: that of the first of the runs. The folder is made.
  //
  // Throws  SystemFailure when it cannot be written.
  std::int64_t begun();

  // `settings`: all that measurements depend on beside the file itself. A file of another size or
  // time of change is measured again.
  std::unique_ptr<KeptFile> read(const FileToMeasure& file, const std::string& settings) const;
  std::shared_ptr<PartialFileWriter> write(const FileToMeasure& file,
                                           const std::string& settings,
                                           const MeasuredFile& measured) const;
  // Removes all that was kept; files of other names in the folder stay.
  void remove() const;
  [[nodiscard]] bool holds_files() const;  // that were finished
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  [[nodiscard]] std::filesystem::path path_of(const FileToMeasure& file,
                                              const std::string& settings) const;

  std::filesystem::path folder_;
};

}  // namespace entrain
