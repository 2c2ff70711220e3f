#include "entrain/core/dataset/energon.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/python_process.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnergonFolder = ".nv-meta";

struct YamlLine {
  std::size_t indent = 0;
  std::string text;  // without indentation, comment and spaces at its end
};

class YamlReader {
 public:
  YamlReader(std::string_view text, std::string where) : where_(std::move(where)) {
    for (std::string_view line : split(text, '\n')) {
      const std::size_t begin = line.find_first_not_of(' ');
      if (begin == std::string_view::npos) {
        continue;
      }
      std::string words = without_comment(line.substr(begin));
      if (!words.empty() && words != "---" && words != "...") {
        lines_.push_back({begin, std::move(words)});
      }
    }
  }

  Json read() {
    if (lines_.empty()) {
      return Json::object();
    }
    Json document = block(lines_.front().indent);
    if (next_ != lines_.size()) {
      refuse(lines_[next_].text);
    }
    return document;
  }

 private:
  [[noreturn]] void refuse(std::string_view words) const {
    throw InvalidInput(
        fmt::format("'{}': '{}' is of another form than Energon writes; name the shards themselves",
                    where_,
                    words));
  }

  static std::string without_comment(std::string_view line) {
    char quote = 0;
    std::size_t end = line.size();
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (quote == 0 && line[i] == '#' && (i == 0 || line[i - 1] == ' ')) {
        end = i;
        break;
      }
      if (line[i] == '\'' || line[i] == '"') {
        quote = quote == line[i] ? '\0' : quote == 0 ? line[i] : quote;
      }
    }
    line = line.substr(0, end);
    const std::size_t last = line.find_last_not_of(" \t\r");
    return std::string(line.substr(0, last == std::string_view::npos ? 0 : last + 1));
  }

  // A mapping or a list whose lines begin at that column.
  Json block(std::size_t indent) {
    const bool list = is_entry(lines_[next_].text);
    Json result = list ? Json::array() : Json::object();
    while (next_ < lines_.size() && lines_[next_].indent == indent &&
           is_entry(lines_[next_].text) == list) {
      const std::string words = lines_[next_].text;
      ++next_;
      if (list) {
        result.push_back(scalar(words.size() < 2 ? "" : words.substr(2)));
        continue;
      }
      const auto [key, rest] = key_and_rest(words);
      result[key] = !rest.empty() ? scalar(rest) : nested(indent);
    }
    return result;
  }

  // The value of a key that is alone on its line of that column.
  Json nested(std::size_t indent) {
    const bool inside =
        next_ < lines_.size() && (lines_[next_].indent > indent ||
                                  (lines_[next_].indent == indent && is_entry(lines_[next_].text)));
    return inside ? block(lines_[next_].indent) : Json();
  }

  static bool is_entry(std::string_view words) { return words == "-" || words.starts_with("- "); }

  [[nodiscard]] std::pair<std::string, std::string> key_and_rest(std::string_view words) const {
    const std::size_t colon = words.ends_with(':') && words.find(": ") == std::string_view::npos
                                  ? words.size() - 1
                                  : words.find(": ");
    if (colon == std::string_view::npos) {
      refuse(words);
    }
    const std::string_view rest = words.substr(colon + 1);
    const std::size_t begin = std::min(rest.find_first_not_of(' '), rest.size());
    return {scalar_text(words.substr(0, colon)), std::string(rest.substr(begin))};
  }

  [[nodiscard]] std::string scalar_text(std::string_view words) const {
    if (words.size() < 2 || (words.front() != '\'' && words.front() != '"')) {
      return std::string(words);
    }
    if (words.back() != words.front() || words.find('\\') != std::string_view::npos) {
      refuse(words);
    }
    return std::string(words.substr(1, words.size() - 2));
  }

  [[nodiscard]] Json scalar(std::string_view words) const {
    const bool mapping = words.starts_with('{') && words.ends_with('}');
    if (!mapping && !(words.starts_with('[') && words.ends_with(']'))) {
      if (words.starts_with('&') || words.starts_with('|') || words.starts_with('>')) {
        refuse(words);
      }
      return scalar_text(words);
    }
    Json result = mapping ? Json::object() : Json::array();
    for (std::string_view part : split(words.substr(1, words.size() - 2), ',')) {
      const std::size_t begin = std::min(part.find_first_not_of(' '), part.size());
      part = part.substr(begin, part.find_last_not_of(' ') + 1 - begin);
      if (mapping) {
        const auto [key, rest] = key_and_rest(part);
        result[key] = scalar_text(rest);
      } else {
        result.push_back(scalar_text(part));
      }
    }
    return result;
  }

  std::string where_;
  std::vector<YamlLine> lines_;
  std::size_t next_ = 0;
};

Json read_yaml(const fs::path& path) {
  return YamlReader(read_file(path), path.string()).read();
}

// Fields of a type of Energon's samples, and what they are here; empty: not read.
using Fields = std::map<std::string, std::string>;

const std::map<std::string, Fields>& sample_types() {
  static const std::map<std::string, Fields> types = {
      {"CaptioningSample", {{"image", "image"}, {"caption", "caption"}}},
      {"VQASample",
       {{"image", "image"},
        {"context", "question"},
        {"answers", "answer"},
        {"answer_weights", ""}}},
      {"VidQASample",
       {{"video", "video"},
        {"context", "question"},
        {"answers", "answer"},
        {"answer_weights", ""}}},
      {"OCRSample",
       {{"image", "image"},
        {"text", "caption"},
        {"block_boxes", ""},
        {"block_classes", ""},
        {"block_text", ""},
        {"lines_boxes", ""},
        {"lines_text", ""},
        {"words_boxes", ""},
        {"words_text", ""},
        {"chars_boxes", ""},
        {"chars_text", ""}}},
      {"TextSample", {{"text", "text"}}}};
  return types;
}

constexpr const char* kWayOut =
    "say which members hold what, such as --columns image=.jpg --columns question=.json[question] "
    "--columns answer=.json[answer]";

// "json[answer],txt" → ".json[answer],.txt"
std::string member_names(const std::string& field, const std::string& value, const fs::path& file) {
  std::string result;
  for (const std::string_view option : split(value, ',')) {
    if (option.empty() || option.starts_with("__") || option.starts_with('[') ||
        option.find(';') != std::string_view::npos) {
      throw InvalidInput(fmt::format("'{}': field '{}' is '{}', which is no member: {}",
                                     file.string(),
                                     field,
                                     value,
                                     kWayOut));
    }
    result += fmt::format("{}.{}", result.empty() ? "" : ",", option);
  }
  return result;
}

std::string text_or_empty(const Json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "";
}

// "VQASample", of which the type that older versions write is VQAWebdataset.
std::string class_of(const Json& document, const fs::path& file) {
  const auto type = document.find("sample_type");
  const bool nested = type != document.end() && type->is_object();
  const Json& named = nested ? *type : document;
  std::string name = text_or_empty(named, "__class__");
  const std::string module = text_or_empty(named, "__module__");
  if (module != "megatron.energon" && !module.starts_with("megatron.energon.")) {
    throw InvalidInput(
        fmt::format("'{}': samples are of type '{}' of module '{}', which is code "
                    "that is not run here: {}",
                    file.string(),
                    name,
                    module,
                    kWayOut));
  }
  constexpr std::string_view kOld = "Webdataset";
  if (name != "CrudeWebdataset" && name.ends_with(kOld)) {
    name = name.substr(0, name.size() - kOld.size()) + "Sample";
  }
  return name;
}

}  // namespace

bool is_energon_folder(const fs::path& folder) {
  return fs::exists(folder / kEnergonFolder / "split.yaml");
}

std::vector<fs::path> energon_shards(const fs::path& folder, const std::string& split) {
  const fs::path file = folder / kEnergonFolder / "split.yaml";
  const Json document = read_yaml(file);
  const Json parts = document.value("split_parts", Json::object());
  const auto wrong = [&](const std::string& what) {
    return InvalidInput(
        fmt::format("'{}': {} is of another form than Energon writes; name the "
                    "shards themselves",
                    file.string(),
                    what));
  };
  std::vector<std::string> excluded;
  for (const Json& name : document.value("exclude", Json::array())) {
    excluded.push_back(name.get<std::string>());
    if (!excluded.back().ends_with(".tar")) {
      throw InvalidInput(fmt::format(
          "'{}': '{}' is excluded, a single sample, and only whole shards can be: leave "
          "it out of the shard",
          file.string(),
          excluded.back()));
    }
  }
  if (!parts.is_object()) {
    throw wrong("split_parts");
  }
  std::vector<fs::path> shards;
  for (const auto& [name, items] : parts.items()) {
    if (!items.is_array() && !items.is_null()) {
      throw wrong(fmt::format("'{}'", name));
    }
    for (std::size_t i = 0; name == split && i < items.size(); ++i) {
      const auto item = items[i].get<std::string>();
      if (std::ranges::find(excluded, item) == excluded.end()) {
        shards.push_back(folder / item);
      }
    }
  }
  if (shards.empty()) {
    throw InvalidInput(fmt::format(
        "'{}' has no shards of split '{}'; it has {}", file.string(), split, keys_of(parts)));
  }
  return shards;
}

EnergonFields energon_fields(const fs::path& folder) {
  const fs::path file = folder / kEnergonFolder / "dataset.yaml";
  EnergonFields result;
  if (!fs::exists(file)) {
    return result;
  }
  const Json document = read_yaml(file);
  for (const char* code : {"sample_loader", "part_filter"}) {
    if (document.contains(code)) {
      throw InvalidInput(fmt::format("'{}': {} is code ({}) that is not run here: {}",
                                     file.string(),
                                     code,
                                     document.at(code).dump(),
                                     kWayOut));
    }
  }
  const std::string type = class_of(document, file);
  if (type == "CrudeWebdataset") {
    result.notes.push_back(fmt::format(
        "'{}' says that code makes the samples: their members are read as those of any shard",
        file.string()));
    return result;
  }
  const auto known = sample_types().find(type);
  if (known == sample_types().end()) {
    std::vector<std::string> names;
    for (const auto& [name, fields] : sample_types()) {
      names.push_back(name);
    }
    throw InvalidInput(
        fmt::format("'{}': samples of type '{}' cannot be expressed, those of {} can; {}",
                    file.string(),
                    type,
                    join(names),
                    kWayOut));
  }
  std::string columns;
  std::array<bool, 3> media{};
  const Json fields = document.value("field_map", Json::object());
  for (const auto& [field, value] : fields.items()) {
    const auto ours = known->second.find(field);
    if (ours == known->second.end() || !value.is_string()) {
      throw InvalidInput(fmt::format(
          "'{}': field '{}' of a {} is unknown: {}", file.string(), field, type, kWayOut));
    }
    if (ours->second.empty()) {
      result.notes.push_back(fmt::format("'{}': field '{}' is not read", file.string(), field));
      continue;
    }
    columns += fmt::format("{}{}={}",
                           columns.empty() ? "" : ";",
                           ours->second,
                           member_names(field, value.get<std::string>(), file));
    media[0] |= ours->second == "image";
    media[1] |= ours->second == "video";
  }
  if (columns.empty()) {
    throw InvalidInput(fmt::format("'{}' has no field_map: {}", file.string(), kWayOut));
  }
  // Other members are not the sample's.
  columns += media[0] ? "" : ";image=";
  columns += media[1] ? "" : ";video=";
  columns += ";audio=";
  result.columns = ColumnMap(columns);
  return result;
}

fs::path energon_media_metadata(const fs::path& folder) {
  fs::path file = folder / kEnergonFolder / "index.sqlite";
  if (!fs::exists(file)) {
    throw InvalidInput(
        fmt::format("there is no '{}' with media metadata: `energon prepare-media` "
                    "writes it",
                    file.string()));
  }
  return file;
}

std::unordered_map<std::string, ImageSize> read_image_sizes(
    const fs::path& file, const std::vector<std::string>& members) {
  constexpr std::size_t kAtOnce = 2000;
  thread_local PythonReader reader("entrain.media_metadata", "reads Energon's media metadata");
  const std::string where = fmt::format("'{}'", file.string());
  std::unordered_map<std::string, ImageSize> sizes;
  for (std::size_t begin = 0; begin < members.size(); begin += kAtOnce) {
    const std::size_t end = std::min(members.size(), begin + kAtOnce);
    Json request = {{"path", fs::absolute(file).string()}, {"entries", Json::array()}};
    for (std::size_t i = begin; i < end; ++i) {
      request["entries"].push_back(members[i]);
    }
    const Json answer = reader.with_process([&](PythonProcess& process) {
      process.write(request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", where);
      return process.read_answer(where);
    });
    const Json& found = answer.at("sizes");
    for (std::size_t i = begin; i < end; ++i) {
      if (const Json& size = found.at(i - begin); !size.is_null()) {
        sizes[members[i]] = {size.at(0).get<int>(), size.at(1).get<int>()};
      }
    }
  }
  return sizes;
}

}  // namespace entrain
