#include "entrain/core/report/distribution.h"

#include <numeric>

#include <gtest/gtest.h>

namespace entrain {
namespace {

Distribution of_values(std::vector<double> values) {
  Distribution result{"things", std::move(values), {}};
  result.samples.resize(result.values.size());
  std::iota(result.samples.begin(), result.samples.end(), 0);
  return result;
}

TEST(Distributions, CountsEveryValueInABinThatHoldsIt) {
  const Distribution distribution = of_values({0, 0.5, 1, 1.9, 2, 3, 64, 100});
  const std::vector<Bin> bins = bins_of(distribution);
  ASSERT_EQ(bins.size(), 8U);
  EXPECT_EQ(bins[0].count, 2);
  EXPECT_EQ(bins[1].count, 2);
  EXPECT_EQ(bins[2].count, 2);
  EXPECT_EQ(bins[7].count, 2);
  EXPECT_EQ(bins[7].from, 64);
  EXPECT_EQ(bins[7].to, 128);
  for (std::size_t i = 1; i < bins.size(); ++i) {
    EXPECT_EQ(bins[i].from, bins[i - 1].to);
  }
  EXPECT_EQ(bins_of(of_values({300})).size(), 1U);
  EXPECT_TRUE(bins_of(of_values({})).empty());
}

TEST(Distributions, NamesWhatIsFarOut) {
  std::vector<double> values(1000, 10);
  EXPECT_EQ(far_out(of_values(values)).count, 0);
  values[7] = 31;
  values[500] = 99;
  values[501] = 30;  // not more than three times
  const FarOut out = far_out(of_values(values));
  EXPECT_EQ(out.count, 2);
  EXPECT_EQ(out.largest, (std::vector<std::size_t>{500, 7}));
  std::vector<SampleSizes> samples(1000);
  samples[500].id = "big one";
  const std::string text = to_text(of_values(values), samples);
  EXPECT_NE(text.find("99th percentile: 2, 'big one' 99, '' 31\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" 8 to 15 "), std::string::npos) << text;
  EXPECT_NE(text.find("997 (99.7 %)"), std::string::npos) << text;
}

TEST(Distributions, AreThoseOfAnIndex) {
  SampleSizes one;
  one.images = {{10, 20}, {30, 40}};
  one.audio_seconds = {1.5};
  one.prompt_tokens_estimate = 7;
  one.response_tokens = 3;
  one.prompt_tokens = 5;
  const std::vector<Distribution> all = distributions_of({one, SampleSizes()}, nullptr);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].values, (std::vector<double>{8, 0}));
  EXPECT_EQ(all[1].values, (std::vector<double>{2}));
  EXPECT_EQ(all[2].values, (std::vector<double>{200, 1200}));
  EXPECT_EQ(all[3].values, (std::vector<double>{1.5}));
  const std::string svg = to_svg(all);
  EXPECT_NE(svg.find("pixels of an image (2)"), std::string::npos);
  EXPECT_EQ(svg.find("{"), svg.find("{fill"));
}

}  // namespace
}  // namespace entrain
