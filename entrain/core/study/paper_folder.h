// The folder of a study of the paper: `study.json` says of which inputs, `cells/` keeps what has
// been run, `manifests/` the made-up data; the page, its tables and drawings come last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "entrain/core/study/paper_page.h"
#include "entrain/core/study/paper_study.h"

namespace entrain {

// Runs the cells that the folder does not have yet, one after the other, then writes the page.
// `study.made_up` is set to a folder within it. `kept`: called with the number of cells that the
// folder has, before one is run and after each; may be empty.
//
// Ensures   every file appears whole; a stopped study goes on with the same inputs, wherever it
//           was stopped.
// Throws    InvalidInput for a folder that holds anything else, a study of other inputs or a
//           damaged cell, by name; as paper_cells() does; SystemFailure.
// Cost      PaperCell::minutes for each cell that is run.
PaperPage run_paper_study(PaperStudy study,
                          const std::filesystem::path& folder,
                          const std::function<void(std::int64_t)>& kept);

}  // namespace entrain
