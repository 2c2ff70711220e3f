#include "entrain/core/study/paper_folder.h"

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/study/made_up.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

// What the cells depend on: a folder goes on with the same only.
Json inputs_of(const PaperStudy& study) {
  return {{"study", "paper"},
          {"quick", study.quick},
          {"manifests", study.manifests.string()},
          {"models", study.models.string()},
          {"cluster", study.cluster.string()}};
}

// "quick: false given, true kept", for each key that differs.
std::string difference(const Json& given, const Json& kept) {
  std::vector<std::string> words;
  for (const auto& [key, value] : given.items()) {
    const Json other = kept.is_object() ? kept.value(key, Json()) : Json();
    if (other != value) {
      words.push_back(concat(
          key, ": ", value.dump(), " given, ", other.is_null() ? "none" : other.dump(), " kept"));
    }
  }
  return join(words, "; ");
}

bool is_partial(const fs::path& path) {
  return path.filename().string().find(".partial-") != std::string::npos;
}

// What a process that was ended while it wrote has left.
void remove_partials(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && is_partial(entry.path())) {
      found.push_back(entry.path());
    }
  }
  for (const fs::path& path : found) {
    fs::remove(path);
  }
}

// Whether a study may begin there: nothing is there, or what one that was stopped at once has left.
bool is_free(const fs::path& folder) {
  if (!fs::exists(folder)) {
    return true;
  }
  return fs::is_directory(folder) &&
         std::all_of(fs::directory_iterator(folder), fs::directory_iterator(), [](const auto& of) {
           return is_partial(of.path()) && of.path().filename().string().starts_with("study.json");
         });
}

void open_folder(const PaperStudy& study, const fs::path& folder) {
  const fs::path note = folder / "study.json";
  const Json inputs = inputs_of(study);
  if (fs::exists(note)) {
    const Json known = read_json_file(note);
    const Json kept = known.value("inputs", Json());
    if (kept != inputs) {
      throw InvalidInput(concat("'",
                                folder.string(),
                                "' holds a study of other inputs (",
                                difference(inputs, kept),
                                "); give the same, or name another folder"));
    }
    remove_partials(folder);
  } else if (is_free(folder)) {
    write_file(note, Json{{"inputs", inputs}}.dump(1) + "\n");
    remove_partials(folder);
  } else {
    throw InvalidInput(
        concat("'", folder.string(), "' is neither a study's folder nor empty; name another one"));
  }
  fs::create_directories(folder / "cells");
}

}  // namespace

PaperPage run_paper_study(PaperStudy study,
                          const fs::path& folder,
                          const std::function<void(std::int64_t)>& kept) {
  study.made_up = folder / "manifests";
  const std::vector<PaperCell> cells = paper_cells(study);
  open_folder(study, folder);
  const auto path_of = [&](const PaperCell& cell) {
    return folder / "cells" / (cell.name + ".json");
  };
  std::int64_t count = std::count_if(
      cells.begin(), cells.end(), [&](const PaperCell& cell) { return fs::exists(path_of(cell)); });
  const auto say = [&] {
    if (kept) {
      kept(count);
    }
  };
  say();
  fs::create_directories(study.made_up);
  for (const std::string& name : made_up_names()) {
    write_made_up(name, study.made_up / (name + ".csv"));
  }
  std::vector<Json> results;
  for (const PaperCell& cell : cells) {
    const fs::path path = path_of(cell);
    if (fs::exists(path)) {
      results.push_back(read_json_file(path));
      continue;
    }
    results.push_back(cell.run());
    write_file(path, results.back().dump(1) + "\n");
    ++count;
    say();
  }
  PaperPage page = paper_page(results, study.quick);
  for (const auto& [name, content] : page.files) {
    write_file(folder / name, content);
  }
  return page;
}

}  // namespace entrain
