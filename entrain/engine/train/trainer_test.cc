#include "entrain/engine/train/trainer.h"

#include <algorithm>
#include <limits>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/planner/lane_shares.h"
#include "entrain/core/planner/work_times.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/engine/models/weights.h"
#include "entrain/engine/train/evaluate.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"
#include "tests/oracle/shaped_plans.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::RunFolder;
using tiny::train_now;

using Tensors = std::map<std::string, at::Tensor>;

Tensors weights_of(const RunFolder& run) {
  Tensors tensors;
  for (const NamedParameter& parameter : read_weights(run.output("weights.safetensors")).tensors) {
    tensors[parameter.name] = parameter.tensor;
  }
  return tensors;
}

// What the run starts from: the stages draw their weights from (seed, name).
Tensors initial_weights_of(const RunConfig& config) {
  const ModelSpec model = run_model(config);
  const StageOptions options = {.seed = config.seed};
  Tensors tensors;
  const auto keep = [&](const std::vector<NamedParameter>& parameters) {
    for (const NamedParameter& parameter : parameters) {
      tensors[parameter.name] = parameter.tensor.detach();
    }
  };
  keep(EncoderStage(model.encoders[0], model.llm.hidden, {0, num_layers(model, 0)}, options)
           .parameters());
  keep(LlmStage(model.llm, {0, num_layers(model, 1)}, options).parameters());
  return tensors;
}

std::vector<double> losses_of(const RunFolder& run) {
  std::vector<double> losses;
  for (const Json& line : tiny::metrics_of(run.output("metrics.jsonl"))) {
    if (line.contains("loss")) {
      losses.push_back(line["loss"].get<double>());
    }
  }
  return losses;
}

TEST(Train, LearnsATinyTaskAndReportsIt) {
  RunFolder run;
  run.config.steps = 40;
  run.config.plan.replicas = 2;
  run.config.plan.stages = {{"vision", 1}, {"llm", 2}};
  const TrainResult result = train_now(run.config);
  EXPECT_EQ(result.steps, 40);
  EXPECT_FALSE(result.interrupted);
  EXPECT_GT(result.first_loss, 4.0);  // a guess among 264 tokens costs 5.6
  EXPECT_LT(result.last_loss, 1.0);
  const std::vector<double> losses = losses_of(run);
  ASSERT_EQ(losses.size(), 40U);
  EXPECT_DOUBLE_EQ(losses.front(), result.first_loss);
  double tail = 0;
  for (std::size_t i = 30; i < 40; ++i) {
    tail += losses[i] / 10;
  }
  EXPECT_NEAR(result.last_loss, tail, 1e-12);
  EXPECT_GT(result.median_step_s, 0);
  EXPECT_GT(result.median_predicted_s, 0);
}

// The first step warms up; from the third on the rows tell what is expected, by those before.
TEST(Train, ExpectsStepsAtTheSpeedOfThoseBefore) {
  RunFolder run;
  run.config.steps = 12;
  run.config.plan.stages = {{"llm", 2}};
  train_now(run.config);
  std::vector<Json> rows = tiny::metrics_of(run.output("metrics.jsonl"));
  std::erase_if(rows, [](const Json& row) { return !row.contains("step_s"); });
  ASSERT_EQ(rows.size(), 12U);
  for (std::size_t step = 0; step < 12; ++step) {
    ASSERT_EQ(rows[step].contains("expected_step_s"), step >= 2) << step;
    double predicted = 0;
    double measured = 0;
    for (std::size_t before = step > 9 ? step - 8 : 1; before < step; ++before) {
      for (const Json& lane : rows[before]["lanes"]) {
        predicted += lane["predicted_busy_s"].get<double>();
        measured += lane["busy_s"].get<double>();
      }
    }
    if (step >= 2) {
      const double expected = rows[step]["predicted_step_s"].get<double>() * measured / predicted;
      EXPECT_NEAR(rows[step]["expected_step_s"].get<double>(), expected, 1e-9 * expected) << step;
    }
  }
}

// A tiny model's layers are all overhead, which the analytic costs of a run without a profile leave
// out. Where ranks wait instead of computing, their processor time says nothing.
TEST(Train, AdvisesToProfileOnceWhereItComputes) {
  for (const bool paced : {false, true}) {
    RunFolder run;
    run.config.steps = 20;
    run.config.execution.paced = paced;
    testing::internal::CaptureStdout();
    train_now(run.config);
    const std::string shown = testing::internal::GetCapturedStdout();
    const std::size_t first = shown.find("`entrain profile` on this machine");
    EXPECT_EQ(first == std::string::npos, paced) << shown;
    EXPECT_EQ(shown.find("`entrain profile` on this machine", first + 1), std::string::npos)
        << shown;
  }
}

// On a long pipeline the policy cuts few samples where launches and messages cost next to nothing.
TEST(Train, LearnsAlikeWithSamplesCutIntoChunks) {
  const auto train_with = [](bool chunks, int& cut) {
    RunFolder run;
    run.config.steps = 6;
    run.config.data.global_batch = 2;
    run.config.plan.stages = {{"llm", 3}};
    run.config.plan.evaluations = 200;
    run.config.plan.chunks = chunks;
    RunSetup setup = prepare_run(run.config);
    for (LayerProfile& layer : setup.profile.layers) {
      for (CostCurve* curve : {&layer.forward, &layer.backward_input, &layer.backward_weight}) {
        curve->per_launch_ns = 0;
        curve->per_pair_ns *= 1e4;
        curve->per_token_ns *= 1e4;
      }
    }
    const std::atomic<bool> interrupted{false};
    train(setup, interrupted);
    cut = 0;
    for (const Json& line : tiny::metrics_of(run.output("metrics.jsonl"))) {
      cut += line.value("chunks", 0);
    }
    return losses_of(run);
  };
  int cut = 0;
  const std::vector<double> whole = train_with(false, cut);
  EXPECT_EQ(cut, 0);
  const std::vector<double> chunked = train_with(true, cut);
  EXPECT_GT(cut, 0);
  ASSERT_EQ(chunked.size(), whole.size());
  for (std::size_t step = 0; step < whole.size(); ++step) {
    EXPECT_NEAR(chunked[step], whole[step], 1e-5) << "step " << step;
  }
}

TEST(Train, WritesEveryParameterOfTheModelOnce) {
  RunFolder run;
  run.config.plan.replicas = 2;
  run.config.plan.stages = {{"vision", 2}, {"llm", 2}};
  const TrainResult result = train_now(run.config);
  EXPECT_EQ(result.weights, run.output("weights.safetensors"));
  const Tensors initial = initial_weights_of(run.config);
  const Tensors trained = weights_of(run);
  ASSERT_EQ(trained.size(), initial.size());
  for (const auto& [name, tensor] : initial) {
    ASSERT_TRUE(trained.contains(name)) << name;
    EXPECT_FALSE(at::equal(trained.at(name), tensor)) << name << " has not moved";
  }
}

TEST(Train, LeavesFrozenModulesAsTheyWere) {
  const std::vector<std::vector<std::string>> cases = {
      {"vision", "llm"}, {"llm", "projector"}, {"vision"}};
  for (const std::vector<std::string>& freeze : cases) {
    RunFolder run;
    run.config.steps = 2;
    run.config.freeze = freeze;
    train_now(run.config);
    const Tensors trained = weights_of(run);
    const auto frozen = [&](const std::string& module) {
      return std::find(freeze.begin(), freeze.end(), module) != freeze.end();
    };
    for (const auto& [name, tensor] : initial_weights_of(run.config)) {
      const bool still = name.starts_with("visual.merger.") ? frozen("projector")
                         : name.starts_with("visual.")      ? frozen("vision")
                                                            : frozen("llm");
      EXPECT_EQ(at::equal(trained.at(name), tensor), still) << name << " with " << join(freeze);
    }
  }
}

// A plan for every schedule: a lane a stage, a module's stages wrapped around two lanes, both
// modules on every lane.
TEST(Train, LearnsAlikeUnderEverySchedule) {
  const RunFolder base;
  const ModelSpec model = run_model(base.config);
  const LayerTimes even(2, std::vector<std::int64_t>(4, 1));
  std::vector<std::pair<std::string, std::string>> plans;
  for (const std::string& schedule : schedule_names()) {
    const Plan plan = schedule == "interleaved"
                          ? oracle::interleaved_plan(model, even, {2, 2}, {2, 2}, 1, 3)
                      : schedule == "dip" ? oracle::colocated_plan(model, even, 2, 1, 3)
                                          : even_plan(model, {2, 2}, 2, 3);
    plans.emplace_back(schedule, base.write(schedule + ".json", to_json(plan).dump()).string());
  }
  constexpr int kSteps = oracle::kSanitized ? 3 : 10;
  std::vector<double> expected;
  for (const auto& [schedule, plan] : plans) {
    RunFolder run;
    run.config.steps = kSteps;
    run.config.plan.file = plan;
    run.config.plan.schedule = schedule;
    run.config.execution.trace_step = 1;
    train_now(run.config);
    const std::vector<double> losses = losses_of(run);
    ASSERT_EQ(std::ssize(losses), kSteps);
    expected = expected.empty() ? losses : expected;
    for (std::size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses[step], expected[step], 1e-5) << schedule << " step " << step;
    }
    for (const char* name : {"trace_predicted.json", "trace_measured.json"}) {
      EXPECT_EQ(read_file(run.output(name)).find("\"backward_weight\"") != std::string::npos,
                splits_backward(schedule))
          << schedule << " " << name;
    }
  }
  if (!oracle::kSanitized) {
    EXPECT_LT(expected.back(), 0.9 * expected.front());
  }
}

TEST(Train, RepeatsItselfBitwise) {
  RunFolder run;
  run.config.plan.replicas = 2;
  train_now(run.config);
  const Tensors first = weights_of(run);
  const std::vector<double> losses = losses_of(run);
  run.config.checkpoint.resume = kResumeNever;
  train_now(run.config);
  EXPECT_EQ(losses_of(run), losses);
  for (const auto& [name, tensor] : weights_of(run)) {
    EXPECT_TRUE(at::equal(tensor, first.at(name))) << name;
  }
}

TEST(Train, FinishesTheStepWhenInterruptedAndKeepsItsWeights) {
  RunFolder run;
  run.config.steps = 50;
  const TrainResult result = train_now(run.config, /*interrupt=*/true);
  EXPECT_TRUE(result.interrupted);
  ASSERT_EQ(result.steps, 1);
  EXPECT_EQ(std::ssize(losses_of(run)), result.steps);
  EXPECT_FALSE(result.validation_loss.has_value()) << "it is not the end";
  const Tensors stopped = weights_of(run);
  // The warm-up is the same in a run that ends there by itself, so its weights are too.
  run.config.steps = result.steps;
  run.config.checkpoint.resume = kResumeNever;
  const TrainResult whole = train_now(run.config);
  EXPECT_FALSE(whole.interrupted);
  for (const auto& [name, tensor] : weights_of(run)) {
    EXPECT_TRUE(at::equal(tensor, stopped.at(name))) << name;
  }
  EXPECT_TRUE(whole.validation_loss.has_value());
}

TEST(Train, StopsAfterExactlyOneStepOnASingleRank) {
  RunFolder run;
  run.config.steps = 50;
  run.config.plan.single_lane = true;
  EXPECT_EQ(train_now(run.config, /*interrupt=*/true).steps, 1);
}

TEST(Train, ValidatesWhenAskedAndAtTheEnd) {
  RunFolder run;
  run.config.steps = 5;
  run.config.plan.replicas = 2;
  const TrainResult plain = train_now(run.config);
  const std::vector<double> losses = losses_of(run);
  run.config.validation.every = 2;
  run.config.checkpoint.resume = kResumeNever;
  const TrainResult result = train_now(run.config);
  EXPECT_EQ(losses_of(run), losses) << "validation changed the training";
  std::vector<std::int64_t> steps;
  double last = 0;
  for (const Json& line : tiny::metrics_of(run.output("metrics.jsonl"))) {
    if (line.contains("validation_loss")) {
      steps.push_back(line["step"].get<std::int64_t>());
      last = line["validation_loss"].get<double>();
    }
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 4, 5}));
  ASSERT_TRUE(result.validation_loss.has_value());
  EXPECT_EQ(*result.validation_loss, last);
  EXPECT_EQ(result.validation_loss, plain.validation_loss);
}

// The pipeline's forward against the model in one piece, on the same weights.
TEST(Train, ValidationLossIsThatOfTheWrittenWeights) {
  RunFolder run;
  run.config.plan.stages = {{"vision", 2}, {"llm", 2}};
  const TrainResult result = train_now(run.config);
  const ModelSpec model = run_model(run.config);
  const EvaluateResult judged = evaluate(
      model, result.weights, load_data_set(run.config.data.validation, model), EvaluateOptions{});
  ASSERT_EQ(judged.answers.size(), 5U);
  EXPECT_NEAR(*result.validation_loss, judged.loss, 1e-5 * judged.loss);
}

TEST(Train, RunsWithoutValidationData) {
  RunFolder run;
  run.config.data.validation.clear();
  run.config.steps = 2;
  run.config.validation.every = 1;
  EXPECT_FALSE(train_now(run.config).validation_loss.has_value());
  EXPECT_EQ(tiny::metrics_of(run.output("metrics.jsonl")).size(), 2U);
}

TEST(Train, WritesWhatTheRunWasMadeOf) {
  RunFolder run;
  run.config.steps = 3;
  run.config.execution.trace_step = 1;
  train_now(run.config);
  const RunSetup setup = prepare_run(run.config);
  EXPECT_EQ(to_json(read_run_config(run.output("config.json"), {})), to_json(run.config));
  EXPECT_EQ(digest(read_plan(run.output("plan.json"), setup.model)), digest(setup.plan));
  EXPECT_EQ(digest(model_from_json(read_json_file(run.output("model.json")), "model.json")),
            digest(setup.model));
  for (const char* name : {"trace_predicted.json", "trace_measured.json"}) {
    const std::string trace = read_file(run.output(name));
    EXPECT_TRUE(parse_json(trace, name).contains("traceEvents")) << name;
    EXPECT_NE(trace.find("train/s"), std::string::npos) << name << " names no sample";
  }
}

TEST(Train, PacedRunsTakeTheTimeAndWriteNoWeights) {
  RunFolder run;
  run.config.execution.paced = true;
  const TrainResult result = train_now(run.config);
  EXPECT_EQ(result.steps, 4);
  EXPECT_GE(result.median_step_s, result.median_predicted_s);
  EXPECT_TRUE(result.weights.empty());
  EXPECT_FALSE(std::filesystem::exists(run.output("weights.safetensors")));
  EXPECT_FALSE(result.validation_loss.has_value());
}

// Planned for samples of three large images, run on those of the folder, which have two at most.
TEST(Train, WarnsOnceWhenWorkLeavesThePlan) {
  RunFolder run;
  oracle::TarWriter tar;
  for (int i = 0; i < 12; ++i) {
    for (int image = 0; image < 3; ++image) {
      tar.add(concat("p", i, ".", image, ".png"), oracle::flat_png(32, 32, 9, 9, 9));
    }
    tar.add(concat("p", i, ".json"), R"({"question": "?", "answer": "red"})");
  }
  const ModelSpec model = run_model(run.config);
  const Profile profile = analytic_profile(model, device_model("cpu-2core"));
  run.config.plan.index = run.make_index("planned", tar.archive());
  run.config.plan.profile = run.write("profile.json", to_json(profile).dump()).string();
  const std::vector<SampleWork> planned =
      batch_work(model, read_index(run.config.plan.index).samples);
  const std::vector<int> split = share_lanes(total_work(work_times(model, profile, planned)), 6);
  run.config.plan.stages = {{"vision", split[0]}, {"llm", split[1]}};
  run.config.steps = 100;
  run.config.execution.paced = true;
  testing::internal::CaptureStderr();
  train_now(run.config);
  const std::string shown = testing::internal::GetCapturedStderr();
  std::vector<std::string> warnings;
  bool left = false;
  for (const Json& line : tiny::metrics_of(run.output("metrics.jsonl"))) {
    ASSERT_TRUE(line.contains("drift")) << line.dump();
    EXPECT_EQ(line["drift"]["lane_shares"].size(), 2U);
    if (line["drift"].contains("warning")) {
      warnings.push_back(line["drift"]["warning"].get<std::string>());
      EXPECT_FALSE(left) << "not again";
    }
    EXPECT_EQ(line["drift"]["left"].get<bool>(), !warnings.empty());
    left = line["drift"]["left"].get<bool>();
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(shown, concat("entrain: warning: ", warnings[0], "\n"));
  EXPECT_NE(warnings[0].find("llm needs"), std::string::npos) << warnings[0];
  run.config.plan.index.clear();
  run.config.plan.profile.clear();
  run.config.steps = 1;
  run.config.checkpoint.resume = kResumeNever;
  train_now(run.config);
  EXPECT_FALSE(tiny::metrics_of(run.output("metrics.jsonl"))[0].contains("drift"));
}

TEST(Train, StopsWhenTheLossIsNoNumber) {
  RunFolder run;
  run.config.plan.replicas = 2;
  run.config.optimizer.learning_rate = std::numeric_limits<float>::max();
  run.config.optimizer.warmup_steps = 0;
  const std::string message = error_of<SystemFailure>([&] { train_now(run.config); });
  EXPECT_NE(message.find("step 1: loss"), std::string::npos) << message;
  EXPECT_NE(message.find("lower optimizer.learning_rate"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(run.output("weights.safetensors")));
}

TEST(Train, LeavesEarlierWeightsAloneWhenItFails) {
  RunFolder run;
  train_now(run.config);
  const std::string before = read_file(run.output("weights.safetensors"));
  // The shard is cut behind the first samples, after the index was made.
  const std::filesystem::path shard = run.path("train-000000.tar");
  std::filesystem::resize_file(shard, 4096);
  run.config.steps = 8;
  const std::string message = error_of<InvalidInput>([&] { train_now(run.config); });
  EXPECT_NE(message.find("rank "), std::string::npos) << message;
  EXPECT_NE(message.find("train-000000.tar"), std::string::npos) << message;
  EXPECT_EQ(read_file(run.output("weights.safetensors")), before);
}

}  // namespace
}  // namespace entrain::engine
