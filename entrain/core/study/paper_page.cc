#include "entrain/core/study/paper_page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/csv.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/chart.h"
#include "entrain/core/report/table.h"
#include "entrain/core/study/paper_rows.h"
#include "entrain/core/study/statistics.h"

namespace entrain {
namespace {

using Results = std::vector<Json>;
using Cells = std::vector<std::string>;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

const char* word(PaperAnswer answer) {
  return answer == PaperAnswer::kYes ? "yes" : answer == PaperAnswer::kPartly ? "partly" : "no";
}

// One table of the study.
struct Csv {
  explicit Csv(const Cells& header) { add(header); }
  void add(const Cells& cells) { append_csv_row(text, cells); }
  std::string text;
};

std::string number(const Json& value) {
  return value.is_number() ? fmt::format("{:.6g}", value.get<double>()) : value.dump();
}

// Figures 11, 13 and 15: every row of every result of the kind, with `extra` keys of the result.
std::string rows_csv(const Results& results, const std::string& kind, const Cells& extra) {
  const Cells words = {"planner", "policy", "schedule", "memory"};
  const Cells figures = {"steps",
                         "refused",
                         "step_s",
                         "lower_bound_s",
                         "bubble",
                         "num_slots",
                         "given_slots",
                         "peak_bytes",
                         "over_bytes"};
  Cells header;
  for (const Cells& part : {Cells{"data", "model", "variant"},
                            extra,
                            words,
                            figures,
                            Cells{"encoder_std_ms", "llm_std_ms", "reason"}}) {
    header.insert(header.end(), part.begin(), part.end());
  }
  Csv csv(header);
  for (const Json* result : of_kind(results, kind)) {
    for (const Json& row : result->at("rows")) {
      Cells cells = {result->at("data"), result->at("model"), result->value("variant", "")};
      for (const std::string& key : extra) {
        cells.push_back(number(result->at(key)));
      }
      for (const std::string& key : words) {
        cells.push_back(row.at(key));
      }
      for (const std::string& key : figures) {
        cells.push_back(row.contains(key) ? number(row.at(key)) : "");
      }
      const bool spread = row.contains("modules") && result->contains("modules");
      cells.push_back(spread ? fmt::format("{:.4f}", slot_std_ms(*result, row, true)) : "");
      cells.push_back(spread ? fmt::format("{:.4f}", slot_std_ms(*result, row, false)) : "");
      cells.push_back(row.value("reason", ""));
      csv.add(cells);
    }
  }
  return csv.text;
}

// Tables 1, 2 and 5 to 11.
std::string sizes_csv(const Results& results) {
  Csv csv(Cells{"data", "model", "devices", "batch", "split", "batches", "b_min", "own_split"});
  for (const Json* result : of_kind(results, "setting")) {
    if (result->at("variant") != "") {
      continue;
    }
    for (const Json& devices : result->at("sizes")) {
      for (const Json& size : devices.at("sizes")) {
        for (const auto& [split, count] : size.at("splits").items()) {
          csv.add({result->at("data"),
                   result->at("model"),
                   number(devices.at("devices")),
                   number(size.at("batch")),
                   split,
                   number(count),
                   number(devices.at("b_min")),
                   devices.at("split")});
        }
      }
    }
  }
  return csv.text;
}

// Table 4.
std::string stages_csv(const Results& results) {
  Csv csv(Cells{"data", "model", "variant", "planner", "split", "draws"});
  for (const Json* result : of_kind(results, "setting")) {
    for (const auto& [planner, split] : result->at("stages").items()) {
      if (split.is_string()) {
        csv.add(
            {result->at("data"), result->at("model"), result->at("variant"), planner, split, "1"});
        continue;
      }
      for (const auto& [one, count] : split.items()) {
        csv.add({result->at("data"),
                 result->at("model"),
                 result->at("variant"),
                 planner,
                 one,
                 number(count)});
      }
    }
  }
  return csv.text;
}

// Figures 14 and 24 to 26.
std::string sensitivity_csv(const Results& results) {
  Csv csv(Cells{"data", "model", "variant", "split", "step_s", "over_best"});
  for (const Json* result : of_kind(results, "setting")) {
    double best = std::numeric_limits<double>::infinity();
    for (const Json& mean : result->at("sensitivity")) {
      best = std::min(best, mean.get<double>());
    }
    for (const auto& [split, mean] : result->at("sensitivity").items()) {
      csv.add({result->at("data"),
               result->at("model"),
               result->at("variant"),
               split,
               number(mean),
               fmt::format("{:.4f}", mean.get<double>() / best)});
    }
  }
  return csv.text;
}

std::string ratios_csv(const Results& results) {
  Csv csv(Cells{"data", "model", "batch", "p5", "median", "p95", "all"});
  for (const Json* result : of_kind(results, "setting")) {
    if (result->at("variant") == "") {
      for (const Json& size : result->at("ratios").at("sizes")) {
        csv.add({result->at("data"),
                 result->at("model"),
                 number(size.at("batch")),
                 number(size.at("p5")),
                 number(size.at("median")),
                 number(size.at("p95")),
                 number(result->at("ratios").at("all"))});
      }
    }
  }
  return csv.text;
}

std::string wrong_costs_csv(const Results& results) {
  Csv csv(Cells{"data", "model", "wrong", "by", "step", "policy", "step_s"});
  for (const Json* result : of_kind(results, "wrong-costs")) {
    for (const Json& row : result->at("rows")) {
      for (const auto& [policy, seconds] : row.at("times").items()) {
        csv.add({result->at("data"),
                 result->at("model"),
                 row.at("wrong"),
                 number(row.at("by")),
                 number(row.at("step")),
                 policy,
                 number(seconds)});
      }
    }
  }
  return csv.text;
}

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

const Contestant kOurs = {"ours", "entrain", "entrain"};

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

// "0.773 | 0.433–0.944"
std::string spread_cells(const std::vector<double>& values) {
  if (values.empty()) {
    return "– | –";
  }
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{:.3f} | {:.3f}–{:.3f}", median(values), *low, *high);
}

// {plan} × {policy} × {schedule} × {memory}: step time over the paper's own choice of all four.
std::string ablation_table(const Results& results) {
  std::string text =
      "| plan | policy | schedule | memory | step over the paper's, median | least–most | settings "
      "|\n"
      "|---|---|---|---|---|---|---|\n";
  for (const char* planner : {"b-min", "ours"}) {
    for (const char* policy : {"entrain-paper", "entrain"}) {
      for (const char* schedule : {"1f1b", "entrain"}) {
        for (const char* memory : {"free", "equal", "device"}) {
          std::vector<double> ratios;
          for (const Json* result : of_kind(results, "setting")) {
            const Json* base = row_of(*result, kEntrainPaper, memory);
            const Json* row = row_of(*result, {planner, policy, schedule}, memory);
            if (base != nullptr && row != nullptr) {
              ratios.push_back(step_of(*row) / step_of(*base));
            }
          }
          text += fmt::format("| {} | {} | {} | {} | {} | {} |\n",
                              planner,
                              policy,
                              schedule,
                              memory,
                              spread_cells(ratios),
                              ratios.size());
        }
      }
    }
  }
  return text;
}

std::string scale_table(const Results& results) {
  std::string text =
      "| devices | samples | DistTrain's over ours | lpt-2d's | the paper's |\n"
      "|---|---|---|---|---|\n";
  for (const Json* result : of_kind(results, "scale")) {
    const Json* ours = row_of(*result, {"ours", "entrain", "entrain"}, "free");
    Cells cells = {number(result->at("devices")), number(result->at("samples"))};
    for (const char* policy : {"disttrain", "lpt-2d", "entrain-paper"}) {
      const Json* row = row_of(*result, {"ours", policy, "1f1b"}, "free");
      cells.push_back(row == nullptr || ours == nullptr
                          ? "–"
                          : fmt::format("{:.3f}", step_of(*row) / step_of(*ours)));
    }
    text += "| " + join(cells, " | ") + " |\n";
  }
  return text;
}

std::string page_of(const Results& results, const std::vector<PaperVerdict>& verdicts, bool quick) {
  std::string page = "# The Entrain paper's claims, put to the test\n\n";
  page += fmt::format("**{}** {}\n\n",
                      verdicts.front().claim,
                      fmt::format("{}: {} {}",
                                  word(verdicts.front().answer),
                                  verdicts.front().finding,
                                  verdicts[1].finding));
  page += fmt::format(
      "Simulated: 64 A40s in pairs (DP 4 × TP 2 × 8 stages), analytic costs, 512 samples a step, "
      "{} "
      "steps (fewer by scale, more for bubbles), medians over steps. Made-up data are called so by "
      "name. What each word means: "
      "docs/study.md.\n\n",
      quick ? 3 : 10);
  page += "| claim | where | holds | found |\n|---|---|---|---|\n";
  for (const PaperVerdict& verdict : verdicts) {
    page += fmt::format("| {} | {} | {} | {} |\n",
                        verdict.claim,
                        verdict.source,
                        word(verdict.answer),
                        verdict.finding);
  }
  page +=
      "\n## What makes the difference\n\nEvery choice of plan, policy, schedule and memory, over "
      "the paper's (b-min, entrain-paper, 1f1b, the same memory):\n\n" +
      ablation_table(results);
  page +=
      "\n## By devices and samples\n\nUnder one plan: others with 1f1b, ours with its own "
      "schedule.\n\n" +
      scale_table(results);
  page +=
      "\n## Drawings\n\n![step times](step_times.svg)\n![variability](variability.svg)\n"
      "![memory](memory.svg)\n![splits](sensitivity.svg)\n![ratios](ratios.svg)\n\n"
      "Tables: `splits.csv` (tables 1, 2, 5–11), `stages.csv` (table 4), `rows.csv` (figures 11, "
      "13, 15, table 3), `bubbles.csv` (figure 6), `sensitivity.csv`, `ratios.csv`, "
      "`wrong_costs.csv`, `scale.csv`.\n";
  return page;
}

}  // namespace

PaperPage paper_page(const std::vector<Json>& results, bool quick) {
  const std::vector<PaperVerdict> verdicts = paper_verdicts(results);
  PaperPage page;
  page.verdicts = Json::array();
  for (const PaperVerdict& verdict : verdicts) {
    page.verdicts.push_back({{"claim", verdict.claim},
                             {"source", verdict.source},
                             {"holds", word(verdict.answer)},
                             {"found", verdict.finding}});
    page.text += wrap(fmt::format(
        "{} [{}] {}: {}\n", verdict.claim, verdict.source, word(verdict.answer), verdict.finding));
  }
  const std::vector<Shown> published = {{"DistTrain, own plans", kDistTrain},
                                        {"the paper's, b-min plan", kEntrainPaper},
                                        {"entrain", kOurs}};
  const auto encoder_ms = [](const Json& result, const Json& row) {
    return slot_std_ms(result, row, true);
  };
  const auto gibibytes = [](const Json& /*result*/, const Json& row) {
    return row.at("peak_bytes").get<double>() / (1U << 30U);
  };
  page.files = {
      {"README.md", page_of(results, verdicts, quick)},
      {"rows.csv", rows_csv(results, "setting", {})},
      {"bubbles.csv", rows_csv(results, "bubbles", {})},
      {"scale.csv", rows_csv(results, "scale", {"devices", "samples"})},
      {"splits.csv", sizes_csv(results)},
      {"stages.csv", stages_csv(results)},
      {"sensitivity.csv", sensitivity_csv(results)},
      {"ratios.csv", ratios_csv(results)},
      {"wrong_costs.csv", wrong_costs_csv(results)},
      {"step_times.svg", step_chart(results)},
      {"variability.svg",
       contest_chart(results,
                     {"Standard deviation of encoder slots, ms (figure 15)", "ms", {}},
                     published,
                     encoder_ms)},
      {"memory.svg",
       contest_chart(results,
                     {"Activations of the fullest lane, GiB, memory free (figure 13)", "GiB", {}},
                     published,
                     gibibytes)},
      {"sensitivity.svg", sensitivity_chart(results)},
      {"ratios.svg", ratio_chart(results)}};
  return page;
}

}  // namespace entrain
