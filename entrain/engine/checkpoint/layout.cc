#include "entrain/engine/checkpoint/layout.h"

#include <algorithm>
#include <charconv>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::size_t kDigits = 8;
constexpr std::size_t kDigestDigits = 32;

std::string discarded_name(std::int64_t step) {
  return concat(".", checkpoint_name(step), ".discarded");
}

bool is_leftover(const std::string& name) {
  return name.starts_with(concat(".", kPrefix)) &&
         (name.ends_with(".partial") || name.ends_with(".discarded"));
}

[[noreturn]] void fail(const char* action, const fs::path& path, const std::error_code& error) {
  throw SystemFailure(concat("cannot ", action, " '", path.string(), "': ", error.message()));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::exists(folder, error)) {
    return names;
  }
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) {
    fail("list", folder, error);
  }
  return names;
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    fail("remove", path, error);
  }
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  return concat(kPrefix, std::string(kDigits - std::min(kDigits, digits.size()), '0'), digits);
}

std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = -1;
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return step >= 0 && checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

fs::path partial_path(const fs::path& folder, std::int64_t step) {
  return folder / concat(".", checkpoint_name(step), ".partial");
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = step_of(name)) {
      steps.push_back(*step);
    }
  }
  std::ranges::sort(steps);
  return steps;
}

std::optional<Latest> read_latest(const fs::path& folder) {
  const fs::path path = folder / kLatestName;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return std::nullopt;
  }
  const std::string content = read_file(path);
  const std::size_t space = content.find(' ');
  const auto step = step_of(content.substr(0, space));
  if (!step.has_value() || content.size() != space + 1 + kDigestDigits + 1 ||
      content.back() != '\n') {
    throw InvalidInput(
        concat(path.string(), ": damaged; a checkpoint's name and a digest are expected"));
  }
  return Latest{*step, content.substr(space + 1, kDigestDigits)};
}

void write_latest(const fs::path& folder, const Latest& latest) {
  write_file(folder / kLatestName,
             concat(checkpoint_name(latest.step), " ", latest.manifest_digest, "\n"));
  sync_folder(folder);
}

void remove_leftovers(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    if (is_leftover(name) || name.starts_with(concat(kLatestName, ".partial-"))) {
      remove_tree(folder / name);
    }
  }
}

void discard_checkpoint(const fs::path& folder, std::int64_t step) {
  const fs::path away = folder / discarded_name(step);
  remove_tree(away);
  std::error_code error;
  fs::rename(folder / checkpoint_name(step), away, error);
  if (error) {
    fail("remove", folder / checkpoint_name(step), error);
  }
  remove_tree(away);
}

void prune(const fs::path& folder, std::int64_t newest, int keep) {
  std::vector<std::int64_t> steps = checkpoint_steps(folder);
  int kept = 0;
  std::ranges::reverse(steps);
  for (const std::int64_t step : steps) {
    if (step > newest || ++kept > keep) {
      discard_checkpoint(folder, step);
    }
  }
}

}  // namespace entrain::engine
