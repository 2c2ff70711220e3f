// What the Python processes that read tables and video answer (entrain/python/entrain/tables.py and
// videos.py), checked.
//
// All throw what PythonProcess::read_answer() does; also SystemFailure naming `where` for a field
// that is missing, of another type or out of range, after which the process is of no use.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/python_process.h"
#include "entrain/core/dataset/image.h"
#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

struct TableSize {
  std::int64_t rows = 0;
  std::int64_t largest_bytes = 0;   // of a Parquet file's row groups; 0 for Arrow
  std::vector<std::string> unread;  // columns of bytes that are not read
};
// A table without the columns that are read. It is not damaged, so nothing leaves it out.
class UnfitColumns : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};
// Throws  also UnfitColumns.
TableSize read_table_size(PythonProcess& process, const std::string& where);

// A medium in a row's columns: a path, or bytes of the answer or of the table's file.
struct TableMedium {
  std::string path = {};
  bool in_file = false;
  std::size_t begin = 0;
  std::size_t size = 0;
};
struct TableRow {
  std::string error = {};  // instead of the others: why the row is damaged
  std::string text = {};   // JSON
  // [kind] in the order of MediaRefs::of().
  std::array<std::vector<TableMedium>, MediaRefs::num_kinds()> media = {};
};
struct TableRows {
  std::vector<TableRow> rows;  // 1 to `most`
  std::string bytes;           // that media name
};
// `file_bytes`: of the table's file, where media may lie in it.
TableRows read_table_rows(PythonProcess& process,
                          std::int64_t most,
                          std::int64_t file_bytes,
                          const std::string& where);

VideoSize read_video_size(PythonProcess& process, const std::string& where);

// At most kMaxImagePixels.
DecodedImage read_video_frame(PythonProcess& process, const std::string& where);

}  // namespace entrain
