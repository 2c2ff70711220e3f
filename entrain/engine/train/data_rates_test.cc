#include "entrain/engine/train/data_rates.h"

#include <chrono>

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

DataTimes decoded_by_a_rank(std::int64_t images, std::int64_t clips, double seconds) {
  DataTimes times;
  times.images = images;
  times.clips = clips;
  times.patches = 250 * images;
  times.decoding = std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * seconds));
  return times;
}

TEST(DataRates, CompareDecodingWithTheModelOnceAfterFourSteps) {
  DecodedData step;
  step.add(decoded_by_a_rank(40, 0, 1.0), 2);
  step.add(decoded_by_a_rank(0, 0, 0.5), 8);  // texts alone
  DataRates rates;
  EXPECT_FALSE(rates.line_once(true).has_value());  // nothing yet
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(rates.line_once(false).has_value());
    rates.add(step, 2.5);
  }
  EXPECT_EQ(
      rates.line_once(false),
      "data: 2 threads decode 40 images/s (10,000 patches/s) each; the model takes 16 images/s");
  rates.add(step, 1.0);
  EXPECT_FALSE(rates.line_once(true).has_value());
}

TEST(DataRates, OfAShortRunAndOfSoundAreShownAtItsEnd) {
  DecodedData step;
  step.add(decoded_by_a_rank(0, 30, 0.2), 1);
  DataRates rates;
  rates.add(step, 6.0);
  EXPECT_FALSE(rates.line_once(false).has_value());
  EXPECT_EQ(rates.line_once(true), "data: 1 thread decodes 150 clips/s; the model takes 5 clips/s");
}

TEST(DataRates, OfRunsWithoutMediaAreNotShown) {
  DecodedData step;
  step.add(decoded_by_a_rank(0, 0, 0.2), 1);
  DataRates rates;
  for (int i = 0; i < 9; ++i) {
    rates.add(step, 1.0);
  }
  EXPECT_FALSE(rates.line_once(true).has_value());
}

}  // namespace
}  // namespace entrain::engine
