// The folder of a study of the paper: `study.json` says of which inputs, `cells/` keeps what has
// been run, `manifests/` the made-up data; the page, its tables and drawings come last.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "entrain/core/study/paper_page.h"
#include "entrain/core/study/paper_study.h"

namespace entrain {

// Runs the cells that the folder does not have yet, one after the other, then writes the page.
// `study.made_up` is set to a folder within it. `done`: called after each cell, kept or run.
//
// Ensures   every file appears whole; a stopped study goes on with the same inputs.
// Throws    InvalidInput for a folder that holds anything else, a study of other inputs or a
//           damaged cell, by name; as paper_cells() does; SystemFailure.
// Cost      PaperCell::minutes for each cell that is run.
PaperPage run_paper_study(PaperStudy study,
                          const std::filesystem::path& folder,
                          const std::function<void()>& done);

}  // namespace entrain
