#include "entrain/core/report/chart.h"

#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace entrain {
namespace {

std::vector<double> numbers(const std::string& text, const std::string& pattern) {
  std::vector<double> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex); it != std::sregex_iterator();
       ++it) {
    found.push_back(std::stod((*it)[1]));
  }
  return found;
}

// Bars, not squares of the legend.
std::vector<double> bar_widths(const std::string& svg) {
  return numbers(svg, "<rect x=\"250\"[^>]* width=\"([0-9.]+)\"");
}

TEST(BarChart, BarsAreAsLongAsTheirValues) {
  const std::string svg = bar_chart({"t", "s", {"a", "b"}}, {{"one", {2, 4}}, {"two", {1, 0}}}, 0);
  const std::vector<double> widths = bar_widths(svg);
  ASSERT_EQ(widths.size(), 4U);
  EXPECT_NEAR(widths[0] / widths[1], 0.5, 1e-3);
  EXPECT_NEAR(widths[2] / widths[1], 0.25, 1e-3);
  EXPECT_EQ(widths[3], 0);
}

TEST(BarChart, NoValueHasADashAndNoBar) {
  const std::string svg = bar_chart(
      {"t", "", {"a"}}, {{"one", {std::numeric_limits<double>::quiet_NaN()}}, {"two", {3}}});
  EXPECT_EQ(bar_widths(svg).size(), 1U);
  EXPECT_NE(svg.find(">–<"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(BarChart, NamesAreText) {
  const std::string svg = bar_chart({"<b>", "", {"&"}}, {{"\"<script>", {1}}});
  EXPECT_EQ(svg.find("<script>"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
}

TEST(BarChart, OnlyZerosAreDrawn) {
  EXPECT_EQ(bar_widths(bar_chart({"t", "", {"a"}}, {{"one", {0}}})).front(), 0);
}

TEST(LineChart, XIsLogarithmicAndYLinear) {
  const std::string svg = line_chart({"t", "", {"a"}}, {{{1, 10, 100}, {4, 2, 0}}});
  const std::vector<double> x = numbers(svg, "<circle cx=\"([0-9.]+)\"");
  const std::vector<double> y = numbers(svg, "<circle cx=\"[0-9.]+\" cy=\"([0-9.]+)\"");
  ASSERT_EQ(x.size(), 3U);
  EXPECT_NEAR(x[1] - x[0], x[2] - x[1], 0.2);
  EXPECT_NEAR(y[1] - y[0], y[2] - y[1], 0.2);
  EXPECT_LT(y[0], y[2]) << "larger values are higher";
}

TEST(LineChart, OnePointIsDrawn) {
  const std::string svg = line_chart({"t", "", {"a"}}, {{{8}, {0}}});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(numbers(svg, "<circle cx=\"([0-9.]+)\"").size(), 1U);
}

}  // namespace
}  // namespace entrain
