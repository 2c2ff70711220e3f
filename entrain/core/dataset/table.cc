#include "entrain/core/dataset/table.h"

#include <deque>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/mapped_file.h"
#include "entrain/core/base/python_process.h"
#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/dataset/python_answers.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

// What every request about a file says.
Json table_request(const fs::path& file, const ColumnMap& columns) {
  Json request = {{"path", fs::absolute(file).string()}};
  Json texts = Json::array();
  Json media = Json::object();
  for (const ColumnMap::Column& column : columns.columns()) {
    if (is_medium(column.ours)) {  // as entrain/python/entrain/tables.py calls it
      const std::string kind = column.ours == "audio" ? "audio" : column.ours + "s";
      media[kind] = *columns.theirs_of(column.ours);
    } else {
      texts.push_back(column.theirs);
    }
  }
  if (!columns.empty()) {
    request["texts"] = texts;
    request["media"] = media;
  }
  return request;
}

std::string row_id(const fs::path& file, std::int64_t row) {
  return fmt::format("{}/{}", file.stem().string(), row);
}

// A row on its way, and the bytes that its media are in.
struct AnsweredRow {
  TableRow row;
  std::shared_ptr<const std::string> bytes;
};

MediaRef ref_of(const TableMedium& medium,
                const std::shared_ptr<const std::string>& bytes,
                const std::shared_ptr<const MappedFile>& file) {
  if (!medium.path.empty()) {
    return {medium.path, "", {}};
  }
  const std::string_view all = medium.in_file ? file->bytes() : std::string_view(*bytes);
  MediaRef ref;
  ref.held = MediaBytes{"",
                        static_cast<std::int64_t>(medium.size),
                        [content = all.substr(medium.begin, medium.size), bytes, file](
                            std::int64_t offset, std::int64_t count) {
                          return content.substr(static_cast<std::size_t>(offset),
                                                static_cast<std::size_t>(count));
                        },
                        {}};
  return ref;
}

FoundSample found_row(AnsweredRow answered,
                      const std::shared_ptr<const MappedFile>& content,
                      const ColumnMap& columns,
                      const fs::path& media,
                      const std::string& where) {
  TableRow& row = answered.row;
  if (!row.error.empty()) {
    throw InvalidInput(fmt::format("{}: {}", where, row.error));
  }
  std::string text = std::move(row.text);
  MediaRefs refs;
  for (int kind = 0; kind < MediaRefs::num_kinds(); ++kind) {
    for (const TableMedium& medium : row.media.at(static_cast<std::size_t>(kind))) {
      refs.of(kind).push_back(ref_of(medium, answered.bytes, content));
    }
  }
  Json record = parse_json(text, where);
  if (columns.maps_texts()) {
    record = columns.renamed(record, text, where);
    text = record.dump();
  }
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
  found.size = 1;
  found.text = bytes_in_memory(std::move(text), where);
  return found;
}

}  // namespace

bool is_table_file(const fs::path& path) {
  return path.extension() == ".parquet" || path.extension() == ".arrow";
}

// Rows of a file, requested from this thread's process before they are taken.
class TableReader::Rows {
 public:
  Rows(const fs::path& file, const ColumnMap& columns)
      : file_(file),
        columns_(columns),
        name_(fmt::format("'{}'", file.string())),
        request_(table_request(file, columns)) {
    columns.require_keys(name_);
    if (file.extension() == ".arrow") {
      content_ = std::make_shared<const MappedFile>(file);
    }
  }
  ~Rows() {
    if (this_thread().waiting == this) {
      try {
        receive();
      } catch (const std::exception&) {  // nobody asks any more
        answered_.clear();
      }
    }
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  // Of the file as a whole.
  TableSize open() {
    Json request = request_;
    request["open"] = true;
    send(request);
    return this_thread().reader.with_process(
        [&](PythonProcess& process) { return read_table_size(process, name_); });
  }

  // The sample of row `next`. The rows from it on are requested, at most up to `end`.
  FoundSample sample(std::int64_t next, std::int64_t end, const fs::path& media) {
    const std::string where = fmt::format("{}, row {}", name_, next);
    FoundSample found = found_row(take(next, end), content_, columns_, media, where);
    found.id = row_id(file_, next);
    found.offset = next;
    return found;
  }

 private:
  struct ThisThread {
    PythonReader reader{"entrain.tables", "reads Parquet and Arrow files"};
    Rows* waiting = nullptr;  // whose rows are requested and not received
  };

  static ThisThread& this_thread() {
    thread_local ThisThread state;
    return state;
  }

  AnsweredRow take(std::int64_t next, std::int64_t end) {
    if (answered_.empty()) {
      if (this_thread().waiting != this) {
        request_rows(next, end);
      }
      receive();
      const std::int64_t behind = next + std::ssize(answered_);
      if (behind < end) {
        request_rows(behind, end);
      }
    }
    AnsweredRow row = std::move(answered_.front());
    answered_.pop_front();
    return row;
  }

  void send(const Json& request) {
    if (Rows* other = this_thread().waiting) {
      other->receive();
    }
    this_thread().reader.with_process([&](PythonProcess& process) {
      process.write(request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", name_);
    });
  }

  void request_rows(std::int64_t begin, std::int64_t end) {
    Json request = request_;
    request["from"] = begin;
    request["to"] = end;
    send(request);
    requested_ = end - begin;
    this_thread().waiting = this;
  }

  void receive() {
    this_thread().waiting = nullptr;
    const auto file_bytes =
        content_ == nullptr ? 0 : static_cast<std::int64_t>(content_->bytes().size());
    TableRows answer = this_thread().reader.with_process([&](PythonProcess& process) {
      return read_table_rows(process, requested_, file_bytes, name_);
    });
    const auto bytes = std::make_shared<const std::string>(std::move(answer.bytes));
    for (TableRow& row : answer.rows) {
      answered_.push_back({std::move(row), bytes});
    }
  }

  fs::path file_;
  ColumnMap columns_;
  std::string name_;  // of the file, in messages
  Json request_;
  std::shared_ptr<const MappedFile> content_;  // of an Arrow file
  std::int64_t requested_ = 0;                 // rows of the last request
  std::deque<AnsweredRow> answered_;
};

TableReader::TableReader(const fs::path& file, const fs::path& media, const ColumnMap& columns)
    : file_(file), media_(media), read_(std::make_unique<Rows>(file, columns)) {
  TableSize table = read_->open();
  rows_ = table.rows;
  largest_ = table.largest_bytes;
  unread_ = std::move(table.unread);
}

TableReader::~TableReader() = default;

std::string TableReader::upcoming() const {
  return row_id(file_, next_);
}

FoundSample TableReader::next() {
  const std::int64_t row = next_++;
  return read_->sample(row, rows_, media_);
}

std::vector<std::string> TableReader::notes() const {
  std::vector<std::string> notes;
  for (const std::string& column : unread_) {
    notes.push_back(fmt::format(
        "column '{}' holds bytes and is not read (--columns image={} reads it)", column, column));
  }
  return notes;
}

FoundSample read_row(const SampleLocation& location) {
  TableReader::Rows rows(location.shard, ColumnMap(location.columns));
  return rows.sample(location.offset, location.offset + 1, location.media);
}

}  // namespace entrain
