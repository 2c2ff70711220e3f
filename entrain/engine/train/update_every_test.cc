// Gradients of several steps added up for one update.
#include <cmath>

#include <gtest/gtest.h>

#include "entrain/core/base/text.h"
#include "entrain/core/simulator/simulator.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/models/weights.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::steps_of;
using tiny::train_now;

class UpdateEvery : public testing::Test {
 protected:
  UpdateEvery() {
    run_.config.steps = 8;
    run_.config.optimizer.update_every = 2;
    run_.config.optimizer.warmup_steps = 2;
    run_.config.plan.stages = {{"llm", 2}};
  }
  tiny::RunFolder run_;
};

// The same samples, in two halves or at once: 12 of them, an epoch.
TEST_F(UpdateEvery, IsOneStepOfAllTheirSamples) {
  for (const int replicas : {1, 2}) {
    run_.config.plan.replicas = replicas;
    const RunConfig halves = run_.in_folder(concat("halves", replicas));
    RunConfig whole = run_.in_folder(concat("whole", replicas));
    whole.steps = 4;
    whole.data.global_batch = 12;
    whole.optimizer.update_every = 1;
    train_now(halves);
    train_now(whole);
    const std::vector<Json> two = steps_of(halves);
    const std::vector<Json> one = steps_of(whole);
    ASSERT_EQ(two.size(), 8U);
    ASSERT_EQ(one.size(), 4U);
    for (std::size_t i = 0; i < one.size(); ++i) {
      double loss = 0;
      double tokens = 0;
      for (const std::size_t half : {2 * i, 2 * i + 1}) {
        loss += two[half]["loss"].get<double>() * two[half]["target_tokens"].get<double>();
        tokens += two[half]["target_tokens"].get<double>();
      }
      EXPECT_NEAR(loss / tokens, one[i]["loss"].get<double>(), 1e-4) << i;
      EXPECT_FALSE(two[2 * i].contains("grad_norm"));
      EXPECT_FALSE(two[2 * i].contains("learning_rate"));
      EXPECT_NEAR(two[2 * i + 1]["grad_norm"].get<double>(),
                  one[i]["grad_norm"].get<double>(),
                  1e-3 * one[i]["grad_norm"].get<double>());
      EXPECT_EQ(two[2 * i + 1]["learning_rate"], one[i]["learning_rate"]);
    }
  }
}

// A prediction is that of the operations that run: with the others' costs, of a program without
// them.
TEST_F(UpdateEvery, OnlyStepsThatEndAnUpdateArePredictedWithIt) {
  run_.config.plan.replicas = 2;
  for (const bool sharded : {false, true}) {
    run_.config.plan.shard_optimizer = sharded;
    const RunSetup setup = prepare_run(run_.config);
    for (std::int64_t step = 0; step < 4; ++step) {
      const PreparedStep prepared = prepare_step(setup, step);
      const StepCosts costs = costs_of_step(setup, step);
      Program without = prepared.program;
      for (ReplicaProgram& replica : without.replicas) {
        for (std::vector<Operation>& lane : replica.lanes) {
          std::erase_if(lane, [](const Operation& operation) { return operation.unit.module < 0; });
        }
      }
      const auto with_update = simulate(prepared.program, costs).makespan;
      const auto without_update = simulate(without, costs).makespan;
      ASSERT_LT(without_update, with_update);
      EXPECT_EQ(prepared.predicted.makespan, step % 2 == 1 ? with_update : without_update) << step;
      EXPECT_LE(prepared.assignment.stats.lower_bound_s,
                std::chrono::duration<double>(prepared.predicted.makespan).count() + 1e-9);
    }
  }
}

TEST_F(UpdateEvery, StopsAndGoesOnBetweenUpdatesToTheLastBit) {
  run_.config.data.validation.clear();  // which the signal would end as well
  const RunConfig whole = run_.in_folder("whole");
  train_now(whole);
  const RunConfig stopped = run_.in_folder("stopped");
  std::int64_t reached = 0;
  int calls = 0;
  while (reached < stopped.steps) {
    const TrainResult result = train_now(stopped, /*interrupt=*/true);
    EXPECT_EQ(result.first_step, reached);
    ASSERT_GE(result.steps, 2);
    EXPECT_EQ(result.steps % 2, 0);
    reached += result.steps;
    ++calls;
  }
  EXPECT_GE(calls, 2);
  const std::vector<Json> expected = steps_of(whole);
  const std::vector<Json> rows = steps_of(stopped);
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["loss"], expected[i]["loss"]) << i;
  }
  EXPECT_TRUE(tiny::weights_of(stopped) == tiny::weights_of(whole));
}

TEST_F(UpdateEvery, IsPartOfTheRunsIdentity) {
  run_.config.checkpoint.every_steps = 4;
  train_now(run_.config);
  run_.config.optimizer.update_every = 4;
  const std::string message = error_of<InvalidInput>([&] { prepare_run(run_.config); });
  EXPECT_NE(message.find("optimizer.update_every 2 there, 4 here"), std::string::npos) << message;
}

// A frozen module apart, every part has a rate of its own; a misspelt one is refused.
TEST_F(UpdateEvery, PartsAreUpdatedAtTheirOwnRates) {
  run_.config.optimizer.modules["vision"].learning_rate = 1e-30;
  run_.config.optimizer.weight_decay = 0;
  run_.config.optimizer.clip_norm = 0;
  RunConfig none = run_.in_folder("none");
  none.steps = 2;
  RunConfig some = run_.in_folder("some");
  const auto first = read_weights(train_now(none).weights).tensors;
  const auto later = read_weights(train_now(some).weights).tensors;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool body =
        first[i].name.starts_with("visual.") && first[i].name.find(".merger.") == std::string::npos;
    EXPECT_EQ(at::equal(first[i].tensor, later[i].tensor), body) << first[i].name;
  }
  run_.config.optimizer.modules["vison"].learning_rate = 1;
  const std::string message = error_of<InvalidInput>([&] { prepare_run(run_.config); });
  EXPECT_NE(message.find("optimizer.modules: unknown part 'vison', did you mean 'vision'"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace entrain::engine
