// Runs whose oversized samples are held across steps: the training they give is plain training on
// the batches that studies predict, and a run that is stopped at any step goes on to the same end.
#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/planner/work_times.h"

#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/plain_training.h"
#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

constexpr int kSamples = 48;  // six steps of 8 an epoch: two windows of 3

// Short answers, and every eighth sample with eight images.
std::string uneven_shard() {
  oracle::TarWriter tar;
  for (int i = 0; i < kSamples; ++i) {
    const std::string name = concat("s", i);
    for (int image = 0; i % 8 == 1 && image < 8; ++image) {
      tar.add(concat(name, ".", image, ".png"), oracle::flat_png(32, 32, 250, 10, 5));
    }
    tar.add(name + ".json", R"({"question": "?", "answer": "no"})");
  }
  return tar.archive();
}

class HeldSamples : public ::testing::Test {
 protected:
  HeldSamples() {
    run_.config.data.train = run_.make_index("train", uneven_shard());
    run_.config.data.global_batch = 8;
    run_.config.data.hold = 3;
    run_.config.plan.replicas = 2;
    run_.config.steps = 0;
    run_.config.epochs = 2;
  }

  tiny::RunFolder run_;
};

TEST_F(HeldSamples, AreTrainedAsPlainTrainingDoes) {
  EXPECT_EQ(tiny::train_now(run_.config).steps, 12);
  oracle::expect_plain_training(prepare_run(run_.config));
}

TEST_F(HeldSamples, HaveAnOrderOfTheModelAndSizesAlone) {
  const RunSetup setup = prepare_run(run_.config);
  const std::vector<std::int64_t> weights = hold_weights(setup.model, setup.train.work);
  EXPECT_EQ(setup.hold_weights, weights);
  GlobalBatchSampler expected(kSamples, 8, 3, LastBatch::kDrop, {3, weights});
  int changed = 0;
  for (std::int64_t step = 11; step >= 0; --step) {
    EXPECT_EQ(prepare_step(setup, step).batch, expected.batch(step));
    changed += expected.batch(step) != GlobalBatchSampler(kSamples, 8, 3).batch(step) ? 1 : 0;
  }
  EXPECT_GT(changed, 2);
  run_.config.plan.replicas = 1;
  run_.config.plan.stages = {{"llm", 2}};
  EXPECT_EQ(prepare_run(run_.config).hold_weights, weights);
  EXPECT_EQ(epoch_note(setup),
            "48 training samples: an epoch has 6 steps; oversized samples are held within windows "
            "of 3 steps (data.hold); 2 epochs are 12 steps");
  run_.config.data.hold = 1;
  EXPECT_TRUE(prepare_run(run_.config).hold_weights.empty());
  EXPECT_EQ(prepare_step(prepare_run(run_.config), 7).batch,
            GlobalBatchSampler(kSamples, 8, 3).batch(7));
}

TEST_F(HeldSamples, ResumeWithinAWindow) {
  tiny::train_now(run_.config);
  const std::vector<double> whole = tiny::losses_of(run_.config);
  ASSERT_EQ(whole.size(), 12U);
  const RunConfig stopped = run_.in_folder("stopped");
  for (int part = 0; part < 12; ++part) {
    tiny::train_now(stopped, /*interrupt=*/part < 11);
  }
  EXPECT_EQ(tiny::losses_of(stopped), whole);
  EXPECT_EQ(tiny::weights_of(stopped), tiny::weights_of(run_.config));
  RunConfig other = stopped;
  other.data.hold = 1;
  const std::string message = oracle::error_of<InvalidInput>([&] { prepare_run(other); });
  EXPECT_NE(message.find("data.hold 3 there, 1 here"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain::engine
