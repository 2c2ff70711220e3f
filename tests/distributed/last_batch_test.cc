// Runs of whole epochs whose last batch is smaller than the others: the training they give is plain
// training, with ranks as threads, and a run that is stopped at any step goes on to the same end.
#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"

#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/plain_training.h"
#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

class LastBatch : public ::testing::Test {
 protected:
  // `samples` in batches of 6, for two epochs.
  void begin(int samples, int replicas) {
    run_.config.data.train = run_.make_index("train", tiny::colour_shard(0, samples));
    run_.config.data.last_batch = kKeepLastBatch;
    run_.config.plan.replicas = replicas;
    run_.config.steps = 0;
    run_.config.epochs = 3;
  }

  tiny::RunFolder run_;
};

// 8 samples leave batches of 6 and 2: fewer than slots × replicas, and one a replica.
TEST_F(LastBatch, IsTrainedAsPlainTrainingDoes) {
  begin(8, 2);
  std::vector<std::pair<std::string, std::string>> cases;
  for (const std::string& policy : policy_names()) {
    cases.emplace_back(policy, "1f1b");
  }
  for (const char* schedule : {"gpipe", "entrain", "zb-h1"}) {
    cases.emplace_back("entrain", schedule);
  }
  for (const auto& [policy, schedule] : cases) {
    run_.config.plan.policy = policy;
    run_.config.plan.schedule = schedule;
    run_.config.output = run_.path(concat(policy, "-", schedule)).string();
    const TrainResult result = tiny::train_now(run_.config);
    EXPECT_EQ(result.steps, 6) << policy;
    oracle::expect_plain_training(prepare_run(run_.config));
  }
}

TEST_F(LastBatch, OfOneSampleIsTrained) {
  begin(7, 1);
  run_.config.plan.stages = {{"vision", 2}, {"llm", 2}};
  EXPECT_EQ(tiny::train_now(run_.config).steps, 6);
  oracle::expect_plain_training(prepare_run(run_.config));
}

TEST_F(LastBatch, ResumesAcrossTheEndOfAnEpoch) {
  begin(8, 2);
  tiny::train_now(run_.config);
  const std::vector<double> whole = tiny::losses_of(run_.config);
  ASSERT_EQ(whole.size(), 6U);
  const RunConfig stopped = run_.in_folder("stopped");
  for (int part = 0; part < 6; ++part) {
    tiny::train_now(stopped, /*interrupt=*/part < 5);
  }
  EXPECT_EQ(tiny::losses_of(stopped), whole);
  // Another rule is another order of samples.
  RunConfig other = stopped;
  other.data.last_batch = "drop";
  const std::string message = oracle::error_of<InvalidInput>([&] { prepare_run(other); });
  EXPECT_NE(message.find("data.last_batch \"keep\" there, \"drop\" here"), std::string::npos)
      << message;
}

TEST_F(LastBatch, NeedsASampleForEveryReplica) {
  begin(7, 2);
  const std::string message = oracle::error_of<InvalidInput>([&] { prepare_run(run_.config); });
  EXPECT_NE(message.find("has 1 of 7 samples, the plan 2 replicas"), std::string::npos) << message;
  run_.config.data.last_batch = "drop";
  EXPECT_EQ(prepare_run(run_.config).config.steps, 3);
}

TEST_F(LastBatch, IsSaidAtTheStart) {
  begin(8, 1);
  EXPECT_EQ(
      epoch_note(prepare_run(run_.config)),
      "8 training samples: an epoch has 2 steps, the last one of 2 samples (data.last_batch = "
      "\"keep\"); 3 epochs are 6 steps");
  run_.config.data.last_batch = "drop";
  EXPECT_EQ(epoch_note(prepare_run(run_.config)),
            "8 training samples: an epoch has 1 step and leaves out 2 samples that fill no batch "
            "(data.last_batch = \"drop\"); 3 epochs are 3 steps");
  run_.config.optimizer.update_every = 2;
  const std::string message = oracle::error_of<InvalidInput>([&] { prepare_run(run_.config); });
  EXPECT_NE(message.find("epochs = 3 of 1 step each: steps = 3"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain::engine
