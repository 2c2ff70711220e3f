#include "entrain/core/dataset/member_name.h"

#include <algorithm>
#include <cctype>

namespace entrain {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char character) {
    return static_cast<char>(std::tolower(character));
  });
  return out;
}

NameParts split_name(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', begin);
  if (dot == std::string_view::npos || dot == begin) {
    return {};
  }
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// Names of the form __NAME__, of files at the top and of folders, are WebDataset's own.
std::string reason_to_skip(std::string_view path) {
  const auto is_meta = [](std::string_view name) {
    return name.size() >= 4 && name.starts_with("__") && name.ends_with("__");
  };
  if (is_meta(path.substr(0, path.find('/')))) {
    return "__NAME__ (metadata)";
  }
  if (!split_name(path).key.empty()) {
    return "";
  }
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with('.') ? "hidden files" : "no extension";
}

std::string_view format_of(std::string_view extension) {
  return extension.substr(extension.rfind('.') + 1);
}

std::string_view field_of(std::string_view extension) {
  const std::size_t dot = extension.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : extension.substr(0, dot);
}

}  // namespace entrain
