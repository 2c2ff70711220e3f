#include "entrain/core/dataset/shard_list.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/energon.h"
#include "entrain/core/dataset/records.h"
#include "entrain/core/dataset/shard.h"
#include "entrain/core/dataset/table.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNames = 100'000;

[[noreturn]] void refuse_name(const std::string& name, const std::string& message) {
  throw InvalidInput(fmt::format(
      "'{}': {}; braces hold a range such as {{000000..000009}} or a list such as {{a,b}}",
      name,
      message));
}

bool is_shard(const fs::path& path) {
  return path.extension() == ".tar" || is_compressed_shard(path);
}

// Position of the brace that closes the one at `open`.
std::size_t closing_brace(std::string_view text, std::size_t open, const std::string& name) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) {
      return i;
    }
  }
  refuse_name(name, "an open brace is never closed");
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool complete = error == std::errc() && end == text.data() + text.size();
  return complete && text.size() <= 18 ? std::optional(value) : std::nullopt;
}

// "000..009..3"; empty where it is no range.
std::vector<std::string> range_of(std::string_view text, const std::string& name) {
  std::vector<std::string_view> parts;
  for (std::size_t dots = text.find(".."); dots != std::string_view::npos; dots = text.find("..")) {
    parts.push_back(text.substr(0, dots));
    text.remove_prefix(dots + 2);
  }
  parts.push_back(text);
  if (parts.size() < 2 || parts.size() > 3) {
    return {};
  }
  const std::optional<std::int64_t> first = whole_number(parts[0]);
  const std::optional<std::int64_t> last = whole_number(parts[1]);
  const std::optional<std::int64_t> step = parts.size() == 3 ? whole_number(parts[2]) : 1;
  if (!first || !last || !step || *first < 0 || *last < 0 || *step < 1) {
    return {};
  }
  const std::int64_t count = std::abs(*last - *first) / *step + 1;
  if (std::cmp_greater(count, kMostNames)) {
    refuse_name(name,
                fmt::format("a range of {} names; at most {} are allowed", count, kMostNames));
  }
  const bool padded = (parts[0].size() > 1 && parts[0].starts_with('0')) ||
                      (parts[1].size() > 1 && parts[1].starts_with('0'));
  const std::size_t width = padded ? std::max(parts[0].size(), parts[1].size()) : 0;
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t value = *first + (*last >= *first ? i : -i) * *step;
    names.push_back(fmt::format("{:0{}}", value, width));
  }
  return names;
}

// Parts of a list between commas outside inner braces.
std::vector<std::string> list_of(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char character : text) {
    depth += character == '{' ? 1 : character == '}' ? -1 : 0;
    if (character == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  return parts;
}

std::vector<std::string> expand(const std::string& text, const std::string& name) {
  const std::size_t open = text.find('{');
  if (open == std::string::npos) {
    return {text};
  }
  const std::size_t close = closing_brace(text, open, name);
  const std::string_view inside = std::string_view(text).substr(open + 1, close - open - 1);
  std::vector<std::string> choices = range_of(inside, name);
  if (choices.empty()) {
    const std::vector<std::string> parts = list_of(inside);
    if (parts.size() < 2) {
      refuse_name(name, fmt::format("'{{{}}}' is neither a range nor a list", inside));
    }
    for (const std::string& part : parts) {
      const std::vector<std::string> inner = expand(part, name);
      choices.insert(choices.end(), inner.begin(), inner.end());
    }
  }
  std::vector<std::string> result;
  const std::vector<std::string> rests = expand(text.substr(close + 1), name);
  for (const std::string& choice : choices) {
    if (result.size() + rests.size() > kMostNames) {
      refuse_name(name, fmt::format("more than {} names", kMostNames));
    }
    for (const std::string& rest : rests) {
      result.push_back(fmt::format("{}{}{}", text.substr(0, open), choice, rest));
    }
  }
  return result;
}

// A folder without shards and tables: what to do with the files that it has.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::vector<std::string> records;
  bool others = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_record_file(entry.path()) || is_index_file(entry.path())) {
      records.push_back(entry.path().string());
    } else {
      others = others || entry.is_regular_file();
    }
  }
  const std::string name =
      (folder.has_filename() ? folder : folder.parent_path()).string();  // of "pics/", too
  std::string advice;
  if (!records.empty()) {
    advice = fmt::format("; files of records and indices are named themselves: `entrain index {}`",
                         *std::min_element(records.begin(), records.end()));
  }
  if (others) {
    advice += fmt::format(
        "; images, clips or videos with a text beside each (NAME.png and NAME.txt) become a shard "
        "by `tar --sort=name -cf {0}.tar -C {0} .`, those that a list of records names are read "
        "by `entrain index RECORDS.json --media {0}`",
        name);
  }
  throw InvalidInput(
      fmt::format("folder '{}' holds no shards (*.tar, *.tar.gz) and no tables (*.parquet, "
                  "*.arrow){}",
                  folder.string(),
                  advice));
}

// The shards of a folder; without any its tables, of the split if they are named by splits; else
// those of its folder `data`, where a data set of the Hugging Face Hub has them, or of the split's
// folder, where save_to_disk() of a DatasetDict has them.
void append_folder(const fs::path& folder, const std::string& split, std::vector<fs::path>& files) {
  if (is_energon_folder(folder)) {
    for (const fs::path& item : energon_shards(folder, split)) {
      for (const std::string& name : expand_braces(item.string())) {
        files.emplace_back(name);
      }
    }
    return;
  }
  std::vector<fs::path> shards;
  std::vector<fs::path> tables;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_shard(entry.path())) {
      shards.push_back(entry.path());
    } else if (is_table_file(entry.path())) {
      tables.push_back(entry.path());
    }
  }
  // Of a data set of the Hub: train-00000-of-00001.parquet, test-00000-of-00001.parquet.
  const auto is_of_split = [&](const fs::path& path) {
    return path.filename().string().starts_with(split);
  };
  if (std::any_of(tables.begin(), tables.end(), is_of_split)) {
    std::erase_if(tables, [&](const fs::path& path) { return !is_of_split(path); });
  }
  if (shards.empty() && tables.empty() && fs::exists(folder / "dataset_dict.json")) {
    append_folder(folder / split, split, files);
    return;
  }
  std::vector<fs::path>& found = shards.empty() ? tables : shards;
  if (found.empty() && fs::is_directory(folder / "data")) {
    append_folder(folder / "data", split, files);
    return;
  }
  if (found.empty()) {
    refuse_folder(folder);
  }
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& name) {
  return expand(name, name);
}

NamedData named_data(const fs::path& given) {
  const std::string text = given.string();
  const std::size_t equals = text.find('=');
  const bool named = equals != std::string::npos && equals > 0 && !fs::exists(given) &&
                     std::all_of(text.begin(),
                                 text.begin() + static_cast<std::ptrdiff_t>(equals),
                                 [](unsigned char character) {
                                   return std::isalnum(character) != 0 || character == '_' ||
                                          character == '-' || character == '.';
                                 });
  return named ? NamedData{text.substr(0, equals), text.substr(equals + 1)} : NamedData{"", given};
}

bool is_index_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".csv") || name.ends_with(".csv.gz");
}

std::vector<fs::path> list_data(const std::vector<fs::path>& data, const std::string& split) {
  if (data.empty()) {
    throw InvalidInput(
        "no data given; needed are shards (.tar), tables (.parquet, .arrow), folders of them, "
        "records (.json, .jsonl) or index files (.csv)");
  }
  std::vector<fs::path> files;
  for (const fs::path& given : data) {
    const std::vector<std::string> names =
        fs::exists(given) ? std::vector{given.string()} : expand_braces(given.string());
    for (const fs::path path : names) {
      if (!fs::exists(path)) {
        throw InvalidInput(fmt::format(
            "'{}' does not exist{}",
            path.string(),
            names.size() > 1
                ? fmt::format(" (one of {} names of '{}')", names.size(), given.string())
                : ""));
      }
      if (fs::is_directory(path)) {
        append_folder(path, split, files);
        continue;
      }
      if (!is_shard(path) && !is_index_file(path) && !is_record_file(path) &&
          !is_table_file(path)) {
        throw InvalidInput(fmt::format(
            "'{}' is neither a shard (.tar, .tar.gz, .tgz), a table (.parquet, .arrow), "
            "a file of records (.json, .jsonl) nor an index file (.csv, .csv.gz); other "
            "compressed files must be unpacked first",
            path.string()));
      }
      files.push_back(path);
    }
  }
  return files;
}

}  // namespace entrain
