#include "entrain/core/planner/stable_batch.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;
using Split = std::vector<int>;

// `kinds`: {encoder work, LLM work, how many samples}.
StableBatchRequest make_request(const std::vector<std::array<std::int64_t, 3>>& kinds,
                                int devices) {
  StableBatchRequest request;
  request.work_ns.resize(2);
  for (const auto& [encoder, llm, count] : kinds) {
    for (std::int64_t i = 0; i < count; ++i) {
      request.work_ns[0].push_back(encoder);
      request.work_ns[1].push_back(llm);
    }
  }
  request.devices = devices;
  return request;
}

int draws_of(const BatchSizeSplits& size, const Split& split) {
  for (const CountedSplit& counted : size.splits) {
    if (counted.devices_of == split) {
      return counted.count;
    }
  }
  return 0;
}

TEST(NumValidationDraws, MatchesGoldenValues) {
  EXPECT_EQ(num_validation_draws(0.05, 0.05), 59);
  EXPECT_EQ(num_validation_draws(0.05, 0.01), 299);
  EXPECT_EQ(num_validation_draws(0.01, 0.05), 90);
  EXPECT_EQ(num_validation_draws(0.01, 0.01), 459);
  EXPECT_EQ(num_validation_draws(0.1, 0.1), 22);
  EXPECT_EQ(num_validation_draws(0.25, 0.5), 2);  // an exact quotient
  EXPECT_EQ(num_validation_draws(0.9, 0.5), 1);
}

TEST(NumValidationDraws, RefusesWhatIsNoProbability) {
  for (const std::pair<double, double>& given : std::vector<std::pair<double, double>>{
           {0, 0.05}, {1, 0.05}, {0.05, 0}, {0.05, 1}, {-1, 0.05}, {0.05, 1e-9}}) {
    const std::string message =
        error_of<InvalidInput>([&] { num_validation_draws(given.first, given.second); });
    EXPECT_NE(message.find("alpha"), std::string::npos) << message;
  }
}

TEST(StableBatch, IsOneSampleForConstantRatios) {
  // Sizes differ a thousandfold, ratios do not.
  StableBatchRequest request = make_request({{10, 6, 20}, {10'000, 6'000, 20}}, 16);
  const StableBatchResult result = find_stable_batch(request);
  EXPECT_EQ(result.b_min, 1);
  EXPECT_EQ(result.reason, "");
  ASSERT_EQ(result.sizes.size(), 1U);
  EXPECT_EQ(result.sizes_tried, 1);
  EXPECT_EQ(result.sizes[0].reference, (Split{10, 6}));
  EXPECT_EQ(draws_of(result.sizes[0], {10, 6}), 60);
  EXPECT_EQ(result.draws, 59);
  EXPECT_NEAR(result.margin, 0.5, 1e-12);
  EXPECT_NEAR(result.shares[0], 10, 1e-12);
  EXPECT_EQ(result.proven, 1);
  EXPECT_TRUE(result.is_stable(1));
}

TEST(StableBatch, SeesSplitsAsOftenAsTheyAre) {
  // One sample: 12:4 with probability 0.3. Two samples: 2 light ones ask for 4:12, two of the other
  // kind for 12:4, one of each for 8:8.
  StableBatchRequest request = make_request({{4, 12, 700}, {12, 4, 300}}, 16);
  request.also = {2};
  request.error = 0.001;  // 2,995 draws
  const StableBatchResult result = find_stable_batch(request);
  const auto share = [&](std::size_t size, const Split& split) {
    return static_cast<double>(draws_of(result.sizes[size], split)) / (result.draws + 1);
  };
  ASSERT_EQ(result.sizes[1].batch, 2);
  EXPECT_NEAR(share(0, {12, 4}), 0.3, 0.03);
  EXPECT_NEAR(share(0, {4, 12}), 0.7, 0.03);
  EXPECT_NEAR(share(1, {12, 4}), 0.09, 0.02);
  EXPECT_NEAR(share(1, {8, 8}), 0.42, 0.03);
  EXPECT_NEAR(share(1, {4, 12}), 0.49, 0.03);
  EXPECT_EQ(result.sizes[1].splits.front().devices_of, (Split{4, 12}));
}

TEST(StableBatch, CertifiesWronglyAsSeldomAsItSays) {
  // A fresh sample differs with probability 0.05 exactly: "at most 0.05" is certified when no
  // draw differs, in a share of 0.95^60 = 4.6 % of all runs.
  int certified = 0;
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    StableBatchRequest request = make_request({{8, 8, 95}, {6, 10, 5}}, 16);
    request.limit = 1;
    request.seed = seed;
    certified += find_stable_batch(request).b_min == 1 ? 1 : 0;
  }
  EXPECT_GT(certified, 60);
  EXPECT_LT(certified, 130);
}

TEST(StableBatch, CountsOversizedSamplesThatSmallBatchesMiss) {
  // Of 20,000 samples ten bring most of the work: 99.7 % of batches of up to 4 hold none.
  StableBatchRequest request = make_request({{8, 8, 19'990}, {90'000, 10'000, 10}}, 16);
  const StableBatchResult result = find_stable_batch(request);
  ASSERT_FALSE(result.sizes.empty());
  EXPECT_EQ(draws_of(result.sizes[0], {8, 8}), 60) << "agrees with itself";
  EXPECT_EQ(result.region.devices_of, (Split{13, 3}));
  EXPECT_NE(result.b_min, 1);
}

TEST(StableBatch, TakesBackWhatOnlySmallBatchesAgreeOn) {
  // All but five in a thousand samples need the data set's split; an oversized one changes small
  // batches.
  StableBatchRequest request = make_request({{8, 8, 9'950}, {300, 20, 25}, {20, 300, 25}}, 16);
  int deceived = 0;
  for (request.seed = 0; request.seed < 4; ++request.seed) {
    const StableBatchResult result = find_stable_batch(request);
    ASSERT_EQ(result.region.devices_of, (Split{8, 8}));
    deceived += result.sizes.front().settled() ? 1 : 0;
    EXPECT_NE(result.b_min, 1);
  }
  EXPECT_GE(deceived, 1) << "no case of the kind";
}

TEST(StableBatch, SettlesWhenDoubled) {
  // Share 8.2 of 16, the next split is 0.3 devices away; a sample is worth ±4.
  const StableBatchResult result =
      find_stable_batch(make_request({{12, 4, 5'250}, {4, 12, 4'750}}, 16));
  EXPECT_EQ(result.region.devices_of, (Split{8, 8}));
  EXPECT_NEAR(result.shares[0], 8.2, 1e-9);
  EXPECT_GT(result.b_min, 64);
  for (std::size_t i = 0; i < result.sizes.size(); ++i) {
    EXPECT_EQ(result.sizes[i].batch, 1 << i);
    int draws = 0;
    for (const CountedSplit& split : result.sizes[i].splits) {
      draws += split.count;
    }
    EXPECT_EQ(draws, 60);
  }
  EXPECT_GE(result.sizes.back().batch, result.b_min);
  for (const BatchSizeSplits& size : result.sizes) {
    EXPECT_TRUE(size.settled() || size.batch < result.b_min) << size.batch;
  }
  EXPECT_GE(result.proven, result.b_min / 2) << "a bound asks for more than draws do";
  EXPECT_EQ(result.sizes_tried, std::ssize(result.sizes));
  EXPECT_FALSE(result.is_stable(result.b_min - 1));
  EXPECT_TRUE(result.is_stable(result.b_min + 1));
  EXPECT_NEAR(result.search_alpha(), std::min(1.0, 0.05 * result.sizes_tried), 1e-12);
}

TEST(StableBatch, IsTheSameWithoutWholeCounts) {
  int shorter = 0;
  for (const std::int64_t odd : {5, 50, 500, 2'000}) {
    StableBatchRequest request = make_request({{8, 8, 9'950 - odd}, {300, 20, odd}}, 16);
    const StableBatchResult whole = find_stable_batch(request);
    request.whole_counts = false;
    const StableBatchResult result = find_stable_batch(request);
    EXPECT_EQ(result.b_min, whole.b_min) << odd;
    EXPECT_EQ(result.sizes_tried, whole.sizes_tried);
    for (std::size_t i = 0; i < whole.sizes.size(); ++i) {
      EXPECT_EQ(result.sizes[i].settled(), whole.sizes[i].settled());
      shorter += result.sizes[i].splits.back().count < whole.sizes[i].splits.back().count ? 1 : 0;
    }
  }
  EXPECT_GT(shorter, 0);
}

TEST(StableBatch, SaysThatAMixOnABoundaryNeverSettles) {
  // 8.5 : 7.5 exactly; every batch lies to one side or the other.
  const StableBatchResult boundary =
      find_stable_batch(make_request({{18, 14, 900}, {16, 16, 900}}, 16));
  EXPECT_NEAR(boundary.margin, 0, 1e-12);
  EXPECT_EQ(boundary.proven, 0);
  EXPECT_EQ(boundary.b_min, 0);
  EXPECT_FALSE(boundary.is_stable(1 << 20));
  EXPECT_EQ(boundary.sizes.back().batch, 1'024);
  EXPECT_TRUE(boundary.sizes.back().with_replacement);
  EXPECT_FALSE(boundary.sizes.front().with_replacement);
  for (const char* part : {"1800", "1024", "60 batches", "9:7 (", "8:8 (", "0.0000 devices"}) {
    EXPECT_NE(boundary.reason.find(part), std::string::npos) << part << ": " << boundary.reason;
  }
}

TEST(StableBatch, StopsAtItsLimit) {
  StableBatchRequest request = make_request({{12, 4, 5'250}, {4, 12, 4'750}}, 16);
  request.limit = 10;
  const StableBatchResult result = find_stable_batch(request);
  EXPECT_EQ(result.b_min, 0);
  EXPECT_EQ(result.sizes.back().batch, 8);
  EXPECT_NE(result.reason.find("up to 10 samples"), std::string::npos) << result.reason;
}

TEST(StableBatch, DrawsASizeAloneAsAmongOthers) {
  StableBatchRequest request = make_request({{12, 4, 700}, {4, 12, 300}}, 16);
  request.also = {3, 100, 1};
  const StableBatchResult first = find_stable_batch(request);
  request.also = {100};
  request.limit = 1;
  const StableBatchResult second = find_stable_batch(request);
  ASSERT_EQ(second.sizes.size(), 2U);
  for (const BatchSizeSplits& size : second.sizes) {
    const auto same = std::find_if(first.sizes.begin(), first.sizes.end(), [&](const auto& other) {
      return other.batch == size.batch;
    });
    ASSERT_NE(same, first.sizes.end());
    EXPECT_EQ(same->reference, size.reference);
    ASSERT_EQ(same->splits.size(), size.splits.size());
    for (std::size_t i = 0; i < size.splits.size(); ++i) {
      EXPECT_EQ(same->splits[i].devices_of, size.splits[i].devices_of);
      EXPECT_EQ(same->splits[i].count, size.splits[i].count);
    }
  }
  for (std::size_t i = 1; i < first.sizes.size(); ++i) {
    EXPECT_LT(first.sizes[i - 1].batch, first.sizes[i].batch);
  }
}

TEST(StableBatch, RefusesWhatCannotBe) {
  const StableBatchRequest good = make_request({{1, 1, 4}}, 16);
  const auto message_of = [&](const auto& change) {
    StableBatchRequest request = good;
    change(request);
    return error_of<InvalidInput>([&] { find_stable_batch(request); });
  };
  EXPECT_NE(message_of([](auto& r) { r.devices = 1; }).find("1 device for 2 modules"),
            std::string::npos);
  message_of([](auto& r) { r.work_ns = {{}, {}}; });
  message_of([](auto& r) { r.limit = -1; });
  message_of([](auto& r) { r.also = {0}; });
  message_of([](auto& r) { r.alpha = 1; });
  const std::string big = message_of([](auto& r) { r.work_ns[0][0] = std::int64_t{1} << 61; });
  EXPECT_NE(big.find("2^62"), std::string::npos) << big;
}

}  // namespace
}  // namespace entrain
