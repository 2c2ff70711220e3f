// The Entrain paper's claims put to the test in simulation: which data, models, plans, policies and
// schedules meet, and what is kept of each meeting.
//
// Read first: paper_cells(). Tables, drawings and verdicts: paper_page.h. Definitions, and what
// stands in for the paper's data: docs/study.md.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"

namespace entrain {

struct PaperStudy {
  std::filesystem::path manifests;  // folder of size manifests; empty: made-up data alone
  std::filesystem::path models = "configs/models";
  std::filesystem::path cluster = "configs/clusters/a40-64.toml";
  std::filesystem::path made_up;  // folder that made-up manifests are written to
  bool quick = false;             // made-up data and the smaller model alone, 3 steps
  int threads = 1;                // figures do not depend on it
};

// A part of the study that is run and kept as one.
struct PaperCell {
  std::string name;    // of its file: [a-z0-9.-]
  double minutes = 0;  // of one core, about
  std::function<Json()> run;
};

// Kinds (key `kind` of a result): "setting", a data set with a model under all plans, policies and
// schedules, memory free and equal; "bubbles", 4 stages of 16 slots; "wrong-costs", assigned by
// nominal costs and replayed by others; "scale", by devices and by samples.
//
// Throws  InvalidInput where a manifest, a model or the cluster is missing.
std::vector<PaperCell> paper_cells(const PaperStudy& study);

}  // namespace entrain
