// The drawings of a study of the paper. Internal to its page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "entrain/core/base/json.h"

namespace entrain {

using NamedChart = std::pair<std::string, std::string>;  // file, SVG

// Bars of all settings: step times, variability, memory, splits, ratios; and for each setting in
// which bubbles are looked at a line a contestant over replicas and over lanes.
std::vector<NamedChart> paper_charts(const std::vector<Json>& results);

}  // namespace entrain
