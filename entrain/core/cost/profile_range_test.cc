#include "entrain/core/cost/profile_range.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/step_costs.h"

namespace entrain {
namespace {

ModelSpec vision_model() {
  return model_from_json(parse_toml("name = 'm'\n"
                                    "[vision]\nnum_layers = 2\nhidden = 64\nnum_heads = 4\n"
                                    "intermediate = 96\n"
                                    "[llm]\nnum_layers = 2\nhidden = 64\nnum_heads = 4\n"
                                    "intermediate = 96\nvocab_size = 264\n",
                                    "m.toml"),
                         "m.toml");
}

SampleWork sample(std::vector<std::int64_t> segments,
                  std::int64_t llm_tokens,
                  std::int64_t target) {
  SampleWork work;
  work.segments.resize(1);
  for (const std::int64_t tokens : segments) {
    work.segments[0].push_back({tokens, tokens * tokens, tokens / 4, 0, 0});
  }
  work.llm_tokens = llm_tokens;
  work.llm_attention_pairs = llm_tokens * llm_tokens / 2;
  work.target_tokens = target;
  return work;
}

Profile measured_profile(double tokens, double pairs) {
  Profile profile = analytic_profile(vision_model(), device_model("cpu-2core"));
  for (LayerProfile& layer : profile.layers) {
    const bool attention =
        layer.kind == LayerKind::kDecoder || layer.kind == LayerKind::kEncoderTransformer;
    layer.range = {64, tokens, attention ? pairs : 0};
  }
  return profile;
}

std::vector<std::string> warnings_of(const Profile& profile,
                                     const std::vector<SampleWork>& batch,
                                     int num_slots) {
  const ModelSpec model = vision_model();
  return range_warnings(model, even_plan(model, {1, 1}, 1, num_slots), profile, batch);
}

TEST(LeastUse, IsTheLargestUnitOrTheMeanMicrobatch) {
  const std::vector<SampleWork> batch = {sample({100, 40}, 60, 8), sample({20}, 30, 10)};
  const std::vector<ModuleUse> many = least_use(vision_model(), batch, 4);
  EXPECT_EQ(many[0].tokens, 100);
  EXPECT_EQ(many[0].pairs, 10000);
  EXPECT_EQ(many[1].tokens, 60);
  EXPECT_EQ(many[1].pairs, 1800);
  EXPECT_EQ(many[1].target_tokens, 10);
  const std::vector<ModuleUse> one = least_use(vision_model(), batch, 1);
  EXPECT_EQ(one[0].tokens, 160);
  EXPECT_EQ(one[0].pairs, 10000 + 1600 + 400);
  EXPECT_EQ(one[1].target_tokens, 18);
}

TEST(RangeWarnings, NameTheLayerThatIsUsedTooFarOut) {
  const std::vector<SampleWork> batch = {sample({400}, 200, 10), sample({400}, 200, 10)};
  EXPECT_TRUE(warnings_of(measured_profile(200, 1e6), batch, 2).empty()) << "twice is allowed";
  const auto warnings = warnings_of(measured_profile(199, 1e6), batch, 2);
  ASSERT_EQ(warnings.size(), 3U) << "the encoder's three layer kinds, none of the LLM";
  EXPECT_NE(warnings[1].find("encoder_transformer of 'vision' on up to 199 tokens; this batch "
                             "needs microbatches of 400"),
            std::string::npos)
      << warnings[1];
}

TEST(RangeWarnings, CountPairsWhereTokensAreInRange) {
  const std::vector<SampleWork> batch = {sample({400}, 200, 10)};
  const auto warnings = warnings_of(measured_profile(400, 70000), batch, 1);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("encoder_transformer"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("attention pairs"), std::string::npos) << warnings[0];
}

TEST(RangeWarnings, HeadCountsTargets) {
  const std::vector<SampleWork> batch = {sample({4}, 400, 401)};
  const auto warnings = warnings_of(measured_profile(200, 1e6), batch, 1);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("output_head of 'llm' on up to 200 target tokens"), std::string::npos)
      << warnings[0];
}

TEST(RangeWarnings, AnalyticProfilesHaveNoRange) {
  const Profile profile = analytic_profile(vision_model(), device_model("cpu-2core"));
  EXPECT_TRUE(warnings_of(profile, {sample({1 << 20}, 1 << 20, 1 << 20)}, 1).empty());
}

}  // namespace
}  // namespace entrain
