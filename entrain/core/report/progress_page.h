// A run's progress as one page of a terminal, and as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/report/run_progress.h"

namespace entrain {

inline constexpr std::size_t kPageColumns = 80;

struct PageStyle {
  bool colour = false;  // ANSI sequences
  int most_lanes = 8;   // more are summarised, >= 3
  std::string clock;    // "14:03:22", shown at the top; may be empty
};

// Lines of at most kPageColumns characters, without ends. Texts of the run, which may hold
// anything, lose their control characters.
std::vector<std::string> progress_page(const RunProgress& progress, const PageStyle& style);

// Of a run that has not finished a step; `metrics` is the file that will hold it.
std::vector<std::string> waiting_page(const std::string& run,
                                      const std::string& metrics,
                                      const PageStyle& style);

// The same figures; null where one is not known.
Json to_json(const RunProgress& progress);

// One character a value, from the lowest to the highest; " " where one is not finite.
std::string sparkline(const std::vector<double>& values);

// `share` in [0, 1] of `width` characters filled.
std::string share_bar(double share, std::size_t width);

}  // namespace entrain
