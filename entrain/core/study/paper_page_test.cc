#include "entrain/core/study/paper_page.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/csv.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/study/paper_rows.h"

namespace entrain {
namespace {

struct Times {
  double disttrain = 1.2;
  double paper = 1.0;
  double ours = 0.8;
  double rival = 0.9;  // lpt-2d under our plan
};

Json row(const Contestant& who, const std::string& memory, double step_s) {
  return {{"planner", who.planner},
          {"policy", who.policy},
          {"schedule", who.schedule},
          {"memory", memory},
          {"steps", 3},
          {"refused", 0},
          {"step_s", step_s},
          {"lower_bound_s", 0.5},
          {"bubble", 0.1},
          {"num_slots", who.policy == "entrain-paper" ? 12 : 32},
          {"given_slots", 0},
          {"peak_bytes", who.policy == "disttrain" ? 1e9 : 2e9},
          {"lane_peak_bytes", {who.policy == "disttrain" ? 1e9 : 2e9, 0.5e9}},
          {"replicas",
           {{"num_slots", {32, 32}},
            {"std_s", {{who.policy == "disttrain" ? 0.09 : 0.003, 0.001}, {0.01, 0.01}}}}},
          {"over_bytes", 0},
          {"modules",
           {{"vision", {{"std_s", who.policy == "disttrain" ? 0.08 : 0.002}}},
            {"llm", {{"std_s", 0.01}}}}}};
}

Json setting(const std::string& data, const Times& times) {
  Json rows = Json::array();
  for (const char* memory : {"free", "free, second seed", "equal", "device"}) {
    rows.push_back(row(kDistTrain, memory, times.disttrain));
    rows.push_back(row(kEntrainPaper, memory, times.paper));
    rows.push_back(row({"ours", "entrain", "entrain"}, memory, times.ours));
    rows.push_back(row({"ours", "lpt-2d", "1f1b"}, memory, times.rival));
  }
  const Json sizes = {{{"batch", 1}, {"splits", {{"5:3", 50}, {"6:2", 10}}}},
                      {{"batch", 256}, {"splits", {{"5:3", 60}}}}};
  Json widths = Json::array();
  for (const int batch : {1, 4, 16, 64, 256, 1024}) {
    widths.push_back(
        {{"batch", batch}, {"p5", 1.0}, {"median", 1.2}, {"p95", batch == 1 ? 9.0 : 1.1}});
  }
  return {{"kind", "setting"},
          {"data", data},
          {"model", "1b"},
          {"variant", ""},
          {"modules", {"vision", "llm"}},
          {"stages",
           {{"one-sample", {{"5:3", 50}, {"6:2", 9}}},
            {"four-samples", "5:3"},
            {"b-min", "5:3"},
            {"ours", "5:3"}}},
          {"sensitivity", {{"5:3", 1.0}, {"4:4", 1.5}}},
          {"sizes",
           {{{"devices", 8},
             {"split", "5:3"},
             {"b_min", 64},
             {"fresh_batches", 1000},
             {"fresh_differ", 12},
             {"sizes", sizes}}}},
          {"ratios", {{"all", 1.2}, {"sizes", widths}}},
          {"rows", rows}};
}

PaperVerdict verdict(const std::vector<Json>& results, const std::string& words) {
  for (const PaperVerdict& one : paper_verdicts(results)) {
    if (one.claim.find(words) != std::string::npos) {
      return one;
    }
  }
  ADD_FAILURE() << "no verdict on " << words;
  return {};
}

TEST(PaperVerdicts, TheirSpeedIsConfirmedPartlyOrRefuted) {
  const Times fast{.disttrain = 1.4};
  const Times slow{.disttrain = 0.9};
  EXPECT_EQ(verdict({setting("a", fast), setting("b", fast)}, "1.40").answer, PaperAnswer::kYes);
  EXPECT_EQ(verdict({setting("a", fast), setting("b", slow)}, "1.40").answer, PaperAnswer::kPartly);
  EXPECT_EQ(verdict({setting("a", slow)}, "1.40").answer, PaperAnswer::kNo);
  const PaperVerdict mixed = verdict({setting("a", fast), setting("b", slow)}, "1.40");
  EXPECT_NE(mixed.finding.find("0.90–1.40 (median 1.15), above 1 in 1 of 2"), std::string::npos)
      << mixed.finding;
}

TEST(PaperVerdicts, OursLosesWhereARivalIsFaster) {
  const std::vector<Json> won = {setting("a", {})};
  const std::vector<Json> lost = {setting("a", {.rival = 0.7})};
  EXPECT_EQ(verdict(won, "memory equal").answer, PaperAnswer::kYes);
  EXPECT_EQ(verdict(lost, "memory equal").answer, PaperAnswer::kNo);
  EXPECT_NE(verdict(lost, "memory equal").finding.find("lpt-2d in 1"), std::string::npos);
  EXPECT_NE(verdict(lost, "memory equal")
                .finding.find("loses a, 1b by 0.875 (plan ours, policy lpt-2d, schedule 1f1b)"),
            std::string::npos)
      << verdict(lost, "memory equal").finding;
}

TEST(PaperVerdicts, ATieIsNeitherFasterNorSlower) {
  const PaperVerdict found = verdict({setting("a", {.rival = 0.8004}),
                                      setting("b", {.rival = 0.9}),
                                      setting("c", {.rival = 0.799})},
                                     "memory equal");
  EXPECT_EQ(found.answer, PaperAnswer::kYes);
  EXPECT_NE(found.finding.find("Of 3 settings `entrain` is faster than all rivals in 1, within 0.2 "
                               "% of the fastest in 2, slower in 0."),
            std::string::npos)
      << found.finding;
}

// Plans of all devices have a claim of their own, in which `entrain` has our plan of them too; its
// steps under others' plans are nobody's.
TEST(PaperVerdicts, PlansOfAllDevicesAreJudgedApart) {
  const auto answer = [](const std::vector<Json>& rows, const std::string& words) {
    Json result = setting("a", {});
    for (const Json& one : rows) {
      result["rows"].push_back(one);
    }
    return verdict({result}, words).answer;
  };
  const std::string degrees = "paper's degrees, memory free.";
  const std::string all = "too, memory free.";
  const Json rival = row({"orchmllm", "lpt-2d", "1f1b"}, "free", 0.7);
  const Json theirs = row({"orchmllm", "entrain", "1f1b"}, "free", 0.6);
  const Json searched = row({"searched", "entrain", "entrain"}, "free", 0.65);
  EXPECT_EQ(answer({rival}, degrees), PaperAnswer::kYes);
  EXPECT_EQ(answer({rival}, all), PaperAnswer::kNo);
  EXPECT_EQ(answer({rival, theirs}, all), PaperAnswer::kNo);
  EXPECT_EQ(answer({rival, searched}, all), PaperAnswer::kYes);
  EXPECT_EQ(answer({row({"b-min", "lpt-2d", "1f1b"}, "free", 0.7), searched}, degrees),
            PaperAnswer::kNo);
  EXPECT_EQ(answer({row({"b-min", "lpt-2d", "1f1b"}, "free", 0.7),
                    row({"b-min", "entrain", "entrain"}, "free", 0.6)},
                   degrees),
            PaperAnswer::kNo);
}

// A rival that exceeds its limit, or did not run on every step, wins nothing.
TEST(PaperVerdicts, RowsOverTheirLimitDoNotCount) {
  Json result = setting("a", {.rival = 0.7});
  for (Json& one : result["rows"]) {
    if (one["policy"] == "lpt-2d" && one["memory"] == "equal") {
      one["over_bytes"] = 5;
    }
    if (one["policy"] == "lpt-2d" && one["memory"] == "free") {
      one["refused"] = 1;
    }
  }
  EXPECT_EQ(verdict({result}, "memory equal").answer, PaperAnswer::kYes);
  EXPECT_EQ(verdict({result}, "memory free").answer, PaperAnswer::kYes);
  EXPECT_EQ(verdict({result}, "memory device").answer, PaperAnswer::kNo);
}

// A setting in which one of two did not run is in no ratio of theirs.
TEST(PaperVerdicts, RatiosAreOfTheSameSetting) {
  Json lacking = setting("a", {});
  Json whole = setting("b", {});
  for (Json& one : lacking["rows"]) {
    if (one["policy"] == "disttrain") {
      one["refused"] = 1;
    }
    if (one["policy"] == "entrain-paper") {
      one["peak_bytes"] = 100e9;
    }
  }
  const PaperVerdict memory = verdict({lacking, whole}, "less memory");
  EXPECT_EQ(memory.answer, PaperAnswer::kNo);
  EXPECT_NE(memory.finding.find("2.00–2.00; lane by lane 1.00–2.00, less on 1 of 2"),
            std::string::npos)
      << memory.finding;
}

TEST(PaperVerdicts, BatchesAndTheorem) {
  Json result = setting("a", {});
  EXPECT_EQ(verdict({result}, "One sample").answer, PaperAnswer::kYes);
  EXPECT_EQ(verdict({result}, "fresh batch").answer, PaperAnswer::kYes);
  EXPECT_NE(verdict({result}, "fresh batch").finding.find("1.2–1.2 %"), std::string::npos);
  result["sizes"][0]["fresh_differ"] = 51;
  EXPECT_EQ(verdict({result}, "fresh batch").answer, PaperAnswer::kNo);
  result["sizes"][0]["sizes"][1]["splits"]["4:4"] = 1;
  EXPECT_EQ(verdict({result}, "One sample").answer, PaperAnswer::kNo);
}

TEST(PaperVerdicts, SamplesWithoutEncoderWorkHaveNoRatio) {
  Json result = setting("a", {});
  EXPECT_EQ(verdict({result}, "chaotic").answer, PaperAnswer::kYes);
  result["ratios"]["sizes"][0]["p5"] = 0.0;
  EXPECT_EQ(verdict({result}, "chaotic").answer, PaperAnswer::kYes);
  EXPECT_NE(
      verdict({result}, "chaotic").finding.find("none for one sample (without bound in 1 of 1"),
      std::string::npos)
      << verdict({result}, "chaotic").finding;
  result["ratios"]["sizes"][4]["p95"] = 1.6;
  EXPECT_EQ(verdict({result}, "chaotic").answer, PaperAnswer::kNo);
}

TEST(PaperVerdicts, ASplitThatCostsMuchIsNotBest) {
  Json result = setting("a", {});
  EXPECT_EQ(verdict({result}, "wrong split").answer, PaperAnswer::kYes);
  result["sensitivity"]["4:4"] = 4.5;
  EXPECT_EQ(verdict({result}, "wrong split").answer, PaperAnswer::kPartly) << "far from 1.85";
  result["stages"]["b-min"] = "4:4";
  EXPECT_EQ(verdict({result}, "wrong split").answer, PaperAnswer::kNo);
}

TEST(PaperVerdicts, WrongCostsAreCounted) {
  const Json won = {{"disttrain", 2.0}, {"entrain", 1.0}};
  const Json lost = {{"disttrain", 1.0}, {"entrain", 2.0}};
  const Json costs = {{"kind", "wrong-costs"},
                      {"data", "a"},
                      {"model", "1b"},
                      {"rows",
                       {{{"wrong", "costs"}, {"by", 0.05}, {"step", 0}, {"times", won}},
                        {{"wrong", "costs"}, {"by", 0.3}, {"step", 0}, {"times", lost}}}}};
  const PaperVerdict found = verdict({setting("a", {}), costs}, "wrong");
  EXPECT_EQ(verdict({setting("a", {}), costs}, "stays fastest").answer, PaperAnswer::kPartly);
  EXPECT_NE(verdict({setting("a", {}), costs}, "stays fastest")
                .finding.find("costs by 5 %: 1 of 1; costs by 30 %: 0 of 1"),
            std::string::npos)
      << found.finding;
}

TEST(PaperPageOf, TablesAreRectangular) {
  Json refused = row({"ours", "orchmllm", "1f1b"}, "equal", 1);
  refused = {{"planner", "ours"},
             {"policy", "orchmllm"},
             {"schedule", "1f1b"},
             {"memory", "equal"},
             {"steps", 3},
             {"refused", 3},
             {"reason", "a, \"b\" c"}};
  Json result = setting("a,b", {});
  result["rows"].push_back(refused);
  const PaperPage page = paper_page({result}, true);
  EXPECT_EQ(page.files.front().first, "README.md");
  std::size_t tables = 0;
  for (const auto& [name, content] : page.files) {
    if (name.ends_with(".csv")) {
      ++tables;
      CsvReader reader(content, name);
      while (reader.next()) {
      }
    } else if (name.ends_with(".svg")) {
      EXPECT_TRUE(content.starts_with("<svg") && content.ends_with("</svg>\n")) << name;
    }
  }
  EXPECT_EQ(tables, 9U);
  EXPECT_EQ(page.verdicts.size(), paper_verdicts({result}).size());
  const std::string& text = page.files.front().second;
  EXPECT_NE(text.find("| ours | entrain | entrain | free | 0.800 |"), std::string::npos) << text;
  EXPECT_NE(text.find("`b-min` and `ours` are the same split in 1 of 1 setting."),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("| ours | entrain-paper |"), std::string::npos) << "rows of no setting";
}

// Of the settings in which bubbles are looked at: figures 15 and 13.
TEST(PaperPageOf, DrawsReplicasAndLanes) {
  Json bubbles = setting("a_b", {});
  bubbles["kind"] = "bubbles";
  const PaperPage page = paper_page({setting("a_b", {}), setting("c", {}), bubbles}, true);
  std::vector<std::string> lines;
  for (const auto& [name, content] : page.files) {
    if (name.starts_with("replicas.") || name.starts_with("lanes.a")) {
      lines.push_back(name);
      EXPECT_NE(content.find(name.starts_with("replicas") ? ">90.0 ms<" : ">1.86 GiB<"),
                std::string::npos)
          << content;
      EXPECT_NE(page.files.front().second.find("](" + name + ")"), std::string::npos);
    }
    if (name == "lanes.csv") {
      EXPECT_NE(content.find("a_b,1b,,ours,entrain,entrain,1,5e+08\n"), std::string::npos)
          << content;
    }
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"replicas.a-b.1b.svg", "lanes.a-b.1b.svg"}));
}

TEST(PaperPageOf, ComparesLanesWhereTheyAreShared) {
  Json result = setting("a", {});
  EXPECT_NE(paper_page({result}, true).files.front().second.find("In no setting"),
            std::string::npos);
  for (const char* schedule : {"1f1b", "entrain"}) {
    result["rows"].push_back(row({"apart", "entrain", schedule}, "free", 1.0));
  }
  result["rows"].push_back(row({"ours", "entrain", "1f1b"}, "free", 0.9));
  EXPECT_NE(paper_page({result}, true).files.front().second.find("| a, 1b | 0.900 | 0.800 |"),
            std::string::npos);
}

TEST(PaperPageOf, ComparesPlansOfAllDevices) {
  Json result = setting("a", {});
  result["stages"]["dflop"] = "1:1, TP 1:1, DP 32";
  result["rows"].push_back(row({"dflop", "dflop", "1f1b"}, "free", 1.0));
  result["rows"].push_back(row({"dflop", "dflop", "entrain"}, "free", 0.9));
  result["rows"].push_back(row({"dflop", "entrain", "1f1b"}, "free", 0.7));
  result["rows"].push_back(row({"dflop", "entrain", "1f1b"}, "device", 0.1));
  EXPECT_NE(paper_page({result}, true)
                .files.front()
                .second.find("| a, 1b | dflop | 1:1, TP 1:1, DP 32 | 1.125 | 0.875 | 0.875 |"),
            std::string::npos)
      << paper_page({result}, true).files.front().second;
}

TEST(PaperPageOf, NeedsASetting) {
  EXPECT_THROW(paper_page({}, false), InvalidInput);
}

}  // namespace
}  // namespace entrain
