// Charts of a study as SVG files: grouped bars, and lines over a logarithmic axis.
//
// Read first: bar_chart(). Drawings are readable on light and dark grounds and hold no script.
#pragma once

#include <string>
#include <vector>

namespace entrain {

struct BarGroup {
  std::string name;
  std::vector<double> values;  // [series]; NaN: none
};

struct ChartText {
  std::string title;
  std::string unit;  // behind every value; may be empty
  std::vector<std::string> series;
};

// Horizontal bars, a group below the other, the value behind every bar; `mark`: a vertical line at
// this value (0: none).
std::string bar_chart(const ChartText& text, const std::vector<BarGroup>& groups, double mark = 0);

struct Line {
  std::vector<double> x;  // > 0, rising
  std::vector<double> y;
};

// Lines [series] with a mark at every point; x logarithmic, named by its values.
//
// Requires  at least one point.
std::string line_chart(const ChartText& text, const std::vector<Line>& lines);

}  // namespace entrain
