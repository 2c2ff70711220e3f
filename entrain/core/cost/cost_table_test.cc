#include "entrain/core/cost/cost_table.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;
using std::chrono::nanoseconds;

constexpr const char* kCosts =
    "sample_id,llm_tokens,llm_forward_s,llm_backward_s,vision_tokens,vision_forward_s,"
    "vision_backward_s,note\n"
    "a,100,0.000000010,0.000000021,7,0.000000006,0.000000012,first\n"
    "b,50,5e-9,1e-8,0,0,0,text only\n";

constexpr const char* kSegments =
    "sample_id,module,segment,tokens,forward_s,backward_s\n"
    "a,vision,1,4,4e-9,8e-9\n"
    "a,vision,0,3,2e-9,4e-9\n";

Json plan_document() {
  return parse_json(
      R"({"version": 1, "replicas": 1, "num_slots": 2, "modules": {
          "vision": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 3]]},
          "llm": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 1], [1, 4]]}}})",
      "plan.json");
}

std::string failure(const std::string& costs, const std::string& segments = {}) {
  return error_of<InvalidInput>(
      [&] { parse_cost_table(costs, "costs.csv", segments, "segments.csv"); });
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << word << " is not in: " << message;
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(CostTable, ReadsModulesSamplesAndUnits) {
  const CostTable table = parse_cost_table(kCosts, "costs.csv");
  EXPECT_EQ(table.modules, (std::vector<std::string>{"vision", "llm"}));
  EXPECT_EQ(table.ids, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(table.units[0][0].size(), 1U);
  EXPECT_EQ(table.units[0][0][0].tokens, 7);
  EXPECT_EQ(table.units[0][0][0].forward_ns, 6);
  EXPECT_TRUE(table.units[0][1].empty()) << "a text-only sample has no unit in the encoder";
  EXPECT_EQ(table.units[1][1][0].backward_ns, 10);
  EXPECT_FALSE(table.has_activation_bytes());
}

TEST(CostTable, PutsSegmentsInTheirOrder) {
  const CostTable table = parse_cost_table(kCosts, "costs.csv", kSegments, "segments.csv");
  ASSERT_EQ(table.units[0][0].size(), 2U);
  EXPECT_EQ(table.units[0][0][0].tokens, 3);
  EXPECT_EQ(table.units[0][0][1].forward_ns, 4);
}

// By tokens, nothing lost: the last segment has what rounding leaves.
TEST(CostTable, SharesGivenBytesAmongSegments) {
  const auto bytes_of = [](int bytes) {
    const std::string given = std::to_string(bytes);
    std::string costs =
        replaced(kCosts, "vision_backward_s,", "vision_backward_s,vision_activation_bytes,");
    costs = replaced(costs, "0.000000012,first", "0.000000012," + given + ",first");
    costs = replaced(costs, "0,0,0,text only", "0,0,0,0,text only");
    const CostTable table = parse_cost_table(costs, "costs.csv", kSegments, "segments.csv");
    std::vector<std::int64_t> result;
    for (const TableUnit& segment : table.units[0][0]) {
      result.push_back(segment.activation_bytes);
    }
    return result;
  };
  EXPECT_EQ(bytes_of(700), (std::vector<std::int64_t>{300, 400}));
  EXPECT_EQ(bytes_of(5), (std::vector<std::int64_t>{2, 3})) << "2.1 and 2.9";
  EXPECT_EQ(bytes_of(1), (std::vector<std::int64_t>{0, 1})) << "0.4 and 0.6";
  EXPECT_EQ(bytes_of(6), (std::vector<std::int64_t>{3, 3})) << "2.6 and what is left";
  EXPECT_EQ(bytes_of(0), (std::vector<std::int64_t>{0, 0}));
  const CostTable thirds = parse_cost_table(
      "sample_id,llm_tokens,llm_forward_s,llm_backward_s,vision_tokens,vision_forward_s,"
      "vision_backward_s,vision_activation_bytes\na,9,1,2,3,3,3,4\n",
      "costs.csv",
      "sample_id,module,segment,tokens,forward_s,backward_s\n"
      "a,vision,0,1,1,1\na,vision,1,1,1,1\na,vision,2,1,1,1\n",
      "segments.csv");
  const std::vector<TableUnit>& segments = thirds.units[0][0];
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0].activation_bytes, 1);
  EXPECT_EQ(segments[1].activation_bytes, 1);
  EXPECT_EQ(segments[2].activation_bytes, 2);
}

TEST(CostTable, NamesWhatIsMissingOrWrong) {
  expect_words(failure("sample_id,vision_tokens,vision_forward_s,vision_backward_s\n"),
               {"costs.csv", "llm_tokens"});
  expect_words(failure(replaced(kCosts, "vision_backward_s", "vision_back_s")),
               {"costs.csv", "'vision_backward_s' is missing"});
  expect_words(failure(replaced(kCosts, "sample_id", "sample")), {"'sample_id' is missing"});
  expect_words(failure(replaced(kCosts, "5e-9", "-5e-9")),
               {"costs.csv:3", "llm_forward_s", "-5e-9"});
  expect_words(failure(replaced(kCosts, "5e-9", "five")), {"costs.csv:3", "five"});
  expect_words(failure(replaced(kCosts, "5e-9", "nan")), {"costs.csv:3", "nan"});
  expect_words(failure(replaced(kCosts, "5e-9", "1e10")), {"costs.csv:3", "1e10"});
  expect_words(failure(replaced(kCosts, "b,50", "b,5.5")), {"costs.csv:3", "llm_tokens"});
  expect_words(failure(replaced(kCosts, "b,50", "a,50")), {"costs.csv:3", "occurs twice"});
  expect_words(failure("sample_id,llm_tokens,llm_forward_s,llm_backward_s\n"), {"no samples"});
}

TEST(CostTable, NamesWhatIsWrongWithSegments) {
  expect_words(failure(kCosts, replaced(kSegments, "a,vision,1", "c,vision,1")),
               {"segments.csv:2", "'c' is not in the costs"});
  expect_words(failure(kCosts, replaced(kSegments, "a,vision,1", "a,visoin,1")),
               {"segments.csv:2", "did you mean 'vision'"});
  expect_words(failure(kCosts, replaced(kSegments, "a,vision,1", "a,vision,2")),
               {"'a'", "segment 1 is missing"});
  expect_words(failure(kCosts, replaced(kSegments, "a,vision,1", "a,vision,0")),
               {"segment 0 occurs twice"});
  expect_words(failure(kCosts, replaced(kSegments, "4,4e-9", "5,4e-9")), {"add up to 8 tokens"});
  expect_words(failure(kCosts, replaced(kSegments, "4e-9,8e-9", "4e-7,8e-9")), {"add up"});
}

TEST(TableCosts, SharesAUnitByLayersExactly) {
  const CostTable table = parse_cost_table(kCosts, "costs.csv");
  const Plan plan = table_plan(table, plan_document(), "plan.json");
  const std::vector<int> rows = {1, 0};
  const StepCosts costs = table_costs(table, plan, rows, {0, 0});
  ASSERT_EQ(costs.num_samples, 2);
  EXPECT_EQ(costs.modules[0].first_unit, (std::vector<int>{0, 0, 1}));
  const auto& stages = costs.modules[1].stages;
  // a: 10 ns forward over 4 layers, 1 of them in the first stage; 21 ns backward, 10 of it weight.
  EXPECT_EQ(stages[0].units[1].time.forward, nanoseconds{2});
  EXPECT_EQ(stages[1].units[1].time.forward, nanoseconds{8});
  EXPECT_EQ((stages[0].units[1].time.backward_weight + stages[1].units[1].time.backward_weight),
            nanoseconds{10});
  EXPECT_EQ((stages[0].units[1].time.backward() + stages[1].units[1].time.backward()),
            nanoseconds{21});
  EXPECT_EQ(stages[1].units[1].activation_bytes, 300) << "one byte a token and layer";
  EXPECT_EQ(costs.work[1].llm_tokens, 100);
  EXPECT_EQ(costs.work[1].segments[0].size(), 1U);
  EXPECT_EQ(costs.link.latency, nanoseconds{0});
}

TEST(TableCosts, LaterChunksCostMoreByTheirAttention) {
  // Forward n² / 2 + 50 n, backward n² + 50 n nanoseconds of n tokens.
  const CostTable table = parse_cost_table(
      "sample_id,llm_tokens,llm_forward_s,llm_backward_s\n"
      "a,100,10000e-9,15000e-9\nb,200,30000e-9,50000e-9\nc,400,100000e-9,180000e-9\n",
      "c");
  Plan plan;
  plan.modules = {{"llm", 1, 1, {{0, 1}, {1, 4}}}};
  plan.lanes = default_lanes(plan.modules);
  const StepCosts costs = table_costs(table, plan, std::vector<int>{2, 0}, {0});
  // Forward and backward of the range, over both stages.
  const auto chunk = [&](std::int64_t begin, std::int64_t end) {
    OperationTimes time;
    for (int stage = 0; stage < 2; ++stage) {
      time +=
          unit_cost(costs, 0, stage, {.sample = 0, .token_begin = begin, .token_end = end}).time;
    }
    return std::pair(static_cast<double>(time.forward.count()),
                     static_cast<double>(time.backward().count()));
  };
  EXPECT_NEAR(chunk(0, 200).first, 30'000, 2);
  EXPECT_NEAR(chunk(200, 400).first, 70'000, 2);
  EXPECT_NEAR(chunk(0, 200).second, 50'000, 4);
  EXPECT_NEAR(chunk(200, 400).second, 130'000, 4);
  EXPECT_EQ(
      unit_cost(costs, 0, 1, {.sample = 0, .token_begin = 0, .token_end = 200}).activation_bytes,
      600)
      << "memory is even";
}

TEST(TableCosts, TakesGivenActivationBytes) {
  const CostTable table = parse_cost_table(
      "sample_id,llm_tokens,llm_forward_s,llm_backward_s,llm_activation_bytes\na,9,1,2,4000\n",
      "c");
  EXPECT_TRUE(table.has_activation_bytes());
  Plan plan;
  plan.modules = {{"llm", 1, 1, {{0, 1}, {1, 4}}}};
  plan.lanes = default_lanes(plan.modules);
  const StepCosts costs = table_costs(table, plan, std::vector<int>{0}, {0});
  EXPECT_EQ(costs.modules[0].stages[0].units[0].activation_bytes, 1000);
  EXPECT_EQ(costs.modules[0].stages[1].units[0].activation_bytes, 3000);
}

TEST(TableCosts, FrozenModulesPayNoWeightGradient) {
  const CostTable table = parse_cost_table(kCosts, "costs.csv");
  const Plan plan = table_plan(table, plan_document(), "plan.json");
  const std::vector<int> rows = {0};
  const StepCosts frozen_encoder = table_costs(table, plan, rows, {1, 0});
  const UnitCost& vision = frozen_encoder.modules[0].stages[0].units[0];
  EXPECT_EQ(vision.time.forward, nanoseconds{6});
  EXPECT_EQ(vision.time.backward(), nanoseconds{0});
  EXPECT_EQ(vision.activation_bytes, 0);
  EXPECT_FALSE(frozen_encoder.modules[0].stages[0].trainable);
  const StepCosts frozen_llm = table_costs(table, plan, rows, {0, 1});
  const UnitCost& llm = frozen_llm.modules[1].stages[1].units[0];
  EXPECT_EQ(llm.time.backward_weight, nanoseconds{0});
  EXPECT_GT(llm.time.backward_input, nanoseconds{0}) << "its gradient goes on to the encoder";
  const StepCosts all_frozen = table_costs(table, plan, rows, {1, 1});
  EXPECT_EQ(all_frozen.modules[1].stages[1].units[0].time.backward(), nanoseconds{0});
}

TEST(TableCosts, RefusesAPlanThatRecomputes) {
  const CostTable table = parse_cost_table(kCosts, "costs.csv");
  Plan plan = table_plan(table, plan_document(), "plan.json");
  plan.modules[0].recompute.assign(plan.modules[0].stages.size(), 0);
  EXPECT_NO_THROW(table_costs(table, plan, std::vector<int>{0}, {0, 0}));
  plan.modules[0].recompute[0] = 1;
  expect_words(error_of<InvalidInput>([&] {
                 table_costs(table, plan, std::vector<int>{0}, {0, 0});
               }),
               {"modules.vision.recompute", "--profile"});
}

TEST(TableCosts, RefusesABatchThatOverflows) {
  std::string text = "sample_id,llm_tokens,llm_forward_s,llm_backward_s\na,1,1e9,1e9\n";
  const CostTable table = parse_cost_table(text, "c");
  Plan plan;
  plan.modules = {{"llm", 1, 1, {{0, 1}}}};
  plan.lanes = default_lanes(plan.modules);
  EXPECT_NO_THROW(table_costs(table, plan, std::vector<int>{0}, {0}));
  error_of<InvalidInput>([&] { table_costs(table, plan, std::vector<int>{0, 0, 0}, {0}); });
}

TEST(TablePlan, RefusesAPlanOfOtherModules) {
  const CostTable table = parse_cost_table(
      "sample_id,llm_tokens,llm_forward_s,llm_backward_s,audio_tokens,audio_forward_s,"
      "audio_backward_s\na,1,1,1,1,1,1\n",
      "c");
  expect_words(error_of<InvalidInput>([&] { table_plan(table, plan_document(), "plan.json"); }),
               {"plan.json", "audio"});
}

}  // namespace
}  // namespace entrain
