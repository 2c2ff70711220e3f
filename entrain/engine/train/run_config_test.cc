#include "entrain/engine/train/run_config.h"

#include <fstream>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

constexpr const char* kMinimal = R"(
output = "runs/x"
steps = 100
model = "m.toml"
[data]
train = "train.csv"
global_batch = 8
)";

RunConfig parse(const std::string& text) {
  return run_config_from_json(parse_toml(text, "run.toml"), "run.toml");
}

std::string message_of(const std::string& text) {
  try {
    parse(text);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RunConfig, FillsDefaults) {
  const RunConfig config = parse(kMinimal);
  EXPECT_EQ(config.steps, 100);
  EXPECT_EQ(config.plan.policy, "entrain");
  EXPECT_EQ(config.plan.schedule, "1f1b");
  EXPECT_EQ(config.execution.trace_step, 3);
}

TEST(RunConfig, RoundTripsThroughJson) {
  const RunConfig config = parse(std::string(kMinimal) +
                                 "[plan]\nreplicas = 2\nindex = \"planned.csv\"\n"
                                 "[plan.stages]\nvision = 2\n"
                                 "[optimizer]\nlearning_rate = 0.01\n"
                                 "[checkpoint]\nevery_steps = 7\nkeep = 3\nresume = \"never\"\n"
                                 "folder = \"elsewhere\"\n");
  const RunConfig again = run_config_from_json(to_json(config), "config.json");
  EXPECT_EQ(to_json(again), to_json(config));
  EXPECT_EQ(again.plan.stages.at("vision"), 2);
  EXPECT_EQ(again.plan.index, "planned.csv");
  EXPECT_EQ(again.checkpoint.every_steps, 7);
  EXPECT_EQ(again.checkpoint.keep, 3);
  EXPECT_EQ(again.checkpoint.resume, "never");
  EXPECT_EQ(checkpoint_folder(again), "elsewhere");
}

TEST(RunConfig, IsAsLongAsStepsOrEpochsSay) {
  const std::string rest =
      "output = \"x\"\nmodel = \"m\"\n[data]\ntrain = \"t\"\nglobal_batch = 8\n";
  const RunConfig config = parse("epochs = 3\n" + rest);
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.steps, 0);
  RunConfig resolved = config;
  resolved.steps = 21;  // as prepare_run() does
  EXPECT_EQ(to_json(resolved), to_json(config));
  EXPECT_EQ(run_config_from_json(to_json(resolved), "config.json").epochs, 3);
  EXPECT_NE(message_of(rest).find("steps: missing; give steps or epochs"), std::string::npos);
  EXPECT_NE(message_of("setps = 3\n" + rest).find("there is a key 'setps', did you mean 'steps'?"),
            std::string::npos);
  EXPECT_NE(message_of("steps = 1\nepochs = 1\n" + rest).find("given beside epochs"),
            std::string::npos);
  EXPECT_NE(message_of("epochs = 0\n" + rest).find("epochs: 0 is out of range"), std::string::npos);
  EXPECT_NE(message_of("epochs = 1.5\n" + rest).find("epochs"), std::string::npos);
}

TEST(RunConfig, TakesTheOverriddenLength) {
  const std::string path = ::testing::TempDir() + "length.toml";
  std::ofstream(path) << kMinimal;
  EXPECT_EQ(read_run_config(path, {"epochs=2"}).epochs, 2);
  EXPECT_EQ(read_run_config(path, {"epochs=2"}).steps, 0);
  EXPECT_EQ(read_run_config(path, {"steps=7"}).steps, 7);
  EXPECT_THROW(read_run_config(path, {"steps=7", "epochs=2"}), InvalidInput);
}

TEST(RunConfig, NamesTheLastBatchAndIgnoredMedia) {
  EXPECT_EQ(parse(kMinimal).data.last_batch, "drop");
  const RunConfig config =
      parse(concat(kMinimal, "last_batch = \"keep\"\nignore_modality = [\"audio\"]\n"));
  const RunConfig again = run_config_from_json(to_json(config), "config.json");
  EXPECT_EQ(again.data.last_batch, kKeepLastBatch);
  EXPECT_EQ(again.data.ignore_modality, std::vector<std::string>{"audio"});
  for (const char* line : {"last_batch = \"shrink\"", "ignore_modality = [\"sound\"]"}) {
    const std::string message = message_of(concat(kMinimal, line, "\n"));
    EXPECT_NE(message.find("given; allowed: "), std::string::npos) << message;
  }
}

TEST(RunConfig, HoldsNoSamplesUnlessAsked) {
  EXPECT_EQ(parse(kMinimal).data.hold, 1);
  EXPECT_EQ(parse(concat(kMinimal, "hold = 0\n")).data.hold, 1);
  const RunConfig config = parse(concat(kMinimal, "hold = 16\n"));
  EXPECT_EQ(run_config_from_json(to_json(config), "config.json").data.hold, 16);
  for (const char* line : {"hold = -1", "hold = 257"}) {
    const std::string message = message_of(concat(kMinimal, line, "\n"));
    EXPECT_NE(message.find("data.hold"), std::string::npos) << message;
    EXPECT_NE(message.find("256 (0 or 1: off)"), std::string::npos) << message;
  }
}

TEST(RunConfig, ChecksTheCheckpointTable) {
  const RunConfig config = parse(kMinimal);
  EXPECT_EQ(config.checkpoint.every_steps, 0);
  EXPECT_EQ(config.checkpoint.resume, "auto");
  EXPECT_EQ(checkpoint_folder(config), "runs/x/checkpoints");
  EXPECT_EQ(config.checkpoint.every_minutes, 15);
  for (const char* line : {"every_steps = -1",
                           "keep = 0",
                           "resume = \"\"",
                           "evry_steps = 1",
                           "every_minutes = -1",
                           "every_minutes = nan",
                           "every_minutes = inf"}) {
    const std::string message = message_of(concat(kMinimal, "[checkpoint]\n", line, "\n"));
    EXPECT_NE(message.find("checkpoint."), std::string::npos) << message;
  }
}

TEST(RunConfig, ChecksMemoryByDefault) {
  EXPECT_EQ(parse(kMinimal).execution.memory_check, "stop");
  const std::string warn = concat(kMinimal, "[execution]\nmemory_check = \"warn\"\n");
  EXPECT_EQ(run_config_from_json(to_json(parse(warn)), "again").execution.memory_check, "warn");
  EXPECT_NE(message_of(concat(kMinimal, "[execution]\nmemory_check = \"off\"\n"))
                .find("execution.memory_check: 'off' given; allowed: stop, warn"),
            std::string::npos);
}

TEST(RunConfig, StopsAtFaultsByDefault) {
  const RunConfig config = parse(kMinimal);
  EXPECT_EQ(config.faults.on_bad_sample, "stop");
  EXPECT_EQ(config.faults.on_nan, "stop");
  EXPECT_EQ(parse(concat(kMinimal, "[faults]\non_nan = \"skip-step\"\n")).faults.on_nan, kSkipStep);
  EXPECT_NE(message_of(concat(kMinimal, "[faults]\non_nan = \"skip\"\n"))
                .find("faults.on_nan: 'skip' given; allowed: stop, skip-step"),
            std::string::npos);
}

TEST(RunConfig, ExportsNoMetricsUnlessAsked) {
  const RunConfig plain = parse(kMinimal);
  EXPECT_FALSE(plain.metrics.tensorboard);
  EXPECT_EQ(plain.metrics.prometheus, "");
  const std::string table = "[metrics]\ntensorboard = true\nprometheus = \"run.prom\"\n";
  const RunConfig config = parse(kMinimal + table);
  const RunConfig again = run_config_from_json(to_json(config), "config.json");
  EXPECT_TRUE(again.metrics.tensorboard);
  EXPECT_EQ(again.metrics.prometheus, "run.prom");
  EXPECT_NE(message_of(std::string(kMinimal) + "[metrics]\ntensorbord = true\n")
                .find("metrics.tensorbord: unknown key, did you mean 'tensorboard'?"),
            std::string::npos);
}

TEST(RunConfig, RefusesUnknownKeysWithSuggestion) {
  const std::string message = message_of(std::string(kMinimal) + "[optimizer]\nlearning_rat = 1\n");
  EXPECT_NE(message.find("run.toml"), std::string::npos) << message;
  EXPECT_NE(message.find("optimizer.learning_rat"), std::string::npos) << message;
  EXPECT_NE(message.find("learning_rate"), std::string::npos) << message;
}

TEST(RunConfig, GivesModulesTheirOwnRates) {
  const RunConfig config = parse(concat(kMinimal,
                                        "[optimizer]\nlearning_rate = 0.01\nwarmup_steps = 5\n"
                                        "[optimizer.modules.vision]\nlearning_rate = 0.002\n"
                                        "warmup_steps = 50\nweight_decay = 0.0\n"
                                        "[optimizer.modules.llm]\nfinal_fraction = 1.0\n"));
  const OptimizerConfig vision = optimizer_of(config.optimizer, "vision");
  EXPECT_EQ(vision.learning_rate, 0.002);
  EXPECT_EQ(vision.warmup_steps, 50);
  EXPECT_EQ(vision.weight_decay, 0);
  EXPECT_EQ(vision.final_fraction, 0.1);
  const OptimizerConfig llm = optimizer_of(config.optimizer, "llm");
  EXPECT_EQ(llm.learning_rate, 0.01);
  EXPECT_EQ(llm.warmup_steps, 5);
  EXPECT_EQ(llm.final_fraction, 1);
  EXPECT_EQ(optimizer_of(config.optimizer, "projector").learning_rate, 0.01);
  EXPECT_EQ(to_json(run_config_from_json(to_json(config), "config.json")), to_json(config));
  for (const char* line : {"learning_rate = 0", "warmup_steps = -1", "beta1 = 0.5"}) {
    const std::string message =
        message_of(concat(kMinimal, "[optimizer.modules.vision]\n", line, "\n"));
    EXPECT_NE(message.find("optimizer.modules.vision"), std::string::npos) << message;
  }
}

TEST(RunConfig, EndsWithWholeUpdates) {
  EXPECT_EQ(parse(concat(kMinimal, "[optimizer]\nupdate_every = 4\n")).optimizer.update_every, 4);
  const std::string steps = message_of(concat(kMinimal, "[optimizer]\nupdate_every = 3\n"));
  EXPECT_NE(steps.find("steps = 100; allowed: multiples of optimizer.update_every = 3"),
            std::string::npos)
      << steps;
  const std::string every = message_of(
      concat(kMinimal, "[optimizer]\nupdate_every = 4\n[checkpoint]\nevery_steps = 6\n"));
  EXPECT_NE(every.find("checkpoint.every_steps = 6"), std::string::npos) << every;
  EXPECT_NE(message_of(concat(kMinimal, "[optimizer]\nupdate_every = 0\n")).find("update_every"),
            std::string::npos);
}

TEST(RunConfig, TakesOneKindOfValidation) {
  EXPECT_EQ(parse(concat(kMinimal, "validation_fraction = 0.25\n")).data.validation_fraction, 0.25);
  for (const char* lines :
       {"validation_fraction = 1.0", "validation_fraction = 0.1\nvalidation = \"val.csv\""}) {
    const std::string message = message_of(concat(kMinimal, lines, "\n"));
    EXPECT_NE(message.find("data.validation_fraction"), std::string::npos) << message;
  }
}

TEST(RunConfig, KnowsTwoDevices) {
  EXPECT_EQ(parse(kMinimal).execution.device, "cpu");
  const RunConfig config = parse(concat(kMinimal, "[execution]\ndevice = \"cuda\"\n"));
  EXPECT_EQ(config.execution.device, "cuda");
  EXPECT_EQ(to_json(config)["execution"]["device"], "cuda");
  EXPECT_EQ(config.execution.device_messages, "host");
  const std::string nccl = "[execution]\ndevice_messages = \"nccl\"\n";
  EXPECT_EQ(parse(concat(kMinimal, nccl, "device = \"cuda\"\n")).execution.device_messages, "nccl");
  EXPECT_NE(message_of(concat(kMinimal, nccl)).find("device_messages"), std::string::npos);
  const std::string message = message_of(concat(kMinimal, "[execution]\ndevice = \"cuda:1\"\n"));
  EXPECT_NE(message.find("execution.device"), std::string::npos) << message;
  EXPECT_NE(message.find("cpu"), std::string::npos) << message;
}

TEST(RunConfig, KnowsTwoPrecisions) {
  EXPECT_EQ(parse(kMinimal).execution.precision, Precision::kFp32);
  const RunConfig config = parse(concat(kMinimal, "[execution]\nprecision = \"bf16\"\n"));
  EXPECT_EQ(config.execution.precision, Precision::kBf16);
  EXPECT_EQ(to_json(config)["execution"]["precision"], "bf16");
  const std::string message = message_of(concat(kMinimal, "[execution]\nprecision = \"fp16\"\n"));
  EXPECT_NE(message.find("execution.precision"), std::string::npos) << message;
  EXPECT_NE(message.find("'fp16' given; allowed: \"fp32\", \"bf16\""), std::string::npos)
      << message;
}

TEST(RunConfig, RefusesValuesOutOfRange) {
  EXPECT_EQ(parse(kMinimal).execution.stop_seconds, 20);
  EXPECT_NE(message_of(std::string(kMinimal) + "[execution]\nstop_seconds = -1\n")
                .find("execution.stop_seconds"),
            std::string::npos);
  EXPECT_EQ(message_of(std::string("output = \"\"\n") + (kMinimal + 19)),
            "run.toml: output: '' given; the run needs a folder of its own");
  EXPECT_EQ(message_of(std::string("output = \"/dev/null\"\n") + (kMinimal + 19)),
            "run.toml: output: '/dev/null' is not a folder");
  EXPECT_NE(message_of(std::string(kMinimal) + "[optimizer]\nbeta1 = 1.0\n").find("beta1"),
            std::string::npos);
  EXPECT_NE(message_of(std::string(kMinimal) + "[plan]\nreplicas = 0\n").find("replicas"),
            std::string::npos);
  EXPECT_NE(message_of(std::string(kMinimal) + "[plan.stages]\nvision = 0\n").find("vision"),
            std::string::npos);
}

TEST(RunConfig, SetOverridesTheFile) {
  const auto path = std::filesystem::path(testing::TempDir()) / "run_config_test.toml";
  std::ofstream(path) << kMinimal;
  const RunConfig config =
      read_run_config(path, {"steps=7", "plan.policy=sequential", "optimizer.clip_norm=0.5"});
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.plan.policy, "sequential");
  EXPECT_DOUBLE_EQ(config.optimizer.clip_norm, 0.5);
  EXPECT_THROW(read_run_config(path, {"steps"}), InvalidInput);
  const auto refused = [&](const std::string& assignment) {
    return oracle::error_of<InvalidInput>([&] { read_run_config(path, {"seed=1", assignment}); });
  };
  for (const char* given : {"optimzer.learning_rate=3", "optimizer.clip_norm=-1"}) {
    EXPECT_NE(refused(given).find(concat("(given by --set ", given, ")")), std::string::npos)
        << refused(given);
  }
}

}  // namespace
}  // namespace entrain::engine
