// What the Python processes that read tables and video answer (entrain/python/entrain/tables.py and
// videos.py), checked.
//
// All throw what PythonProcess::read_answer() does; also SystemFailure naming `where` for a field
// that is missing, of another type or out of range, after which the process is of no use.
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/base/python_process.h"
#include "entrain/core/dataset/image.h"
#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

struct TableSize {
  std::int64_t rows = 0;
  std::int64_t largest_bytes = 0;  // of a Parquet file's row groups; 0 for Arrow
};
TableSize read_table_size(PythonProcess& process, const std::string& where);

struct TableRow {
  std::string text;  // JSON
  MediaRefs media;   // of the columns
};
TableRow read_table_row(PythonProcess& process, const std::string& where);

VideoSize read_video_size(PythonProcess& process, const std::string& where);

// At most kMaxImagePixels.
DecodedImage read_video_frame(PythonProcess& process, const std::string& where);

}  // namespace entrain
