#include "entrain/core/dataset/records.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/dataset/tar.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJsonSpaces = " \t\r\n";

[[noreturn]] void refuse(const std::string& where, std::size_t at, const std::string& message) {
  throw InvalidInput(fmt::format("{}, byte {}: {}", where, at, message));
}

// Behind the string whose quote is at `begin`; npos if it does not end.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  std::size_t at = begin + 1;
  while ((at = text.find_first_of("\"\\", at)) != std::string_view::npos && text[at] == '\\') {
    at += 2;
  }
  return at == std::string_view::npos ? at : at + 1;
}

// Behind the value that begins at `begin`: at a comma or a bracket of what is around it, or the
// end.
std::size_t end_of_value(std::string_view text, std::size_t begin) {
  int depth = 0;
  std::size_t at = begin;
  while ((at = text.find_first_of("\"[]{},", at)) != std::string_view::npos) {
    const char character = text[at];
    if (character == '"') {
      at = end_of_string(text, at);
      if (at == std::string_view::npos) {
        return text.size();
      }
      continue;
    }
    depth += character == '[' || character == '{' ? 1 : 0;
    if (depth == 0) {
      return at;
    }
    depth -= character == ']' || character == '}' ? 1 : 0;
    ++at;
  }
  return text.size();
}

std::vector<RecordRange> find_elements(std::string_view text,
                                       std::size_t open,
                                       const std::string& where) {
  std::vector<RecordRange> records;
  std::size_t at = text.find_first_not_of(kJsonSpaces, open + 1);
  const bool empty = at != std::string_view::npos && text[at] == ']';
  while (!empty) {
    const std::size_t end = at == std::string_view::npos ? text.size() : end_of_value(text, at);
    if (end == text.size()) {
      refuse(where, end, "the list does not end; is the file whole?");
    }
    const std::size_t last = text.find_last_not_of(kJsonSpaces, end - 1);
    if (text[end] == '}' || last < at || last == std::string_view::npos) {
      refuse(where, end, fmt::format("'{}' where an element of the list is needed", text[end]));
    }
    records.push_back({static_cast<std::int64_t>(at), static_cast<std::int64_t>(last) + 1});
    at = end;
    if (text[end] == ']') {
      break;
    }
    at = text.find_first_not_of(kJsonSpaces, end + 1);
  }
  const std::size_t behind = text.find_first_not_of(kJsonSpaces, at + 1);
  if (behind != std::string_view::npos) {
    refuse(where, behind, "more than one list; JSON Lines have one object a line");
  }
  return records;
}

std::vector<RecordRange> find_lines(std::string_view text) {
  std::vector<RecordRange> records;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const std::size_t first = line.find_first_not_of(kJsonSpaces);
    if (first != std::string_view::npos) {
      records.push_back(
          {static_cast<std::int64_t>(begin + first),
           static_cast<std::int64_t>(begin + line.find_last_not_of(kJsonSpaces)) + 1});
    }
    begin = end + 1;
  }
  return records;
}

Json parse_record(std::string_view text, const std::string& where) {
  Json record = parse_json(text, where);
  if (!record.is_object()) {
    throw InvalidInput(
        fmt::format("{}: a JSON object is needed, given {}", where, record.type_name()));
  }
  return record;
}

// Empty without one.
std::string id_of(const Json& record) {
  const auto found = record.find("id");
  if (found == record.end()) {
    return "";
  }
  return found->is_string()           ? found->get<std::string>()
         : found->is_number_integer() ? found->dump()
                                      : "";
}

FoundSample found_record(std::string_view text,
                         Json record,
                         const fs::path& media,
                         const ColumnMap& columns,
                         const std::string& where) {
  if (!columns.empty()) {
    record = columns.renamed(record, text, where);
  }
  MediaRefs refs = media_of(record, where);
  if (refs.empty()) {
    refuse_unread(record, where);
  }
  // The text without what is no text.
  std::string json = refs.inside() || !columns.empty() ? record.dump() : std::string(text);
  FoundSample found = open_media(std::move(refs), media, where);
  found.text = bytes_in_memory(std::move(json), where);
  return found;
}

std::string where_of(const fs::path& file, const RecordRange& range) {
  return fmt::format("'{}', the record at byte {}", file.string(), range.begin);
}

}  // namespace

bool is_record_file(const fs::path& path) {
  return path.extension() == ".json" || path.extension() == ".jsonl";
}

std::vector<RecordRange> find_records(std::string_view text, const std::string& where) {
  const std::size_t first = text.find_first_not_of(kJsonSpaces);
  if (first == std::string_view::npos) {
    return {};
  }
  if (text[first] == '[') {
    return find_elements(text, first, where);
  }
  if (text[first] != '{') {
    refuse(where, first, "neither a list of objects nor JSON Lines");
  }
  return find_lines(text);
}

RecordReader::RecordReader(const fs::path& file, const fs::path& media, ColumnMap columns)
    : file_(file),
      media_(media),
      columns_(std::move(columns)),
      content_(file),
      records_(find_records(content_.bytes(), fmt::format("'{}'", file.string()))) {
  require_media();
  look_ahead();
}

std::string_view RecordReader::text_of(const RecordRange& range) const {
  return content_.bytes().substr(static_cast<std::size_t>(range.begin),
                                 static_cast<std::size_t>(range.end - range.begin));
}

// A record may lack a medium; a key that all lack is misspelled.
void RecordReader::require_media() const {
  columns_.require_keys(fmt::format("'{}'", file_.string()));
  for (const ColumnMap::Column& column : columns_.columns()) {
    const auto has = [&](const RecordRange& range) {
      const Json record = Json::parse(text_of(range), nullptr, /*allow_exceptions=*/false);
      return record.is_object() && value_at(record, column.theirs) != nullptr;
    };
    if (!records_.empty() && !column.theirs.empty() && is_medium(column.ours) &&
        std::none_of(records_.begin(), records_.end(), has)) {
      const Json first = Json::parse(text_of(records_.front()), nullptr, false);
      throw InvalidInput(fmt::format("'{}': no record has '{}'; the first has {}",
                                     file_.string(),
                                     column.theirs,
                                     keys_of(first)));
    }
  }
}

// Parses the next record, whose id is known before it is taken.
void RecordReader::look_ahead() {
  if (next_ == records_.size()) {
    return;
  }
  const RecordRange range = records_[next_];
  std::string name;
  failure_ = nullptr;
  try {
    record_ = parse_record(text_of(range), where_of(file_, range));
    name = id_of(record_);
  } catch (const InvalidInput&) {
    failure_ = std::current_exception();
  }
  if (name.empty()) {
    name = std::to_string(next_);
  }
  const int times = ++times_[name];
  id_ = fmt::format(
      "{}/{}{}", file_.stem().string(), name, times == 1 ? "" : fmt::format("#{}", times));
}

FoundSample RecordReader::next() {
  const RecordRange range = records_.at(next_);
  const std::string id = id_;
  Json record = std::exchange(record_, Json());
  const std::exception_ptr failure = failure_;
  ++next_;
  look_ahead();
  if (failure) {
    std::rethrow_exception(failure);
  }
  FoundSample found =
      found_record(text_of(range), std::move(record), media_, columns_, where_of(file_, range));
  found.id = id;
  found.offset = range.begin;
  found.size = range.end - range.begin;
  return found;
}

FoundSample read_record(const SampleLocation& location, const std::string& id) {
  const fs::path file = location.shard;
  const std::string where = where_of(file, {location.offset, 0});
  const std::string text = read_range(file, location.offset, location.bytes);
  Json record = parse_record(text, where);
  const std::string own = id_of(record);
  FoundSample found =
      found_record(text, std::move(record), location.media, ColumnMap(location.columns), where);
  const std::string given = fmt::format("{}/{}", file.stem().string(), own);
  const std::size_t mark = id.rfind('#');
  const std::string_view first = std::string_view(id).substr(0, mark);  // of several of one id
  const bool fits =
      id == given || id.ends_with("/" + given) || first == given || first.ends_with("/" + given);
  found.id = own.empty() || fits ? id : given;
  return found;
}

}  // namespace entrain
