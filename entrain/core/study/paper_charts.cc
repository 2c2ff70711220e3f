// The drawings of paper_page.h.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/report/chart.h"
#include "entrain/core/study/paper_page.h"
#include "entrain/core/study/paper_rows.h"

namespace entrain {
namespace {

using Results = std::vector<Json>;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kGibibyte = 1U << 30U;

struct Shown {
  std::string name;
  Contestant contestant;
};

using Figure = std::function<double(const Json& result, const Json& row)>;

// A figure of contestants, memory free, a group of bars a setting.
std::string contest_chart(const Results& results,
                          ChartText text,
                          const std::vector<Shown>& shown,
                          const Figure& figure,
                          double mark = 0) {
  for (const Shown& one : shown) {
    text.series.push_back(one.name);
  }
  std::vector<BarGroup> groups;
  for (const Json* result : of_kind(results, "setting")) {
    BarGroup group{setting_name(*result), {}};
    for (const Shown& one : shown) {
      const Json* row = row_of(*result, one.contestant, "free");
      group.values.push_back(row == nullptr ? kNone : figure(*result, *row));
    }
    groups.push_back(group);
  }
  return bar_chart(text, groups, mark);
}

// Figure 11. Settings differ a hundredfold in seconds, so it is relative to ours.
std::string step_chart(const Results& results) {
  const auto over_ours = [](const Json& result, const Json& row) {
    const Json* ours = row_of(result, kOurs, "free");
    return ours == nullptr ? kNone : step_of(row) / step_of(*ours);
  };
  return contest_chart(results,
                       {"Step time over that of entrain with its own schedule, memory free "
                        "(figure 11)",
                        "",
                        {}},
                       {{"DistTrain, own plans", kDistTrain},
                        {"DIP, own plan", {"dip", "sequential", "dip"}},
                        {"DIP's plan, lpt-2d", {"dip", "lpt-2d", "dip"}},
                        {"the paper's, b-min plan", kEntrainPaper},
                        {"the paper's, our plan", {"ours", "entrain-paper", "1f1b"}},
                        {"entrain, 1f1b", {"ours", "entrain", "1f1b"}}},
                       over_ours,
                       1);
}

std::string sensitivity_chart(const Results& results) {
  std::vector<std::string> splits;
  for (const Json* result : of_kind(results, "setting")) {
    for (const auto& [split, mean] : result->at("sensitivity").items()) {
      if (std::count(split.begin(), split.end(), ':') == 1 &&
          std::find(splits.begin(), splits.end(), split) == splits.end()) {
        splits.push_back(split);
      }
    }
  }
  std::sort(splits.rbegin(), splits.rend());
  std::vector<BarGroup> groups;
  for (const Json* result : of_kind(results, "setting")) {
    if (result->at("modules").size() != 2) {
      continue;
    }
    BarGroup group{setting_name(*result), {}};
    double best = std::numeric_limits<double>::infinity();
    for (const Json& mean : result->at("sensitivity")) {
      best = std::min(best, mean.get<double>());
    }
    for (const std::string& split : splits) {
      const Json& of = result->at("sensitivity");
      group.values.push_back(of.contains(split) ? of.at(split).get<double>() / best : kNone);
    }
    groups.push_back(group);
  }
  return bar_chart(
      {"Step time of each split over the best one's (figures 14, 24–26)", "", splits}, groups, 1);
}

std::string ratio_chart(const Results& results) {
  ChartText text{"95th over 5th percentile of encoder to LLM work, by samples of a batch", "", {}};
  std::vector<Line> lines;
  for (const Json* result : of_kind(results, "setting")) {
    if (result->at("variant") != "" || result->at("model") != "1b") {
      continue;
    }
    Line line;
    for (const Json& size : result->at("ratios").at("sizes")) {
      const auto p5 = size.at("p5").get<double>();
      if (p5 > 0) {
        line.x.push_back(size.at("batch").get<double>());
        line.y.push_back(size.at("p95").get<double>() / p5);
      }
    }
    if (!line.x.empty()) {
      text.series.push_back(result->at("data"));
      lines.push_back(line);
    }
  }
  return lines.empty() ? "" : line_chart(text, lines);
}

const std::vector<Shown>& published() {
  static const std::vector<Shown> kShown = {{"DistTrain, own plans", kDistTrain},
                                            {"the paper's, b-min plan", kEntrainPaper},
                                            {"entrain", kOurs}};
  return kShown;
}

// What a row has of each replica, or of each lane.
using Series = std::function<std::vector<double>(const Json& row)>;

// The standard deviation of a replica's slots in ms, summed over encoders.
std::vector<double> replica_ms(const Json& row) {
  const Json& modules = row.at("replicas").at("std_s");
  std::vector<double> sums(modules.front().size(), 0);
  for (std::size_t module = 0; module + 1 < modules.size(); ++module) {
    for (std::size_t replica = 0; replica < sums.size(); ++replica) {
      sums[replica] += 1e3 * modules[module][replica].get<double>();
    }
  }
  return sums;
}

std::vector<double> lane_gibibytes(const Json& row) {
  std::vector<double> values;
  for (const Json& bytes : row.at("lane_peak_bytes")) {
    values.push_back(bytes.get<double>() / kGibibyte);
  }
  return values;
}

// A drawing of a line a contestant for each setting in which bubbles are looked at.
void add_lines(const Results& results,
               const std::string& name,
               const std::string& title,
               const char* unit,
               const Series& series,
               std::vector<NamedChart>& charts) {
  for (const Json* bubbles : of_kind(results, "bubbles")) {
    for (const Json* result : of_kind(results, "setting")) {
      if (setting_name(*result) != setting_name(*bubbles)) {
        continue;
      }
      ChartText text{title + ": " + setting_name(*result), unit, {}};
      std::vector<Line> lines;
      for (const Shown& one : published()) {
        const Json* row = row_of(*result, one.contestant, "free");
        if (row == nullptr || !row->contains("lane_peak_bytes")) {
          continue;
        }
        Line line;
        line.y = series(*row);
        for (std::size_t i = 0; i < line.y.size(); ++i) {
          line.x.push_back(static_cast<double>(i + 1));
        }
        text.series.push_back(one.name);
        lines.push_back(std::move(line));
      }
      if (!lines.empty()) {
        charts.push_back({name + "." + setting_file(*result) + ".svg", line_chart(text, lines)});
      }
    }
  }
}

}  // namespace

std::vector<NamedChart> paper_charts(const std::vector<Json>& results) {
  const auto encoder_ms = [](const Json& result, const Json& row) {
    return slot_std_ms(result, row, true);
  };
  const auto gibibytes = [](const Json& /*result*/, const Json& row) {
    return row.at("peak_bytes").get<double>() / kGibibyte;
  };
  std::vector<NamedChart> charts = {
      {"step_times.svg", step_chart(results)},
      {"variability.svg",
       contest_chart(results,
                     {"Standard deviation of encoder slots, ms (figure 15)", "ms", {}},
                     published(),
                     encoder_ms)},
      {"memory.svg",
       contest_chart(results,
                     {"Activations of the fullest lane, GiB, memory free (figure 13)", "GiB", {}},
                     published(),
                     gibibytes)},
      {"sensitivity.svg", sensitivity_chart(results)},
      {"ratios.svg", ratio_chart(results)}};
  add_lines(results,
            "replicas",
            "Standard deviation of encoder slots by replica, first step (figure 15)",
            "ms",
            replica_ms,
            charts);
  add_lines(results,
            "lanes",
            "Most activations of each lane, first step, memory free (figure 13)",
            "GiB",
            lane_gibibytes,
            charts);
  return charts;
}

}  // namespace entrain
