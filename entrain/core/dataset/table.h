// Samples as rows of Parquet and Arrow files, as `datasets` writes them, read by pyarrow in a
// Python process beside this one.
//
// Columns of text are those that a shard's NAME.json has as keys (docs/data.md); of media those
// that media_refs.h lists, and those that the file says are of `datasets`' types Image, Audio and
// Video; of other names those that a ColumnMap names. A medium is bytes, a path, or a struct of
// both. Samples are named by the rows' numbers from 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "entrain/core/dataset/columns.h"
#include "entrain/core/dataset/found_sample.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// .parquet, .arrow
bool is_table_file(const std::filesystem::path& path);

// Reads rows in their order, some hundreds at a time: while they are taken, Python prepares the
// next ones. All readers of a thread share one process, which ends with the thread; a reader is
// used and destroyed on the thread that made it.
class TableReader : public SampleSource {
 public:
  // `media`: what paths in the table are relative to.
  //
  // Throws  InvalidInput naming the file: damaged, without a column of text, without one that
  //         `columns` names (with those that there are), or no pyarrow there; SystemFailure where
  //         Python does not start.
  TableReader(const std::filesystem::path& file,
              const std::filesystem::path& media,
              const ColumnMap& columns = {});
  ~TableReader() override;
  TableReader(const TableReader&) = delete;
  TableReader& operator=(const TableReader&) = delete;

  [[nodiscard]] std::int64_t num_samples() const override { return rows_; }
  [[nodiscard]] std::string upcoming() const override;
  // Offset and size are the row's number and 1. Bytes of media are usable as long as the sample.
  //
  // Throws  InvalidInput naming file and row: a damaged row, a medium that is not there.
  FoundSample next() override;

  // The largest row group of a Parquet file; 0 for Arrow, whose rows are read by themselves.
  [[nodiscard]] std::int64_t bytes_of_a_row() const override { return largest_; }
  // Columns that hold bytes and are not read.
  [[nodiscard]] std::vector<std::string> notes() const override;

 private:
  class Rows;
  friend FoundSample read_row(const SampleLocation& location);

  std::filesystem::path file_;
  std::filesystem::path media_;
  std::int64_t rows_ = 0;
  std::int64_t largest_ = 0;
  std::int64_t next_ = 0;
  std::vector<std::string> unread_;
  std::unique_ptr<Rows> read_;
};

// The row at a location. A thread's first call starts a process, which ends with the thread.
//
// Throws  as TableReader does.
// Cost    0.1 ms, and what is read and decoded for it: see bytes_of_a_row(). The process holds
//         256 MiB of row groups.
FoundSample read_row(const SampleLocation& location);

}  // namespace entrain
