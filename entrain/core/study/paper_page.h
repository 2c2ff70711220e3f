// What a study of the paper says: its tables as CSV, its figures as SVG, and a page of verdicts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"

namespace entrain {

enum class PaperAnswer : std::uint8_t { kYes, kPartly, kNo };

struct PaperVerdict {
  std::string claim;   // of the paper, or of ours, in one sentence
  std::string source;  // table or figure of the paper; "ours"
  PaperAnswer answer = PaperAnswer::kNo;
  std::string finding;  // in one or two sentences, with the figures
};

struct PaperPage {
  std::vector<std::pair<std::string, std::string>> files;  // name, content; README.md first
  std::string text;                                        // the verdicts for a terminal
  Json verdicts;                                           // likewise
};

// Shapes    results: of paper_cells(), in any order, each as PaperCell::run returned it.
// Ensures   a pure function of the results.
// Throws    InvalidInput where there is no result of kind "setting".
PaperPage paper_page(const std::vector<Json>& results, bool quick);

using NamedChart = std::pair<std::string, std::string>;  // file, SVG

// Bars of all settings: step times, variability, memory, splits, ratios; and for each setting in
// which bubbles are looked at a line a contestant over replicas and over lanes.
std::vector<NamedChart> paper_charts(const std::vector<Json>& results);

// Each claim by the results, in the order of the page.
std::vector<PaperVerdict> paper_verdicts(const std::vector<Json>& results);

}  // namespace entrain
