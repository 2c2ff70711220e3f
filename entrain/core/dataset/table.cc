#include "entrain/core/dataset/table.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/python_process.h"
#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/dataset/python_answers.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

PythonReader& reader_of_this_thread() {
  thread_local PythonReader reader("entrain.tables", "reads Parquet and Arrow files");
  return reader;
}

// Asks this thread's process. Returns what `read(process)` makes of the answer.
template <class Read>
auto ask(const Json& request, const std::string& where, const Read& read) {
  return reader_of_this_thread().with_process([&](PythonProcess& process) {
    process.write(request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", where);
    return read(process, where);
  });
}

std::string table_path(const fs::path& file) {
  return fs::absolute(file).string();
}

std::string row_id(const fs::path& file, std::int64_t row) {
  return fmt::format("{}/{}", file.stem().string(), row);
}

FoundSample found_row(const fs::path& file, std::int64_t row, const fs::path& media) {
  const std::string where = fmt::format("'{}', row {}", file.string(), row);
  auto [text, refs] = ask({{"path", table_path(file)}, {"row", row}}, where, read_table_row);
  Json record = parse_json(text, where);
  MediaRefs named = media_of(record, where);  // by its messages
  for (int kind = 0; kind < MediaRefs::num_kinds(); ++kind) {
    if (!named.of(kind).empty() && !refs.of(kind).empty()) {
      throw InvalidInput(
          fmt::format("{}: its messages name media, and a column has some too", where));
    }
    if (refs.of(kind).empty()) {
      refs.of(kind) = std::move(named.of(kind));
    }
  }
  FoundSample found = open_media(std::move(refs), media, where);
  found.id = row_id(file, row);
  found.offset = row;
  found.size = 1;
  found.text = bytes_in_memory(std::move(text), where);
  return found;
}

}  // namespace

bool is_table_file(const fs::path& path) {
  return path.extension() == ".parquet" || path.extension() == ".arrow";
}

TableReader::TableReader(const fs::path& file, const fs::path& media) : file_(file), media_(media) {
  const TableSize table =
      ask({{"open", table_path(file)}}, fmt::format("'{}'", file.string()), read_table_size);
  rows_ = table.rows;
  largest_ = table.largest_bytes;
}

std::string TableReader::upcoming() const {
  return row_id(file_, next_);
}

FoundSample TableReader::next() {
  return found_row(file_, next_++, media_);
}

FoundSample read_row(const SampleLocation& location) {
  return found_row(location.shard, location.offset, location.media);
}

}  // namespace entrain
