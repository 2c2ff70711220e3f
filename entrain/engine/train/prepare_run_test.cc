#include "entrain/engine/train/prepare_run.h"

#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/engine/train/data_set.h"
#include "entrain/engine/train/prepared_step.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::RunFolder;

class RunSetupTest : public testing::Test {
 protected:
  // prepare_run() must refuse, and say all of `parts`.
  void expect_refused(const std::vector<std::string>& parts) const {
    const std::string message = error_of<InvalidInput>([&] { prepare_run(run_.config); });
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    }
  }

  // Writes the model file with `from` replaced.
  void change_model(const std::string& from, const std::string& to) const {
    std::string text = tiny::kRunModel;
    ASSERT_NE(text.find(from), std::string::npos);
    run_.write("model.toml", text.replace(text.find(from), from.size(), to));
  }

  // Writes the training index with something changed.
  void change_index(const std::function<void(Index&)>& change) const {
    Index index = read_index(run_.config.data.train);
    change(index);
    write_index(index, run_.config.data.train);
  }

  RunFolder run_;
};

TEST_F(RunSetupTest, HoldsModelPlanProfileAndData) {
  run_.config.freeze = {"vision"};
  run_.config.plan.replicas = 2;
  run_.config.plan.stages = {{"llm", 2}};
  run_.config.plan.schedule = "gpipe";
  run_.config.plan.policy = "lpt-2d";
  run_.config.plan.max_deferral = 1;
  run_.config.plan.chunks = true;
  run_.config.plan.bytes_per_lane_mib = 5;
  const RunSetup setup = prepare_run(run_.config);
  EXPECT_TRUE(setup.model.encoders[0].frozen);
  EXPECT_EQ(setup.plan.replicas, 2);
  EXPECT_EQ(setup.plan.num_slots, 3);
  EXPECT_EQ(setup.plan.num_lanes(), 3);
  EXPECT_EQ(setup.plan.policy, "lpt-2d");
  EXPECT_EQ(setup.plan.schedule, "gpipe");
  EXPECT_EQ(setup.plan.limits.max_deferral, 1);
  EXPECT_TRUE(setup.plan.limits.chunks);
  EXPECT_EQ(setup.plan.limits.evaluations, 20);
  EXPECT_EQ(setup.plan.limits.bytes_per_lane, 5 << 20);
  EXPECT_EQ(setup.profile.source, "analytic");
  ASSERT_EQ(setup.train.work.size(), 12U);
  EXPECT_EQ(setup.train.work[3], sample_work(setup.model, setup.train.index.samples[3]));
  EXPECT_EQ(setup.validation.work.size(), 5U);
}

TEST_F(RunSetupTest, PutsAllStagesOnASingleLane) {
  run_.config.plan.stages = {{"vision", 2}, {"llm", 2}};
  run_.config.plan.single_lane = true;
  const RunSetup setup = prepare_run(run_.config);
  ASSERT_EQ(setup.plan.num_lanes(), 1);
  EXPECT_EQ(setup.plan.lanes[0].size(), 4U);
}

TEST_F(RunSetupTest, TakesThePlanOfAFileButItsPolicyAndSchedule) {
  const ModelSpec model = run_model(run_.config);
  Plan plan = even_plan(model, {2, 1}, 2, 5);
  plan.policy = "sequential";
  plan.limits.max_deferral = 2;
  run_.config.plan.file = run_.write("plan.json", to_json(plan).dump()).string();
  run_.config.plan.replicas = 1;
  run_.config.plan.schedule = "gpipe";
  const RunSetup setup = prepare_run(run_.config);
  EXPECT_EQ(setup.plan.replicas, 2);
  EXPECT_EQ(setup.plan.num_slots, 5);
  EXPECT_EQ(setup.plan.lanes, plan.lanes);
  EXPECT_EQ(setup.plan.limits.max_deferral, 2);
  EXPECT_EQ(setup.plan.policy, "entrain");
  EXPECT_EQ(setup.plan.schedule, "gpipe");
}

TEST_F(RunSetupTest, TakesEverySchedule) {
  for (const std::string& schedule : schedule_names()) {
    run_.config.plan.schedule = schedule;
    if (schedule == "interleaved" || schedule == "dip") {
      expect_refused({"plan.schedule: '" + schedule + "' cannot run this plan: it needs"});
    } else {
      EXPECT_EQ(prepare_run(run_.config).plan.schedule, schedule);
    }
  }
}

TEST_F(RunSetupTest, RefusesPlansItCannotRun) {
  run_.config.plan.stages = {{"vison", 1}};
  expect_refused({"plan.stages", "no module 'vison'", "did you mean 'vision'"});
  run_.config.plan.stages = {{"vision", 7}};
  expect_refused({"vision", "7"});
  run_.config.plan.stages = {};
  run_.config.plan.policy = "entrian";
  expect_refused({"plan.policy: unknown policy 'entrian'", "did you mean 'entrain'", "lpt-2d"});
  run_.config.plan.policy = "entrain";
  run_.config.plan.schedule = "1f2b";
  expect_refused({"plan.schedule: unknown schedule '1f2b'", "did you mean '1f1b'", "zb-h1"});
  run_.config.plan.schedule = "1f1b";
  Plan plan = even_plan(run_model(run_.config), {1, 1}, 1, 3);
  plan.modules[1].context_parallel = 2;
  run_.config.plan.file = run_.write("plan.json", to_json(plan).dump()).string();
  expect_refused({"plan.json", "module 'llm' has context_parallel 2", "runs 1"});
  plan.modules[1].context_parallel = 1;
  plan.modules[1].tensor_parallel = 2;
  run_.write("plan.json", to_json(plan).dump());
  expect_refused({"plan.json", "'llm' has tensor_parallel 2", "num_kv_heads 1"});
  run_.config.plan.file = "";
  run_.config.plan.tensor_parallel = {{"vision", 4}};
  expect_refused({"'vision' has tensor_parallel 4", "num_heads 2"});
  run_.config.plan.tensor_parallel = {{"lm", 2}};
  expect_refused({"plan.tensor_parallel", "no module 'lm'", "did you mean 'llm'"});
  run_.config.plan.tensor_parallel = {{"vision", 2}};
  run_.config.plan.single_lane = true;
  expect_refused({"has to be equal within a lane"});
}

TEST_F(RunSetupTest, NamesTheKeyOfAFileThatIsWrong) {
  const RunConfig good = run_.config;
  const auto refused = [&](std::string& value, const std::string& key) {
    value = run_.path("nope").string();
    expect_refused({key + ": ", "nope", "does not exist"});
    run_.config = good;
  };
  refused(run_.config.data.train, "data.train");
  refused(run_.config.data.validation, "data.validation");
  refused(run_.config.model_file, "model");
  refused(run_.config.plan.file, "plan.file");
  refused(run_.config.plan.profile, "plan.profile");
  refused(run_.config.plan.index, "plan.index");
}

TEST_F(RunSetupTest, MissesFilesOfSamplesBeforeTheFirstStep) {
  std::string shard;
  change_index([&](Index& index) {
    shard = located(index, *index.samples.back().location).shard;
    std::filesystem::remove(shard);
  });
  expect_refused({"data.train: ", "is in '" + shard + "', which does not exist"});
  RunConfig paced = run_.config;
  paced.execution.paced = true;
  EXPECT_NO_THROW(prepare_run(paced));
  RunConfig fed = run_.config;
  fed.data.feed = {"ipc://" + run_.path("feed").string()};
  EXPECT_NO_THROW(prepare_run(fed));
}

TEST_F(RunSetupTest, WarnsOfBytesForAModelWithATokenizer) {
  const Index index = read_index(run_.config.data.train);
  EXPECT_EQ(bytes_warning(index, run_.path("")), "");
  run_.write("tokenizer.json", "{}");
  EXPECT_NE(bytes_warning(index, run_.path("")).find("are bytes"), std::string::npos);
}

TEST_F(RunSetupTest, RefusesAPlanOfAnotherModel) {
  const Plan plan = even_plan(run_model(run_.config), {1, 1}, 1, 3);
  run_.config.plan.file = run_.write("plan.json", to_json(plan).dump()).string();
  change_model("[llm]\nnum_layers = 2", "[llm]\nnum_layers = 3");
  expect_refused({"plan.json", "llm"});
}

TEST_F(RunSetupTest, TakesAProfileOfItsModelAlone) {
  Profile profile = analytic_profile(run_model(run_.config), device_model("cpu-2core"));
  profile.device = "the test's own";
  run_.config.plan.profile = run_.write("profile.json", to_json(profile).dump()).string();
  EXPECT_EQ(prepare_run(run_.config).profile.device, "the test's own");
  change_model("intermediate = 24", "intermediate = 28");
  expect_refused({"profile.json"});
}

TEST_F(RunSetupTest, RefusesAVocabularyWithoutRoomForTheTokenizer) {
  change_model("vocab_size = 264", "vocab_size = 256");
  expect_refused({"llm.vocab_size 256", "needs 264"});
}

TEST_F(RunSetupTest, RefusesBatchesThatDoNotFitTheData) {
  run_.config.data.global_batch = 13;
  expect_refused({"train.csv", "12 samples", "data.global_batch is 13"});
  run_.config.data.global_batch = 2;
  run_.config.plan.replicas = 3;
  expect_refused({"data.global_batch is 2", "3 replicas", "samples >= global_batch >= replicas"});
}

TEST_F(RunSetupTest, RefusesEstimatedLengths) {
  change_index([](Index& index) {
    index.text_digest.clear();
    for (SampleSizes& sample : index.samples) {
      sample.prompt_tokens.reset();
      sample.response_tokens.reset();
    }
  });
  expect_refused({"train.csv", "estimated lengths", "entrain index"});
}

TEST_F(RunSetupTest, RefusesAnIndexOfAnotherTokenizer) {
  change_index([](Index& index) { index.text_digest = "abc"; });
  expect_refused({"train.csv", "another tokenizer or template", "abc", text_digest()});
}

TEST_F(RunSetupTest, RefusesSamplesItCannotRead) {
  change_index(
      [](Index& index) { index.samples[5].videos = {{.seconds = 1.5, .frames = {}, .size = {}}}; });
  expect_refused({"train.csv", "sample 'train/s5' has video"});
  change_index([](Index& index) {
    index.samples[5].videos.clear();
    index.samples[7].location.reset();
  });
  expect_refused({"sample 'train/s7' has no shard"});
}

TEST_F(RunSetupTest, RefusesSamplesLongerThanTheModelTakes) {
  // s3 is the longest: two images of 16 features at most.
  change_model("max_tokens = 256", "max_tokens = 20");
  expect_refused({"sample 'train/s", "max_tokens = 20", "--too-long"});
}

TEST_F(RunSetupTest, PreparesAStepFromSeedAndStepAlone) {
  run_.config.plan.replicas = 2;
  const RunSetup setup = prepare_run(run_.config);
  const PreparedStep step = prepare_step(setup, 5);
  const PreparedStep again = prepare_step(prepare_run(run_.config), 5);
  EXPECT_EQ(step.batch, GlobalBatchSampler(12, 6, 3).batch(5));
  EXPECT_EQ(step.batch, again.batch);
  EXPECT_EQ(digest(step.assignment), digest(again.assignment));
  EXPECT_TRUE(step.program == again.program);
  EXPECT_NE(step.batch, prepare_step(setup, 6).batch);
}

TEST_F(RunSetupTest, StepsCountTheirTokensAndNameTheirSamples) {
  const RunSetup setup = prepare_run(run_.config);
  const PreparedStep step = prepare_step(setup, 2);
  ASSERT_EQ(step.batch.size(), 6U);
  std::int64_t targets = 0;
  std::int64_t llm_tokens = 0;
  std::int64_t encoder_tokens = 0;
  for (std::size_t i = 0; i < step.batch.size(); ++i) {
    const auto sample = static_cast<std::size_t>(step.batch[i]);
    EXPECT_EQ(step.sample_ids[i], setup.train.index.samples[sample].id);
    EXPECT_EQ(step.costs.work[i], setup.train.work[sample]);
    targets += setup.train.work[sample].target_tokens;
    llm_tokens += setup.train.work[sample].llm_tokens;
    for (const SegmentWork& segment : setup.train.work[sample].segments[0]) {
      encoder_tokens += segment.tokens;
    }
  }
  EXPECT_EQ(step.target_tokens, targets);
  EXPECT_EQ(step.llm_tokens, llm_tokens);
  EXPECT_EQ(step.encoder_tokens, encoder_tokens);
  EXPECT_GT(step.predicted.makespan.count(), 0);
  EXPECT_TRUE(step.predicted.events.empty());
  EXPECT_NO_THROW(validate_assignment(step.assignment, setup.plan, step.costs));
}

TEST_F(RunSetupTest, ValidationLeavesNoSampleOutInSilence) {
  run_.config.plan.replicas = 2;
  run_.config.data.global_batch = 2;
  run_.config.validation.samples = 5;
  std::vector<std::size_t> sizes;
  for (const PreparedStep& step : prepare_validation(prepare_run(run_.config))) {
    sizes.push_back(step.batch.size());
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 3}));
  run_.config.validation.samples = 1;
  const RunSetup setup = prepare_run(run_.config);
  EXPECT_TRUE(prepare_validation(setup).empty());
  EXPECT_NE(join(setup.warnings).find("no validation: 1 sample for the plan's 2 replicas"),
            std::string::npos);
}

TEST_F(RunSetupTest, WarnsOfValidationSamplesThatAreTrainedOn) {
  EXPECT_EQ(join(prepare_run(run_.config).warnings).find("training samples too"),
            std::string::npos);
  run_.config.data.validation = run_.config.data.train;
  EXPECT_NE(join(prepare_run(run_.config).warnings)
                .find("12 of the 12 validation samples are training samples too ('train/s0'"),
            std::string::npos);
}

TEST_F(RunSetupTest, ValidationWalksTheIndexFromItsHead) {
  run_.config.data.global_batch = 3;
  const auto batches_of = [](const RunConfig& config) {
    std::vector<std::vector<int>> batches;
    for (const PreparedStep& step : prepare_validation(prepare_run(config))) {
      batches.push_back(step.batch);
      EXPECT_EQ(step.assignment.policy, "sequential");
    }
    return batches;
  };
  using Batches = std::vector<std::vector<int>>;
  EXPECT_EQ(batches_of(run_.config), (Batches{{0, 1, 2}, {3, 4}}));
  run_.config.validation.samples = 2;
  EXPECT_EQ(batches_of(run_.config), (Batches{{0, 1}}));
  // Two replicas cannot share the one sample that is left of four, so it goes with those before.
  run_.config.validation.samples = 4;
  run_.config.plan.replicas = 2;
  EXPECT_EQ(batches_of(run_.config), (Batches{{0, 1, 2, 3}}));
  run_.config.data.validation.clear();
  EXPECT_TRUE(batches_of(run_.config).empty());
}

}  // namespace
}  // namespace entrain::engine
