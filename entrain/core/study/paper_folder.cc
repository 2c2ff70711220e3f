#include "entrain/core/study/paper_folder.h"

#include <string>

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

void open_folder(const PaperStudy& study, const fs::path& folder) {
  const fs::path note = folder / "study.json";
  const Json inputs = inputs_of(study);
  if (fs::exists(note)) {
    const Json known = read_json_file(note);
    if (known.value("inputs", Json()) != inputs) {
      throw InvalidInput(concat("'",
                                folder.string(),
                                "' holds a study of other inputs (",
                                known.value("inputs", Json()).dump(),
                                "); name another folder"));
    }
    return;
  }
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder))) {
    throw InvalidInput(
        concat("'", folder.string(), "' is neither a study's folder nor empty; name another one"));
  }
  fs::create_directories(folder / "cells");
  write_file(note, Json{{"inputs", inputs}}.dump(1) + "\n");
}

}  // namespace

PaperPage run_paper_study(PaperStudy study,
                          const fs::path& folder,
                          const std::function<void()>& done) {
  study.made_up = folder / "manifests";
  const std::vector<PaperCell> cells = paper_cells(study);
  open_folder(study, folder);
  fs::create_directories(study.made_up);
  for (const std::string& name : made_up_names()) {
    write_made_up(name, study.made_up / (name + ".csv"));
  }
  std::vector<Json> results;
  for (const PaperCell& cell : cells) {
    const fs::path path = folder / "cells" / (cell.name + ".json");
    if (fs::exists(path)) {
      results.push_back(read_json_file(path));
    } else {
      results.push_back(cell.run());
      write_file(path, results.back().dump(1) + "\n");
    }
    done();
  }
  PaperPage page = paper_page(results, study.quick);
  for (const auto& [name, content] : page.files) {
    write_file(folder / name, content);
  }
  return page;
}

}  // namespace entrain
