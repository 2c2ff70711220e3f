// What a report shows, view by view, from what commands have written.
//
// Read first: view_of_file(). docs/report.md has the format of a view.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// A run's folder: its metrics, plan and, where it has one, its drawn step (step.json).
//
// Throws  InvalidInput: no such folder, one without metrics, a file of another version or a line
//         that is none of a run's.
Json view_of_run(const std::filesystem::path& folder);

// An index: its counts and distributions, with a model those of the LLM's tokens, too. Media that
// `ignored` names need no encoder of the model; a warning counts them.
//
// Throws  InvalidInput as read_index(), check_media() and sample_work() do.
Json view_of_index(const std::filesystem::path& path,
                   const ModelSpec* model,
                   const std::vector<std::string>& ignored = {});

// A run's folder, a step.json, what `simulate --json` printed, or an index, for which `model`,
// which may be null, and `ignored` are: the views in it.
//
// Throws  InvalidInput: none of these, saying what is given.
Json views_of(const std::filesystem::path& path,
              const ModelSpec* model = nullptr,
              const std::vector<std::string>& ignored = {});

// Whether the view is of an index.
bool is_of_index(const Json& view);

// "index 'b.csv' is not the data of run 'runs/a' ('a.csv')" if none of the runs trained or
// validated on these samples, as far as their indices can still be read; else empty.
std::string other_data(const std::filesystem::path& index,
                       std::span<const std::filesystem::path> runs);

// One with a name and nothing to show.
Json view_of_nothing(const std::string& name = "");

// `step`: by step_view(). As one view.
Json view_of_step(Json step, const std::string& name);

// `plan`: by to_json(Plan). Lanes with stages and devices, and the certificate in sentences.
Json view_of_plan(const Json& plan);

// The document of report_page(). Views of the same name are numbered. Views of indices are compared
// with one another, and so are the others.
Json report_of_views(Json views, const std::string& title);

}  // namespace entrain
