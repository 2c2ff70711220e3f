#include "entrain/core/report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/html.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

constexpr int kChartWidth = 760;
constexpr int kLabelWidth = 250;
constexpr int kRowHeight = 17;
constexpr double kBarWidth = 390;
constexpr double kPlotHeight = 260;
// Told apart with any kind of sight; used again from the ninth series on.
constexpr std::array<const char*, 8> kColours = {
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#dd8452"};

const char* colour(std::size_t series) {
  return kColours[series % kColours.size()];
}

std::string label(double x, double y, const std::string& text, const char* anchor) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                     x,
                     y,
                     anchor,
                     html_text(text));
}

std::string file_of(const std::string& title, double height, const std::string& body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n"
      "<style>text{{fill:#222}}.title{{font-weight:bold}}.rule{{stroke:#888}}"
      "@media(prefers-color-scheme:dark){{text{{fill:#ddd}}}}</style>\n"
      "<title>{2}</title>\n<text x=\"10\" y=\"20\" class=\"title\">{2}</text>\n{3}</svg>\n",
      kChartWidth,
      height,
      html_text(title),
      body);
}

// Squares and names of the series, below the title.
std::string legend(const ChartText& text, double& y) {
  std::string body;
  double x = 10;
  for (std::size_t i = 0; i < text.series.size(); ++i) {
    const double width = 24 + 7.0 * static_cast<double>(text.series[i].size());
    if (x + width > kChartWidth) {
      x = 10;
      y += kRowHeight;
    }
    body +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n",
                    x,
                    y - 10,
                    colour(i));
    body += label(x + 14, y, text.series[i], "start");
    x += width;
  }
  y += kRowHeight;
  return body;
}

std::string value_text(double value, const std::string& unit) {
  const int digits = std::abs(value) >= 100 ? 0 : std::abs(value) >= 10 ? 1 : 2;
  return fmt::format("{:.{}f}{}{}", value, digits, unit.empty() ? "" : " ", unit);
}

}  // namespace

std::string bar_chart(const ChartText& text, const std::vector<BarGroup>& groups, double mark) {
  double largest = mark;
  for (const BarGroup& group : groups) {
    for (const double value : group.values) {
      largest = std::isfinite(value) ? std::max(largest, value) : largest;
    }
  }
  const double scale = largest > 0 ? kBarWidth / largest : 0;
  double y = 40;
  std::string body = legend(text, y);
  const double top = y;
  for (const BarGroup& group : groups) {
    body += label(kLabelWidth - 8, y + 12, group.name, "end");
    for (std::size_t i = 0; i < group.values.size(); ++i) {
      const double value = group.values[i];
      if (!std::isfinite(value)) {
        body += label(kLabelWidth, y + 12, "–", "start");
      } else {
        body += fmt::format(
            "<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n",
            kLabelWidth,
            y + 2,
            scale * value,
            kRowHeight - 4,
            colour(i));
        body +=
            label(kLabelWidth + 4 + scale * value, y + 12, value_text(value, text.unit), "start");
      }
      y += kRowHeight;
    }
    y += 6;
  }
  if (mark > 0) {
    body +=
        fmt::format("<line class=\"rule\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>\n",
                    kLabelWidth + scale * mark,
                    top,
                    y);
  }
  return file_of(text.title, y + 10, body);
}

std::string line_chart(const ChartText& text, const std::vector<Line>& lines) {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  double largest = 0;
  std::vector<double> marks;
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.x.size(); ++i) {
      low = std::min(low, line.x[i]);
      high = std::max(high, line.x[i]);
      largest = std::max(largest, line.y[i]);
      marks.push_back(line.x[i]);
    }
  }
  std::sort(marks.begin(), marks.end());
  marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
  double top = 40;
  std::string body = legend(text, top);
  const double span = high > low ? std::log(high / low) : 1;
  const auto x_of = [&](double x) { return 70 + (kChartWidth - 110) * std::log(x / low) / span; };
  const auto y_of = [&](double y) {
    return top + kPlotHeight * (1 - (largest > 0 ? y / largest : 0));
  };
  for (const double share : {0.0, 0.5, 1.0}) {
    body += fmt::format(
        "<line class=\"rule\" x1=\"70\" x2=\"{0}\" y1=\"{1:.1f}\" y2=\"{1:.1f}\" "
        "opacity=\".4\"/>\n",
        kChartWidth - 40,
        y_of(share * largest));
    body += label(64, y_of(share * largest) + 4, value_text(share * largest, text.unit), "end");
  }
  for (const double mark : marks) {
    body += label(x_of(mark), top + kPlotHeight + 18, format_count(std::llround(mark)), "middle");
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string points;
    for (std::size_t j = 0; j < lines[i].x.size(); ++j) {
      const double x = x_of(lines[i].x[j]);
      const double y = y_of(lines[i].y[j]);
      points += fmt::format("{:.1f},{:.1f} ", x, y);
      body += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x, y, colour(i));
    }
    body +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>\n", points, colour(i));
  }
  return file_of(text.title, top + kPlotHeight + 30, body);
}

}  // namespace entrain
