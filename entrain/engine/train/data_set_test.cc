#include "entrain/engine/train/data_set.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

std::vector<std::string> ids_of(const DataSet& data) {
  std::vector<std::string> ids;
  for (const SampleSizes& sample : data.index.samples) {
    ids.push_back(sample.id);
  }
  return ids;
}

class ValidationSplit : public testing::Test {
 protected:
  ValidationSplit() {
    run_.config.data.validation.clear();
    run_.config.data.train = run_.make_index("many", tiny::colour_shard(0, 40));
    run_.config.data.validation_fraction = 0.2;
  }
  tiny::RunFolder run_;
};

TEST_F(ValidationSplit, MovesSamplesThatAreNeverTrainedOn) {
  const RunSetup setup = prepare_run(run_.config);
  const std::vector<std::string> train = ids_of(setup.train);
  const std::vector<std::string> validation = ids_of(setup.validation);
  EXPECT_EQ(validation.size(), 8U);
  ASSERT_EQ(train.size(), 32U);
  EXPECT_EQ(setup.train.work.size(), 32U);
  EXPECT_EQ(setup.validation.work.size(), 8U);
  std::set<std::string> all(train.begin(), train.end());
  all.insert(validation.begin(), validation.end());
  EXPECT_EQ(all.size(), 40U);
  std::set<std::string> trained;
  for (std::int64_t step = 0; step < 12; ++step) {
    const PreparedStep prepared = prepare_step(setup, step);
    trained.insert(prepared.sample_ids.begin(), prepared.sample_ids.end());
  }
  EXPECT_EQ(trained, std::set<std::string>(train.begin(), train.end()));
  std::set<std::string> validated;
  for (const PreparedStep& prepared : prepare_validation(setup)) {
    validated.insert(prepared.sample_ids.begin(), prepared.sample_ids.end());
  }
  EXPECT_EQ(validated, std::set<std::string>(validation.begin(), validation.end()));
}

TEST_F(ValidationSplit, WorkFollowsItsSample) {
  const RunSetup setup = prepare_run(run_.config);
  for (const DataSet* data : {&setup.train, &setup.validation}) {
    for (std::size_t i = 0; i < data->work.size(); ++i) {
      EXPECT_EQ(data->work[i].llm_tokens,
                sample_work(setup.model, data->index.samples[i]).llm_tokens);
    }
  }
}

TEST_F(ValidationSplit, DependsOnTheSeedAlone) {
  const std::vector<std::string> first = ids_of(prepare_run(run_.config).validation);
  run_.config.plan.replicas = 2;
  run_.config.data.global_batch = 4;
  EXPECT_EQ(ids_of(prepare_run(run_.config).validation), first);
  run_.config.seed = 4;
  EXPECT_NE(ids_of(prepare_run(run_.config).validation), first);
}

TEST_F(ValidationSplit, LeavesSomethingToTrainOn) {
  run_.config.data.validation_fraction = 0.99;
  const std::string message = error_of<InvalidInput>([&] { prepare_run(run_.config); });
  EXPECT_NE(message.find("of 40 samples leaves none"), std::string::npos) << message;
  run_.config.data.validation_fraction = 0.001;
  EXPECT_EQ(prepare_run(run_.config).validation.work.size(), 1U);
}

TEST_F(ValidationSplit, IsValidatedAndPartOfTheRunsIdentity) {
  const std::atomic<bool> interrupted{false};
  run_.config.checkpoint.every_steps = 2;
  EXPECT_TRUE(train(prepare_run(run_.config), interrupted).validation_loss.has_value());
  EXPECT_EQ(prepare_run(run_.config).resume->manifest.step, 4);
  run_.config.data.validation_fraction = 0.3;
  const std::string message = error_of<InvalidInput>([&] { prepare_run(run_.config); });
  EXPECT_NE(message.find("validation_fraction 0.3, digest"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain::engine
