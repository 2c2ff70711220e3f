#include "entrain/engine/train/lane_feed.h"

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>

#include <gtest/gtest.h>

#include "entrain/engine/train/feed_run.h"

#include "tests/oracle/engine/tiny_run.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using tiny::RunFolder;

StepNeeds needs_at(const RunSetup& setup, std::int64_t number) {
  const PreparedStep step = prepare_step(setup, number);
  StepNeeds needs = needs_of(step.program, /*replica=*/0, /*lane=*/0, step.batch);
  needs.step = number;
  needs.digest = step.digest;
  return needs;
}

std::int64_t patches_of(StepData& data, const StepNeeds& needs) {
  std::int64_t patches = 0;
  for (const SegmentNeed& need : needs.segments) {
    patches += data.segment(need.module, need.sample, need.segment).input.size(0);
  }
  return patches;
}

class LaneFeedTest : public ::testing::Test {
 protected:
  LaneFeedTest() { run_.config.plan.tensor_parallel = {{"vision", 2}}; }

  // As another process of the lane would.
  ReadAheadOptions fed_by(const LaneFeed& feed, const RunSetup& setup) {
    auto options = std::make_shared<FeedOptions>(
        unfed_options(setup, /*replica=*/0, /*lane=*/0, /*rank=*/1, /*readers=*/2, {}));
    options->addresses = {lane_feed_address(feed.folder(), "rank 0")};
    options->expected = true;
    options->deadline = std::chrono::minutes(1);  // nothing is decoded twice on a busy machine
    ReadAheadOptions reader;
    reader.feed = options;
    return reader;
  }

  RunFolder run_;
};

TEST_F(LaneFeedTest, DecodesEveryPieceOnce) {
  const RunSetup setup = prepare_run(run_.config);
  ReadAhead reader(setup.train.index, setup.model, {});
  LaneFeed feed(setup, reader);
  ReadAhead other(setup.train.index, setup.model, fed_by(feed, setup));
  for (std::int64_t step = 0; step < setup.config.steps; ++step) {
    StepNeeds needs = needs_at(setup, step);
    const auto fed = other.queue(needs);
    needs.readers = 2;
    const auto own = reader.queue(needs);
    feed.add(needs);
    const std::int64_t patches = patches_of(*own, needs);
    EXPECT_GT(patches, 0);
    EXPECT_EQ(patches_of(*fed, needs), patches);
    EXPECT_EQ(own->times().patches, patches);
    EXPECT_EQ(fed->times().patches, 0);
    EXPECT_EQ(fed->times().fed, fed->times().pieces);
  }
}

TEST_F(LaneFeedTest, ListensInAFolderOfThisUserThatGoesWithIt) {
  const RunSetup setup = prepare_run(run_.config);
  ReadAhead reader(setup.train.index, setup.model, {});
  fs::path folder;
  {
    const LaneFeed feed(setup, reader);
    folder = feed.folder();
    EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
    { const SocketFolder of_another(folder); }  // the process that made it was killed
    EXPECT_FALSE(fs::exists(folder));
  }
  EXPECT_FALSE(fs::exists(folder));
  { const SocketFolder taken(run_.path("")); }  // nothing but a socket is removed
  EXPECT_TRUE(fs::exists(run_.path("model.toml")));
}

TEST(QueuedSteps, WaitForTheFirstStepNotBeforeTheOneAskedFor) {
  QueuedSteps steps;
  const auto step = [](std::int64_t number) {
    StepNeeds needs;
    needs.step = number;
    return needs;
  };
  EXPECT_FALSE(steps.find({}, 0, [] { return false; }).has_value());
  auto waiting =
      std::async(std::launch::async, [&] { return steps.find({}, 7, [] { return true; })->step; });
  steps.add(step(6));
  EXPECT_EQ(waiting.wait_for(milliseconds(50)), std::future_status::timeout);
  steps.add(step(8));
  EXPECT_EQ(waiting.get(), 8);
  for (std::int64_t number = 9; number < 20; ++number) {
    steps.add(step(number));
  }
  EXPECT_EQ(steps.find({}, 6, [] { return false; })->step, 16);  // the last four are kept

  std::atomic<bool> waits{true};
  auto ended = std::async(std::launch::async,
                          [&] { return steps.find({}, 20, [&] { return waits.load(); }); });
  EXPECT_EQ(ended.wait_for(milliseconds(50)), std::future_status::timeout);
  waits = false;
  steps.wake();
  EXPECT_FALSE(ended.get().has_value());
}

}  // namespace
}  // namespace entrain::engine
