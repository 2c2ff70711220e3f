#include "entrain/engine/train/step_source.h"

#include <chrono>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::RunFolder;

class StepSourceTest : public testing::Test {
 protected:
  StepSourceTest() { setup_ = prepare_run(run_.config); }

  // A step that is prepared ahead, but not asked for: waits for the thread behind the source.
  static std::shared_ptr<const PreparedStep> wait_for_peek(StepSource& source, std::int64_t step) {
    for (int wait = 0; wait < 20'000; ++wait) {
      if (auto prepared = source.peek(step); prepared != nullptr) {
        return prepared;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return nullptr;
  }

  static void expect_same(const PreparedStep& step, const PreparedStep& expected) {
    EXPECT_EQ(step.step, expected.step);
    EXPECT_EQ(step.batch, expected.batch);
    EXPECT_EQ(step.sample_ids, expected.sample_ids);
    EXPECT_EQ(digest(step.assignment), digest(expected.assignment));
    EXPECT_TRUE(step.program == expected.program);
    EXPECT_EQ(step.target_tokens, expected.target_tokens);
    EXPECT_EQ(step.predicted.makespan, expected.predicted.makespan);
  }

  RunFolder run_;
  RunSetup setup_;
};

TEST_F(StepSourceTest, GivesTheStepsOfTheSetupInOrder) {
  StepSource source(setup_, 0, 4, 1);
  StepSource again(setup_, 0, 4, 1);
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto prepared = source.get(step);
    ASSERT_NE(prepared, nullptr);
    expect_same(*prepared, prepare_step(setup_, step));
    expect_same(*prepared, *again.get(step));
  }
  EXPECT_EQ(source.get(4), nullptr);
}

TEST_F(StepSourceTest, BatchesFollowTheSeed) {
  RunSetup other = setup_;
  other.config.seed = 4;
  StepSource source(setup_, 0, 1, 1);
  StepSource reseeded(other, 0, 1, 1);
  EXPECT_NE(source.get(0)->batch, reseeded.get(0)->batch);
}

TEST_F(StepSourceTest, ResumesAtAPosition) {
  StepSource resumed(setup_, 7, 9, 1);
  expect_same(*resumed.get(7), prepare_step(setup_, 7));
  expect_same(*resumed.get(8), prepare_step(setup_, 8));
  EXPECT_EQ(resumed.get(9), nullptr);
}

TEST_F(StepSourceTest, AllRanksGetOneObjectThatGoesWithTheLast) {
  StepSource source(setup_, 0, 4, 2);
  auto first = source.get(0);
  auto second = source.get(0);
  EXPECT_EQ(first.get(), second.get());
  const std::weak_ptr<const PreparedStep> watched = first;
  first.reset();
  EXPECT_FALSE(watched.expired());
  second.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(StepSourceTest, PreparesTheNextStepWhileOneRuns) {
  StepSource source(setup_, 0, 4, 1);
  const auto first = source.get(0);
  const auto next = wait_for_peek(source, 1);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next, source.get(1));
  EXPECT_EQ(source.peek(4), nullptr);
}

TEST_F(StepSourceTest, EveryRankLearnsWhyAStepCannotBePrepared) {
  setup_.plan.policy = "enttrain";
  StepSource source(setup_, 0, 4, 2);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string message = error_of<InvalidInput>([&] { source.get(0); });
    EXPECT_NE(message.find("enttrain"), std::string::npos) << message;
  }
}

TEST_F(StepSourceTest, CanGoWhileItPrepares) {
  for (int round = 0; round < 20; ++round) {
    StepSource source(setup_, 0, 100, 1);
    if (round % 2 == 0) {
      source.get(0);
    }
  }
}

}  // namespace
}  // namespace entrain::engine
