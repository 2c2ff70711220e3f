#include "entrain/core/cost/sample_costs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/random.h"
#include "entrain/core/cost/analytic.h"

#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

// Samples with up to three images and two clips; some ids need quotes.
std::vector<SampleSizes> random_samples(Rng& rng, int count) {
  std::vector<SampleSizes> samples;
  const auto below = [&](std::uint64_t bound) { return static_cast<int>(rng.below(bound)); };
  for (int i = 0; i < count; ++i) {
    SampleSizes& sample = samples.emplace_back();
    sample.id = (i % 7 == 0 ? "a,\"b\" " : "s") + std::to_string(i);
    for (int image = below(4); image > 0; --image) {
      sample.images.push_back({28 + below(400), 28 + below(400)});
    }
    for (int clip = below(3); clip > 0; --clip) {
      sample.audio_seconds.push_back(0.5 + below(40));
    }
    sample.prompt_tokens = below(200);
    sample.response_tokens = 1 + below(100);
  }
  return samples;
}

struct Drawn {
  std::vector<std::string> ids;
  std::vector<SampleWork> work;
};

Drawn draw(const ModelSpec& model, std::uint64_t seed, int count) {
  Rng rng(seed);
  const std::vector<SampleSizes> samples = random_samples(rng, count);
  Drawn drawn{{}, batch_work(model, samples)};
  for (const SampleSizes& sample : samples) {
    drawn.ids.push_back(sample.id);
  }
  return drawn;
}

CostTable written_and_read(const CostTable& table, const CostColumns& columns, bool with_segments) {
  std::string costs;
  append_cost_header(costs, table.modules, columns);
  append_cost_rows(costs, table, columns);
  std::string segments;
  if (with_segments) {
    append_segment_header(segments);
    append_segment_rows(segments, table);
  }
  return parse_cost_table(costs, "costs.csv", segments, "segments.csv");
}

void expect_equal_units(const CostTable& actual, const CostTable& expected) {
  ASSERT_EQ(actual.modules, expected.modules);
  ASSERT_EQ(actual.ids, expected.ids);
  for (std::size_t module = 0; module < expected.units.size(); ++module) {
    for (std::size_t sample = 0; sample < expected.ids.size(); ++sample) {
      const std::vector<TableUnit>& units = expected.units[module][sample];
      const std::vector<TableUnit>& read = actual.units[module][sample];
      ASSERT_EQ(read.size(), units.size()) << expected.ids[sample];
      for (std::size_t unit = 0; unit < units.size(); ++unit) {
        EXPECT_EQ(read[unit].tokens, units[unit].tokens);
        EXPECT_EQ(read[unit].forward_ns, units[unit].forward_ns);
        EXPECT_EQ(read[unit].backward_ns, units[unit].backward_ns);
      }
    }
  }
}

TEST(SampleCosts, AreReadAsTheyWereWritten) {
  const ModelSpec model = oracle::small_model();
  const Profile profile = analytic_profile(model, device_model("a40"));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Drawn drawn = draw(model, seed, 60);
    const CostTable table = sample_costs(model, profile, drawn.ids, drawn.work);
    expect_equal_units(written_and_read(table, {}, true), table);
  }
}

TEST(SampleCosts, KeepActivationBytesWhereAsked) {
  const ModelSpec model = oracle::small_model();
  const Profile profile = analytic_profile(model, device_model("a40"));
  const Drawn drawn = draw(model, 1, 40);
  const CostTable table = sample_costs(model, profile, drawn.ids, drawn.work);
  EXPECT_FALSE(written_and_read(table, {}, false).has_activation_bytes());
  const CostTable read = written_and_read(table, {.activation_bytes = true}, false);
  EXPECT_TRUE(read.has_activation_bytes());
  for (std::size_t sample = 0; sample < drawn.ids.size(); ++sample) {
    EXPECT_EQ(read.units[2][sample][0].activation_bytes,
              table.units[2][sample][0].activation_bytes);
  }
}

// The share of attention is estimated from lengths; the output head, which counts target tokens,
// is what it does not see.
TEST(SampleCosts, CostChunksAboutWhatModelAndProfileDo) {
  const ModelSpec model = oracle::small_model();
  const Profile profile = analytic_profile(model, device_model("a40"));
  const Drawn drawn = draw(model, 3, 200);
  const CostTable table =
      written_and_read(sample_costs(model, profile, drawn.ids, drawn.work), {}, false);
  const Plan plan = even_plan(model, {1, 1, 1}, 1, 1);
  std::vector<int> rows(200);
  std::iota(rows.begin(), rows.end(), 0);
  const StepCosts expected = step_costs(model, plan, profile, drawn.work);
  const StepCosts actual = table_costs(table, plan, rows, {0, 0, 0});
  const auto first_half = [](const StepCosts& costs, int sample) {
    const std::int64_t half = costs.work[at(sample)].llm_tokens / 2;
    const WorkItem item{.sample = sample, .token_begin = 0, .token_end = half};
    return static_cast<double>(unit_cost(costs, 2, 0, item).time.forward.count());
  };
  StepCosts even = actual;
  even.modules[2].stages[0].chunk_weights = {};
  double error = 0;
  double even_error = 0;
  for (int sample = 0; sample < 200; ++sample) {
    const double by_model = first_half(expected, sample);
    error = std::max(error, std::abs(first_half(actual, sample) / by_model - 1));
    even_error = std::max(even_error, std::abs(first_half(even, sample) / by_model - 1));
  }
  EXPECT_LT(error, 0.15);
  EXPECT_LT(error, even_error / 2);
}

// A plan of one stage a module leaves the table nothing to share out: times are those of the model
// and the profile. Half of a backward counts as weight gradient, whatever the profile says.
TEST(SampleCosts, CostAStepWhatModelAndProfileDo) {
  for (const bool frozen : {false, true}) {
    ModelSpec model = oracle::small_model();
    model.encoders[0].frozen = frozen;
    const Profile profile = analytic_profile(model, device_model("a40"));
    const Drawn drawn = draw(model, 2, 50);
    const CostTable table =
        written_and_read(sample_costs(model, profile, drawn.ids, drawn.work), {}, true);
    const Plan plan = even_plan(model, {1, 1, 1}, 1, 1);
    std::vector<int> rows;
    for (int row = 0; row < 50; ++row) {
      rows.push_back(row);
    }
    const StepCosts expected = step_costs(model, plan, profile, drawn.work);
    const StepCosts actual = table_costs(table, plan, rows, {0, 0, 0});
    for (std::size_t module = 0; module < 3; ++module) {
      EXPECT_EQ(actual.modules[module].first_unit, expected.modules[module].first_unit);
      EXPECT_EQ(actual.modules[module].tokens, expected.modules[module].tokens);
      const auto& units = expected.modules[module].stages[0].units;
      for (std::size_t unit = 0; unit < units.size(); ++unit) {
        const UnitCost& cost = actual.modules[module].stages[0].units[unit];
        EXPECT_EQ(cost.time.forward, units[unit].time.forward);
        EXPECT_EQ(cost.time.backward(), units[unit].time.backward());
      }
    }
  }
}

TEST(SampleCosts, WriteSecondsToTheNanosecond) {
  CostTable table;
  table.modules = {"llm"};
  table.ids = {"a", "b"};
  table.units = {{{{.tokens = 5, .forward_ns = 1, .backward_ns = 12'000'000'000}},
                  {{.tokens = 6, .forward_ns = 0, .backward_ns = 4'000'000'123'456'789}}}};
  std::string text;
  append_cost_header(text, table.modules);
  append_cost_rows(text, table);
  EXPECT_EQ(text,
            "sample_id,llm_tokens,llm_forward_s,llm_backward_s\n"
            "a,5,0.000000001,12\n"
            "b,6,0,4000000.123456789\n");
}

// Two of three decoders within windows: each pays the causal pairs that its window leaves out less.
TEST(SampleCosts, PayTheLlmsSlidingWindows) {
  ModelSpec model = oracle::small_model();
  model.encoders.clear();
  SampleSizes sample;
  sample.id = "long";
  sample.prompt_tokens = 90'000;
  sample.response_tokens = 10'000;
  const std::vector<std::string> ids = {sample.id};
  const auto forward_ns = [&] {
    const Profile profile = analytic_profile(model, device_model("cpu-2core"), {});
    const std::vector<SampleWork> work = batch_work(model, std::span(&sample, 1));
    return sample_costs(model, profile, ids, work).units[0][0][0].forward_ns;
  };
  const std::int64_t full = forward_ns();
  model.llm.sliding_window = 1000;
  model.llm.full_attention_layers = {1};
  // 4 FLOPs a pair of 24 numbers at 96 FLOP/ns.
  constexpr std::int64_t kOutside = 99'000;
  EXPECT_NEAR(static_cast<double>(full - forward_ns()), 2.0 * kOutside * kOutside / 2, 2.0);
}

}  // namespace
}  // namespace entrain
