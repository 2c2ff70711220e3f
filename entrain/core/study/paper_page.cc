#include "entrain/core/study/paper_page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/csv.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/statistics.h"
#include "entrain/core/report/table.h"
#include "entrain/core/study/paper_rows.h"

namespace entrain {
namespace {

using Results = std::vector<Json>;
using Cells = std::vector<std::string>;

const char* word(PaperAnswer answer) {
  return answer == PaperAnswer::kYes ? "yes" : answer == PaperAnswer::kPartly ? "partly" : "no";
}

// One table of the study. Each row begins with what its result has of `keys`.
class Csv {
 public:
  Csv(Cells keys, const Cells& columns) : keys_(std::move(keys)) { append(keys_, columns); }

  void add(const Json& result, const Cells& cells) {
    Cells row;
    for (const std::string& key : keys_) {
      row.push_back(result.value(key, ""));
    }
    append(std::move(row), cells);
  }
  std::string text;

 private:
  void append(Cells row, const Cells& cells) {
    row.insert(row.end(), cells.begin(), cells.end());
    append_csv_row(text, row);
  }

  Cells keys_;
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
  Cells columns;
  for (const Cells& part :
       {extra, words, figures, Cells{"encoder_std_ms", "llm_std_ms", "reason"}}) {
    columns.insert(columns.end(), part.begin(), part.end());
  }
  Csv csv({"data", "model", "variant"}, columns);
  for (const Json* result : of_kind(results, kind)) {
    for (const Json& row : result->at("rows")) {
      Cells cells;
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
      csv.add(*result, cells);
    }
  }
  return csv.text;
}

// Tables 1, 2 and 5 to 11.
std::string sizes_csv(const Results& results) {
  Csv csv({"data", "model"}, {"devices", "batch", "split", "batches", "b_min", "own_split"});
  for (const Json* result : of_kind(results, "setting")) {
    if (result->at("variant") != "") {
      continue;
    }
    for (const Json& devices : result->at("sizes")) {
      for (const Json& size : devices.at("sizes")) {
        for (const auto& [split, count] : size.at("splits").items()) {
          csv.add(*result,
                  {number(devices.at("devices")),
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
  Csv csv({"data", "model", "variant"}, {"planner", "split", "draws"});
  for (const Json* result : of_kind(results, "setting")) {
    for (const auto& [planner, split] : result->at("stages").items()) {
      const Json draws = split.is_string() ? Json{{split.get<std::string>(), 1}} : split;
      for (const auto& [one, count] : draws.items()) {
        csv.add(*result, {planner, one, number(count)});
      }
    }
  }
  return csv.text;
}

// Figures 14 and 24 to 26.
std::string sensitivity_csv(const Results& results) {
  Csv csv({"data", "model", "variant"}, {"split", "step_s", "over_best"});
  for (const Json* result : of_kind(results, "setting")) {
    double best = std::numeric_limits<double>::infinity();
    for (const Json& mean : result->at("sensitivity")) {
      best = std::min(best, mean.get<double>());
    }
    for (const auto& [split, mean] : result->at("sensitivity").items()) {
      csv.add(*result, {split, number(mean), fmt::format("{:.4f}", mean.get<double>() / best)});
    }
  }
  return csv.text;
}

std::string ratios_csv(const Results& results) {
  Csv csv({"data", "model"}, {"batch", "p5", "median", "p95", "all"});
  for (const Json* result : of_kind(results, "setting")) {
    if (result->at("variant") == "") {
      for (const Json& size : result->at("ratios").at("sizes")) {
        csv.add(*result,
                {number(size.at("batch")),
                 number(size.at("p5")),
                 number(size.at("median")),
                 number(size.at("p95")),
                 number(result->at("ratios").at("all"))});
      }
    }
  }
  return csv.text;
}

// Figure 13: of the first step, memory free, the replica that has most.
std::string lanes_csv(const Results& results) {
  Csv csv({"data", "model", "variant"},
          {"planner", "policy", "schedule", "lane", "activation_bytes"});
  for (const Json* result : of_kind(results, "setting")) {
    for (const Contestant& whose : {kDistTrain, kEntrainPaper, kOurs}) {
      const Json* row = row_of(*result, whose, "free");
      const Json bytes = row == nullptr ? Json() : row->value("lane_peak_bytes", Json());
      for (std::size_t lane = 0; lane < bytes.size(); ++lane) {
        csv.add(*result,
                {whose.planner,
                 whose.policy,
                 whose.schedule,
                 std::to_string(lane),
                 number(bytes[lane])});
      }
    }
  }
  return csv.text;
}

std::string wrong_costs_csv(const Results& results) {
  Csv csv({"data", "model"}, {"wrong", "by", "step", "policy", "step_s"});
  for (const Json* result : of_kind(results, "wrong-costs")) {
    for (const Json& row : result->at("rows")) {
      for (const auto& [policy, seconds] : row.at("times").items()) {
        csv.add(*result,
                {row.at("wrong"),
                 number(row.at("by")),
                 number(row.at("step")),
                 policy,
                 number(seconds)});
      }
    }
  }
  return csv.text;
}

std::string markdown_row(const Cells& cells) {
  return "| " + join(cells, " | ") + " |\n";
}

// "0.773 | 0.433–0.944"
std::string spread_cells(const std::vector<double>& values) {
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
          if (ratios.empty()) {
            continue;
          }
          text += markdown_row({planner,
                                policy,
                                schedule,
                                memory,
                                spread_cells(ratios),
                                std::to_string(ratios.size())});
        }
      }
    }
  }
  std::size_t same = 0;
  const std::vector<const Json*> settings = of_kind(results, "setting");
  for (const Json* setting : settings) {
    const Json& stages = setting->at("stages");
    same += stages.at("b-min") == stages.at("ours") ? 1U : 0U;
  }
  return text + fmt::format("\nThe plans `b-min` and `ours` are the same split in {} of {}.\n",
                            same,
                            counted(std::ssize(settings), "setting"));
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
    text += markdown_row(cells);
  }
  return text;
}

// Where all modules on the same lanes are the best split: the same policy there over lanes of each
// module's own.
std::string layout_table(const Results& results) {
  std::string text;
  for (const Json* result : of_kind(results, "setting")) {
    Cells cells = {setting_name(*result)};
    for (const char* schedule : {"1f1b", "entrain"}) {
      const Json* shared = row_of(*result, {"ours", "entrain", schedule}, "free");
      const Json* apart = row_of(*result, {"apart", "entrain", schedule}, "free");
      if (shared != nullptr && apart != nullptr) {
        cells.push_back(fmt::format("{:.3f}", step_of(*shared) / step_of(*apart)));
      }
    }
    text += cells.size() == 3 ? markdown_row(cells) : "";
  }
  if (text.empty()) {
    return "In no setting a plan with all modules on the same lanes is faster.\n";
  }
  return "All modules on the same lanes over lanes of each module's own, where simulation chose "
         "the former; policy `entrain`, memory free.\n\n"
         "| setting | 1f1b | entrain |\n|---|---|---|\n" +
         text;
}

// Of the rows under a planner's plan that have a step, the fastest by this policy, or by any; 0
// where there is none.
double fastest(const Json& result, const std::string& planner, const std::string& policy) {
  double least = 0;
  for (const Json& row : result.at("rows")) {
    if (row.at("planner") == planner && row.at("memory") == "free" && has_step(row) &&
        (policy.empty() || row.at("policy") == policy)) {
      least = least == 0 ? step_of(row) : std::min(least, step_of(row));
    }
  }
  return least;
}

// Plans of all devices, whose planners choose replicas and degrees too, over `entrain` under our
// plan of the paper's.
std::string own_plans_table(const Results& results) {
  std::string text =
      "| setting | planner | plan | its policy's step over ours | entrain's there | fastest there "
      "|\n"
      "|---|---|---|---|---|---|\n";
  for (const Json* result : of_kind(results, "setting")) {
    const double ours = fastest(*result, kOurs.planner, kOurs.policy);
    for (const char* planner : {"dflop", "orchmllm", "searched"}) {
      const Json& stages = result->at("stages");
      if (ours == 0 || !stages.contains(planner)) {
        continue;
      }
      const std::string own = planner == kSearched.planner ? kSearched.policy : planner;
      Cells cells = {setting_name(*result), planner, stages.at(planner)};
      for (const std::string& policy : {own, kOurs.policy, std::string()}) {
        const double step = fastest(*result, planner, policy);
        cells.push_back(step == 0 ? "–" : fmt::format("{:.3f}", step / ours));
      }
      text += markdown_row(cells);
    }
  }
  return text;
}

std::string page_of(const Results& results,
                    const std::vector<PaperVerdict>& verdicts,
                    const std::vector<NamedChart>& charts,
                    bool quick) {
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
    page += markdown_row({verdict.claim, verdict.source, word(verdict.answer), verdict.finding});
  }
  page +=
      "\n## What makes the difference\n\nEvery choice of plan, policy, schedule and memory, over "
      "the paper's (b-min, entrain-paper, 1f1b, the same memory):\n\n" +
      ablation_table(results) + "\n## Lanes\n\n" + layout_table(results);
  page +=
      "\n## Plans of all devices\n\nDFLOP's, OrchMLLM's and ours (`searched`) choose replicas and "
      "degrees too; steps over those of `entrain` under our plan of the paper's degrees, each with "
      "its best schedule, memory free:\n\n" +
      own_plans_table(results);
  page +=
      "\n## By devices and samples\n\nUnder one plan: others with 1f1b, ours with its own "
      "schedule.\n\n" +
      scale_table(results);
  page += "\n## Drawings\n\n";
  for (const auto& [name, chart] : charts) {
    page += fmt::format("![{}]({})\n", name.substr(0, name.find(".svg")), name);
  }
  page +=
      "\nTables: `splits.csv` (tables 1, 2, 5–11), `stages.csv` (table 4), `rows.csv` (figures 11, "
      "13, 15, table 3), `lanes.csv` (figure 13 by lane), `bubbles.csv` (figure 6), "
      "`sensitivity.csv`, `ratios.csv`, "
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
  std::vector<NamedChart> charts = paper_charts(results);
  page.files = {{"README.md", page_of(results, verdicts, charts, quick)},
                {"rows.csv", rows_csv(results, "setting", {})},
                {"bubbles.csv", rows_csv(results, "bubbles", {})},
                {"scale.csv", rows_csv(results, "scale", {"devices", "samples"})},
                {"splits.csv", sizes_csv(results)},
                {"stages.csv", stages_csv(results)},
                {"sensitivity.csv", sensitivity_csv(results)},
                {"ratios.csv", ratios_csv(results)},
                {"wrong_costs.csv", wrong_costs_csv(results)},
                {"lanes.csv", lanes_csv(results)}};
  for (auto& [name, chart] : charts) {
    page.files.emplace_back(std::move(name), std::move(chart));
  }
  return page;
}

}  // namespace entrain
