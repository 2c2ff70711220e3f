#include "entrain/core/study/summary.h"

#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/csv.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"

namespace entrain {
namespace {

CaseStep summary_step(std::int64_t step_ns, std::int64_t bound_ns) {
  CaseStep step;
  step.step_ns = step_ns;
  step.bound_ns = bound_ns;
  step.num_slots = {2, 4};
  const std::vector<ReplicaBalance> replicas = {{{0.1, 0.3, 3.0, 3.0, 0.5}, 2},
                                                {{0.1, 0.1, 1.0, 3.0, 0.5}, 4}};
  step.balance = {{{0.1, 0.2, 2.0, 3.0, 0.5}, replicas}, {{0.1, 0.1, 1.0, 2.0, 0.25}, replicas}};
  step.replicas = {{1, 0.1, 0.1, 1.1}, {1, 0.2, 0.2, 1.2}};
  step.peak_bytes = step_ns;
  step.deferred = 3;
  return step;
}

CaseStep refused_step() {
  CaseStep step;
  step.refused = "lane 1, slot 2";
  return step;
}

const std::vector<std::string> kModules = {"vision", "llm"};

std::vector<CaseResult> make_cases() {
  CaseResult slow{"sequential",
                  "1f1b",
                  {summary_step(400, 200), summary_step(200, 200), summary_step(900, 300)}};
  slow.steps[0].chunks = 2;
  slow.steps[2].chunks = 4;
  CaseResult fast{
      "entrain", "1f1b", {summary_step(300, 200), summary_step(100, 100), summary_step(200, 100)}};
  CaseResult greedy{
      "lpt-2d", "1f1b", {summary_step(100, 100), summary_step(50, 50), summary_step(50, 50)}};
  greedy.steps[1].over_bytes = 70;
  greedy.steps[1].over = "lane 0 needs";
  CaseResult none{"packed", "1f1b", {refused_step(), refused_step(), refused_step()}};
  return {slow, fast, greedy, none};
}

TEST(Summarise, TakesMediansAndRanks) {
  const std::vector<CaseSummary> summaries = summarise(make_cases());
  ASSERT_EQ(summaries.size(), 4U);
  EXPECT_DOUBLE_EQ(summaries[0].step_s, 400e-9);
  EXPECT_DOUBLE_EQ(summaries[0].step_p95_s, 900e-9);
  EXPECT_DOUBLE_EQ(summaries[0].gap, 1.0) << "median of 1, 0 and 2";
  EXPECT_EQ(summaries[0].peak_bytes, 900);
  EXPECT_DOUBLE_EQ(summaries[0].num_slots, 3);
  EXPECT_DOUBLE_EQ(summaries[0].deferred, 3);
  EXPECT_DOUBLE_EQ(summaries[0].chunks, 2);
  EXPECT_DOUBLE_EQ(summaries[0].modules[1].floor_cv, 0.25);
  EXPECT_DOUBLE_EQ(summaries[0].modules[1].replica_max_over_mean, 1.2);
}

TEST(Summarise, ComparesWithTheBestThatFits) {
  const std::vector<CaseSummary> summaries = summarise(make_cases());
  EXPECT_DOUBLE_EQ(summaries[0].vs_best, 2.0);
  EXPECT_DOUBLE_EQ(summaries[1].vs_best, 1.0);
  EXPECT_DOUBLE_EQ(summaries[2].vs_best, 0.25) << "over the limit: faster, and no measure";
  EXPECT_FALSE(summaries[2].fits());
  EXPECT_EQ(summaries[2].over_bytes, 70);
  EXPECT_EQ(summaries[3].refused, 3);
}

TEST(Summarise, ComparesAllWhereNothingFits) {
  std::vector<CaseResult> cases = make_cases();
  cases.erase(cases.begin(), cases.begin() + 2);
  EXPECT_DOUBLE_EQ(summarise(cases)[0].vs_best, 1.0);
}

TEST(SummaryTable, MarksWhatExceedsItsLimitAndWhatIsRefused) {
  const std::string text = to_string(summarise(make_cases()), kModules);
  for (const char* words : {"over limit by",
                            "lpt-2d with 1f1b: over its memory limit: lane 0",
                            "packed with 1f1b: no result on 3 of 3 steps: lane 1, slot 2",
                            "vision floor",
                            "vision std ms",
                            "2-4",
                            "200.000",
                            "2.000x"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find("not to be compared"), std::string::npos);
}

TEST(SummaryTable, MarksBalanceAtOtherNumbersOfSlots) {
  std::vector<CaseResult> cases = make_cases();
  cases[1].steps[2].equal_slots = false;
  const std::string text = to_string(summarise(cases), kModules);
  EXPECT_NE(text.find("entrain *"), std::string::npos) << text;
  EXPECT_EQ(text.find("sequential *"), std::string::npos) << text;
}

TEST(SummaryTable, SaysWhatTheTimeAboveTheBoundIsMadeOf) {
  std::vector<CaseResult> cases = make_cases();
  const std::string without = to_string(summarise(cases), kModules);
  EXPECT_EQ(without.find("oversized"), std::string::npos) << without;
  GapCauses causes;
  causes.time[static_cast<std::size_t>(GapCause::kOversized)] = std::chrono::nanoseconds{250};
  causes.in_bound = std::chrono::nanoseconds{50};
  cases[0].steps[0].causes = causes;
  const std::vector<CaseSummary> summaries = summarise(cases);
  EXPECT_DOUBLE_EQ(summaries[0].causes[static_cast<std::size_t>(GapCause::kOversized)], 1.25);
  EXPECT_DOUBLE_EQ(summaries[0].in_bound, 0.25);
  const std::string text = to_string(summaries, kModules);
  for (const char* words : {"oversized", "125.0 %", "-25.0 %", "100.0 %"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_DOUBLE_EQ(to_json(summaries[0], kModules).at("gap_causes").at("oversized").get<double>(),
                   1.25);
}

TEST(SummaryTable, SaysWhichSlotsEveryRowHad) {
  std::vector<CaseResult> cases = make_cases();
  cases[0].given_slots = 4;
  const std::string text = to_string(summarise(cases), kModules, {2, 4, 8});
  EXPECT_NE(text.find("slots: the fastest of 2, 4, 8 for every policy"), std::string::npos) << text;
  EXPECT_NE(text.find("3.0 own"), std::string::npos) << text;
  EXPECT_EQ(to_json(summarise(cases)[0], kModules).at("given_slots"), 4);
  EXPECT_NE(to_string(summarise(cases), kModules).find("slots: the plan's"), std::string::npos);
}

TEST(SummaryTable, IsAtMostAHundredColumnsWide) {
  std::vector<CaseResult> cases = make_cases();
  cases[0].policy = "entrain-paper (own plans)";
  cases[0].schedule = "interleaved";
  cases[0].steps[0].causes = GapCauses();
  for (const std::string_view line : split(wrap(to_string(summarise(cases), kModules)), '\n')) {
    EXPECT_LE(line.size(), kMostColumns) << line;
  }
}

TEST(SummaryJson, HoldsEveryModule) {
  const std::vector<CaseSummary> summaries = summarise(make_cases());
  const Json document = to_json(summaries[0], kModules);
  EXPECT_DOUBLE_EQ(document.at("modules").at("llm").at("replica_cv").get<double>(), 0.2);
  EXPECT_EQ(document.at("balance_slots"), Json({2, 4}));
  EXPECT_EQ(to_json(summaries[3], kModules).at("reason"), "lane 1, slot 2");
  EXPECT_FALSE(to_json(summaries[3], kModules).contains("step_s"));
}

TEST(SummaryCurves, HoldEveryStepAndNullWhereItWasRefused) {
  CaseResult result{"entrain", "1f1b", {summary_step(400, 200), refused_step()}};
  result.steps[0].samples = 8;
  const Json curves = curves_of(result, 7);
  EXPECT_EQ(curves["step"], Json({7, 8}));
  EXPECT_EQ(curves["predicted_step_s"], Json({1e-9 * 400, nullptr}));
  EXPECT_EQ(curves["lower_bound_s"], Json({1e-9 * 200, nullptr}));
  EXPECT_EQ(curves["samples_per_s"], Json({8 / (1e-9 * 400), nullptr}));
  EXPECT_EQ(curves["llm_tokens_per_s"], Json({nullptr, nullptr})) << "not known";
}

TEST(CasesCsv, HasOneLinePerCaseAndStep) {
  const std::string text = cases_csv(make_cases(), kModules);
  CsvReader reader(text, "csv");
  int rows = 0;
  while (reader.next()) {
    const std::string& policy = reader.field(reader.column("policy"));
    const std::string& step = reader.field(reader.column("step"));
    EXPECT_EQ(step, std::to_string(rows % 3));
    if (policy == "packed") {
      EXPECT_EQ(reader.field(reader.column("step_s")), "");
      EXPECT_EQ(reader.field(reader.column("reason")), "lane 1, slot 2");
    } else if (policy == "lpt-2d" && step == "1") {
      EXPECT_EQ(reader.field(reader.column("step_s")), "0.000000050");
      EXPECT_EQ(reader.field(reader.column("over_bytes")), "70");
      EXPECT_EQ(reader.field(reader.column("num_slots")), "2;4");
      EXPECT_EQ(reader.field(reader.column("llm_floor_cv")), "0.25");
      EXPECT_EQ(reader.field(reader.column("balance_slots")), "2;4");
      EXPECT_EQ(reader.field(reader.column("vision_cvs")), "3;1");
      EXPECT_EQ(reader.field(reader.column("vision_stds_s")), "0.3;0.1");
      EXPECT_EQ(reader.field(reader.column("gap_drain_s")), "");
    }
    ++rows;
  }
  EXPECT_EQ(rows, 12);
}

}  // namespace
}  // namespace entrain
