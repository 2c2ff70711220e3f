#include "entrain/core/dataset/columns.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/dataset/member_name.h"
#include "entrain/core/dataset/text.h"

namespace entrain {
namespace {

constexpr std::array<std::string_view, 3> kMediaColumns = {"image", "video", "audio"};
struct TextColumn {
  std::string_view name;
  int form;  // of a sample's text that it belongs to; 0: none
};
constexpr std::array<TextColumn, 12> kTextColumns = {{{"messages", 1},
                                                      {"conversations", 2},
                                                      {"texts", 3},
                                                      {"question", 4},
                                                      {"answer", 4},
                                                      {"prompt", 5},
                                                      {"response", 5},
                                                      {"caption", 6},
                                                      {"text", 7},
                                                      {"fps", 0},
                                                      {"kind", 0},
                                                      {"source", 0}}};

bool is_member(std::string_view theirs) {
  return theirs.starts_with('.');
}

const TextColumn* text_column(std::string_view ours) {
  const auto* const found = std::ranges::find(kTextColumns, ours, &TextColumn::name);
  return found == kTextColumns.end() ? nullptr : found;
}

// "image" of "images"; empty for a name that is none of ours.
std::string ours_of(std::string_view name) {
  for (int kind = 0; kind < MediaRefs::num_kinds(); ++kind) {
    const auto keys = media_keys(kind);
    if (std::ranges::find(keys, name) != keys.end()) {
      return std::string(kMediaColumns.at(static_cast<std::size_t>(kind)));
    }
  }
  return std::string(text_column(name) != nullptr ? name : "");
}

// The value behind `[b][0]`; none if there is none.
const Json* value_behind(const Json* value, std::string_view steps) {
  while (value != nullptr && !steps.empty()) {
    const std::size_t end = steps.find(']');
    if (!steps.starts_with('[') || end == std::string_view::npos) {
      return nullptr;
    }
    const std::string_view step = steps.substr(1, end - 1);
    steps.remove_prefix(end + 1);
    if (value->is_object()) {
      const auto next = value->find(std::string(step));
      value = next == value->end() ? nullptr : &*next;
      continue;
    }
    std::size_t index = 0;
    const auto [stop, error] = std::from_chars(step.data(), step.data() + step.size(), index);
    const bool whole = error == std::errc() && stop == step.data() + step.size();
    value = whole && value->is_array() && index < value->size() ? &(*value)[index] : nullptr;
  }
  return value;
}

// Other values than floats have one spelling.
void check_float(const Json& value,
                 std::string_view path,
                 std::string_view text,
                 const std::string& where) {
  if (value.is_number_float()) {
    check_spelled(value, path, text, where);
  }
}

// Adds a value, or the entries of a list, to a list that may be null.
void append(Json& list, const Json& value) {
  if (list.is_null()) {
    list = Json::array();
  }
  for (const Json& entry : value.is_array() ? value : Json::array({value})) {
    list.push_back(entry);
  }
}

// Key of the document that the path begins with.
std::string key_of(const Json& document, const std::string& path) {
  return document.contains(path) ? path : std::string(head_of(path));
}

}  // namespace

bool is_medium(std::string_view ours) {
  return std::ranges::find(kMediaColumns, ours) != kMediaColumns.end();
}

std::string keys_of(const Json& document) {
  std::vector<std::string> keys;
  if (document.is_object()) {
    for (const auto& [key, value] : document.items()) {
      keys.push_back(key);
    }
  }
  return keys.empty() ? "none" : join(keys);
}

const std::vector<std::string>& column_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const TextColumn& column : kTextColumns) {
      all.emplace_back(column.name);
    }
    all.insert(all.end(), kMediaColumns.begin(), kMediaColumns.end());
    return all;
  }();
  return names;
}

std::string_view head_of(std::string_view path) {
  return path.substr(0, path.find('['));
}

const Json* value_at(const Json& document, std::string_view path) {
  if (const auto whole = document.find(std::string(path)); whole != document.end()) {
    return &*whole;
  }
  const std::string_view head = head_of(path);
  const auto found = document.find(std::string(head));
  return found == document.end() ? nullptr : value_behind(&*found, path.substr(head.size()));
}

std::vector<MemberPlace> member_places(std::string_view theirs) {
  std::vector<MemberPlace> places;
  while (!theirs.empty()) {
    const std::size_t end = std::min(theirs.find(",."), theirs.size());
    const std::string_view one = theirs.substr(0, end);
    theirs.remove_prefix(std::min(theirs.size(), end + 1));
    const std::size_t steps = std::min(one.find('['), one.size());
    places.push_back({lower(one.substr(1, steps - 1)), std::string(one.substr(steps))});
  }
  return places;
}

Json value_of_member(const Json& document,
                     const std::string& steps,
                     std::string_view text,
                     const std::string& where) {
  const Json* value = value_behind(&document, steps);
  if (value == nullptr || value->is_null()) {
    throw InvalidInput(
        fmt::format("{}: nothing at {}; there are {}", where, steps, keys_of(document)));
  }
  check_float(*value, steps, text, where);
  return *value;
}

ColumnMap::ColumnMap(std::string_view text) {
  for (const std::string_view entry : split(text, ';')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      throw InvalidInput(
          fmt::format("columns: '{}' is not OURS=THEIRS, such as answer=label", entry));
    }
    Column column = {ours_of(entry.substr(0, equals)), std::string(entry.substr(equals + 1))};
    if (column.ours.empty()) {
      throw InvalidInput(fmt::format("columns: '{}' in '{}' is no name of ours; allowed: {}",
                                     entry.substr(0, equals),
                                     entry,
                                     join(column_names())));
    }
    if (!is_medium(column.ours) && (column.theirs.empty() || theirs_of(column.ours))) {
      throw InvalidInput(fmt::format(
          "columns: '{}': {}",
          entry,
          column.theirs.empty() ? "a column is missing behind the '='" : "a text of two columns"));
    }
    columns_.push_back(std::move(column));
  }
  if (texts_are_members() && std::ranges::any_of(columns_, [](const Column& column) {
        return !is_medium(column.ours) && !is_member(column.theirs);
      })) {
    throw InvalidInput(
        fmt::format("columns: '{}': some texts are members of a shard (.txt, .json[key]) and some "
                    "are keys; name all as members",
                    text));
  }
}

std::string ColumnMap::text() const {
  std::string result;
  for (const Column& column : columns_) {
    result += fmt::format("{}{}={}", result.empty() ? "" : ";", column.ours, column.theirs);
  }
  return result;
}

std::optional<std::vector<std::string>> ColumnMap::theirs_of(std::string_view ours) const {
  std::optional<std::vector<std::string>> result;
  for (const Column& column : columns_) {
    if (column.ours == ours) {
      if (!result) {
        result.emplace();
      }
      if (!column.theirs.empty()) {
        result->push_back(column.theirs);
      }
    }
  }
  return result;
}

bool ColumnMap::maps_texts() const {
  return std::ranges::any_of(columns_,
                             [](const Column& column) { return !is_medium(column.ours); });
}

bool ColumnMap::texts_are_members() const {
  return std::ranges::any_of(columns_, [](const Column& column) {
    return !is_medium(column.ours) && is_member(column.theirs);
  });
}

void ColumnMap::require_keys(const std::string& where) const {
  for (const Column& column : columns_) {
    if (is_member(column.theirs)) {
      throw InvalidInput(
          fmt::format("{}: columns: '{}={}' names a member of shards, and this is "
                      "no shard: a key or column is needed",
                      where,
                      column.ours,
                      column.theirs));
    }
  }
}

void ColumnMap::require_members_of_media(const std::string& where) const {
  for (const Column& column : columns_) {
    if (is_medium(column.ours) && !column.theirs.empty() &&
        (!is_member(column.theirs) || column.theirs.find('[') != std::string::npos)) {
      throw InvalidInput(
          fmt::format("{}: columns: '{}={}': media of a shard are members, such as {}=.jpg",
                      where,
                      column.ours,
                      column.theirs,
                      column.ours));
    }
  }
}

// Texts of another form than those that are named: a sample has one.
void ColumnMap::drop_other_forms(Json& document) const {
  std::array<bool, 8> named{};
  for (const Column& column : columns_) {
    const TextColumn* text = text_column(column.ours);
    named.at(text == nullptr ? 0 : static_cast<std::size_t>(text->form)) = true;
  }
  if (std::none_of(named.begin() + 1, named.end(), [](bool one) { return one; })) {
    return;
  }
  for (const TextColumn& text : kTextColumns) {
    if (text.form != 0 && !named.at(static_cast<std::size_t>(text.form))) {
      document.erase(std::string(text.name));
    }
  }
}

Json ColumnMap::renamed(const Json& document,
                        std::string_view text,
                        const std::string& where) const {
  Json result = document;
  drop_other_forms(result);
  for (const Column& column : columns_) {
    result.erase(key_of(document, column.theirs));
    if (!is_medium(column.ours)) {
      continue;
    }
    for (const std::string_view key : media_keys(static_cast<int>(
             std::ranges::find(kMediaColumns, column.ours) - kMediaColumns.begin()))) {
      result.erase(std::string(key));
    }
  }
  for (const Column& column : columns_) {
    const Json* value = column.theirs.empty() ? nullptr : value_at(document, column.theirs);
    if (is_medium(column.ours)) {
      if (value != nullptr && !value->is_null()) {
        append(result[column.ours], *value);
      }
      continue;
    }
    if (value == nullptr || value->is_null()) {
      throw InvalidInput(fmt::format("{}: nothing in '{}', which is to be the {}; there are {}",
                                     where,
                                     column.theirs,
                                     column.ours,
                                     keys_of(document)));
    }
    check_float(*value, column.theirs, text, where);
    result[column.ours] = *value;
  }
  return result;
}

}  // namespace entrain
