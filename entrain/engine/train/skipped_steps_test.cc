#include "entrain/engine/train/skipped_steps.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/pipeline/ranks.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

constexpr double kNanLoss = std::numeric_limits<double>::quiet_NaN();

class DamagedData : public StepData {
 public:
  explicit DamagedData(std::optional<std::string> problem) : problem_(std::move(problem)) {}
  SegmentData segment(int, int, int) override { throw InternalError("nobody reads this step"); }
  const TokenizedSample& text(int) override { throw InternalError("nobody reads this step"); }
  std::optional<std::string> problem() override { return problem_; }

 private:
  std::optional<std::string> problem_;
};

FaultConfig skipping() {
  FaultConfig config;
  config.on_bad_sample = kSkipStep;
  config.on_nan = kSkipStep;
  config.max_skips_in_a_row = 2;
  return config;
}

TEST(StepSkips, AllRanksHearOfTheLowestRanksProblem) {
  for (const int bad : {-1, 1, 2}) {
    ThreadCommGroup group(3);
    run_ranks(group, [&](int rank) {
      StepSkips skips(skipping(), group.comm(rank), {});
      const bool damaged = bad >= 0 && rank >= bad;
      DamagedData data(damaged ? std::optional(concat("sample of ", rank)) : std::nullopt);
      const std::optional<SkippedStep> skip = skips.before(&data);
      ASSERT_EQ(skip.has_value(), bad >= 0);
      if (skip.has_value()) {
        EXPECT_EQ(skip->cause, "bad-sample");
        EXPECT_EQ(skip->detail, concat("rank ", bad, ": sample of ", bad));
      }
    });
  }
}

TEST(StepSkips, AllRanksHearOfALossThatIsNoNumberBeforeTheUpdateEnds) {
  for (const double loss : {3.5, kNanLoss, std::numeric_limits<double>::infinity()}) {
    ThreadCommGroup group(3);
    run_ranks(group, [&](int rank) {
      StepSkips skips(skipping(), group.comm(rank), {});
      StepOutcome outcome;
      outcome.loss_sum = rank == 2 ? loss : 0;
      const std::optional<SkippedStep> skip = skips.behind(outcome, /*ends_update=*/false);
      ASSERT_EQ(skip.has_value(), !std::isfinite(loss));
      if (skip.has_value()) {
        EXPECT_EQ(skip->cause, "nan");
        EXPECT_EQ(skip->detail, concat("rank 2: loss ", loss));
      }
    });
  }
}

TEST(StepSkips, WhereTheUpdateEndsTheOutcomeSaysItOnAllRanks) {
  ThreadCommGroup group(2);
  StepSkips skips(skipping(), group.comm(0), {});  // alone: it must not exchange anything
  StepOutcome outcome;
  EXPECT_FALSE(skips.behind(outcome, /*ends_update=*/true).has_value());
  outcome.finite = false;
  EXPECT_EQ(skips.behind(outcome, /*ends_update=*/true).value().cause, "nan");
}

TEST(StepSkips, NothingIsSkippedOrExchangedUnlessAskedFor) {
  ThreadCommGroup group(2);
  StepSkips skips(FaultConfig{}, group.comm(0), {});
  DamagedData data("damaged");
  EXPECT_FALSE(skips.before(&data).has_value());
  StepOutcome outcome;
  outcome.loss_sum = kNanLoss;
  outcome.finite = false;
  EXPECT_FALSE(skips.behind(outcome, /*ends_update=*/false).has_value());
  EXPECT_FALSE(skips.behind(outcome, /*ends_update=*/true).has_value());
  StepSkips paced(skipping(), group.comm(0), {});
  EXPECT_FALSE(paced.before(nullptr).has_value());
}

TEST(StepSkips, CountStepsAndUpdatesOnTopOfEarlierOnes) {
  ThreadCommGroup group(1);
  StepSkips skips(skipping(), group.comm(0), {5, 4});
  skips.count(/*skipped=*/true, /*ends_update=*/false, /*updated=*/false);
  EXPECT_EQ(skips.counts().steps, 6);
  EXPECT_EQ(skips.counts().updates, 4);
  skips.count(/*skipped=*/true, /*ends_update=*/true, /*updated=*/true);
  EXPECT_EQ(skips.counts().steps, 7);
  EXPECT_EQ(skips.counts().updates, 4);
  skips.count(/*skipped=*/false, /*ends_update=*/true, /*updated=*/false);
  EXPECT_EQ(skips.counts().steps, 7);
  EXPECT_EQ(skips.counts().updates, 5);
}

TEST(StepSkips, ARowOfThemEndsWithAnUpdate) {
  ThreadCommGroup group(1);
  StepSkips skips(skipping(), group.comm(0), {5, 5});
  const SkippedStep last{"nan", "loss nan"};
  for (int round = 0; round < 2; ++round) {
    skips.count(true, false, false);
    skips.count(false, true, false);  // run, but no update came of it
    skips.count(true, true, false);
    EXPECT_NO_THROW(skips.check_row(8, last));
    skips.count(true, true, false);
    const std::string message = error_of<SystemFailure>([&] { skips.check_row(9, last); });
    EXPECT_NE(message.find("step 9: 3 steps in a row"), std::string::npos) << message;
    EXPECT_NE(message.find("the last one (nan): loss nan"), std::string::npos) << message;
    skips.count(false, true, true);
  }
}

}  // namespace
}  // namespace entrain::engine
