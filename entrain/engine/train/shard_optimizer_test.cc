// Runs whose optimizer state is shared out among replicas, against runs in which every replica has
// all of it.
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/checkpoint/read.h"
#include "entrain/engine/pipeline/ranks.h"
#include "entrain/engine/train/optimizer.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;
using oracle::error_of;
using tiny::losses_of;
using tiny::train_now;

class ShardOptimizer : public testing::Test {
 protected:
  ShardOptimizer() {
    run_.config.steps = 6;
    run_.config.plan.stages = {{"llm", 2}};
    run_.config.plan.replicas = 3;
    run_.config.plan.shard_optimizer = true;
    run_.config.checkpoint.every_steps = 3;
    run_.config.optimizer.clip_norm = 0.5;  // always less than the norm
  }
  // Weights and moments to the last bit, whatever else the checkpoints say.
  static void expect_same_end(const RunConfig& a, const RunConfig& b) {
    EXPECT_EQ(losses_of(a), losses_of(b));
    int files = 0;
    for (const auto& entry : fs::directory_iterator(checkpoint_folder(a) / checkpoint_name(6))) {
      if (entry.path().extension() == ".safetensors") {
        const fs::path other = checkpoint_folder(b) / checkpoint_name(6) / entry.path().filename();
        EXPECT_TRUE(read_file(entry.path()) == read_file(other)) << entry.path();
        ++files;
      }
    }
    EXPECT_EQ(files, 6);
  }
  tiny::RunFolder run_;
};

TEST_F(ShardOptimizer, ChangesNoBitOfARun) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    run_.config.execution.precision = precision;
    const RunConfig sharded = run_.in_folder(concat("sharded-", name_of(precision)));
    RunConfig whole = run_.in_folder(concat("whole-", name_of(precision)));
    whole.plan.shard_optimizer = false;
    train_now(sharded);
    train_now(whole);
    expect_same_end(sharded, whole);
  }
}

TEST_F(ShardOptimizer, GoesOnAtTheLastBitOrUnderAnotherNumberOfReplicas) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    run_.config.execution.precision = precision;
    const RunConfig whole = run_.in_folder(concat("whole-", name_of(precision)));
    train_now(whole);
    RunConfig stopped = run_.in_folder(concat("stopped-", name_of(precision)));
    stopped.execution.fault_drill = {1, 1, 5};
    error_of<InternalError>([&] { train_now(stopped); });
    stopped.execution.fault_drill = {};
    for (const int replicas : {1, 2}) {
      for (const bool shards : {false, true}) {
        RunConfig other = run_.in_folder(concat("other-", name_of(precision), replicas, shards));
        other.plan.replicas = replicas;
        other.plan.shard_optimizer = shards;
        other.checkpoint.resume = (checkpoint_folder(stopped) / checkpoint_name(3)).string();
        EXPECT_EQ(train_now(other).first_step, 3);
        const std::vector<double> expected = losses_of(whole);
        const std::vector<double> losses = losses_of(other);
        ASSERT_EQ(losses.size(), 3U);
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_NEAR(losses[i], expected[i + 3], precision == Precision::kFp32 ? 1e-5 : 0.02);
        }
      }
    }
    EXPECT_EQ(train_now(stopped).first_step, 3);
    expect_same_end(stopped, whole);
  }
}

// A lane's moments, on each of its replicas.
TEST_F(ShardOptimizer, KeepsAReplicasShareOfTheState) {
  const RunSetup setup = prepare_run(run_.config);
  ThreadCommGroup group(setup.plan.replicas * setup.plan.num_lanes());
  run_ranks(group, [&](int rank) {
    ExecutorOptions options;
    options.stage.dtype = at::kBFloat16;
    const Executor executor(setup.model, setup.plan, group.comm(rank), options);
    std::int64_t trained = 0;
    for (const NamedParameter& parameter : executor.parameters()) {
      trained += parameter.tensor.numel();
    }
    const AdamW optimizer(executor.trained(), executor.layout().shard_size(), {});
    const std::int64_t alignment =
        FlatLayout::kAlignment * static_cast<std::int64_t>(executor.parameters().size() + 3);
    EXPECT_GE(optimizer.bytes(), 8 * trained / 3);
    EXPECT_LE(optimizer.bytes(), 8 * (trained + alignment) / 3);
  });
}

TEST_F(ShardOptimizer, IsInThePlanAndMayBeOverridden) {
  EXPECT_TRUE(prepare_run(run_.config).plan.shard_optimizer);
  const RunSetup setup = prepare_run(run_.config);
  run_.config.plan.file = run_.write("plan.json", to_json(setup.plan).dump()).string();
  run_.config.plan.shard_optimizer.reset();
  EXPECT_TRUE(prepare_run(run_.config).plan.shard_optimizer);
  run_.config.plan.shard_optimizer = false;
  EXPECT_FALSE(prepare_run(run_.config).plan.shard_optimizer);
  EXPECT_EQ(to_json(run_config_from_json(to_json(run_.config), "config.json")),
            to_json(run_.config));
}

}  // namespace
}  // namespace entrain::engine
