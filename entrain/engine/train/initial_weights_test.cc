#include "entrain/engine/train/initial_weights.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/engine/models/weights.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"
#include "tests/oracle/hf_folders.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

using tiny::losses_of;
using tiny::train_now;
using tiny::weights_of;

std::map<std::string, at::Tensor> tensors_in(const fs::path& file) {
  std::map<std::string, at::Tensor> tensors;
  for (const NamedParameter& tensor : read_weights(file).tensors) {
    tensors.emplace(tensor.name, tensor.tensor);
  }
  return tensors;
}

class InitialWeightsRun : public testing::Test {
 protected:
  InitialWeightsRun() {
    oracle::write_hf_folder(run_.path("hf"), oracle::tiny_qwen_config(), "BF16");
    run_.config.plan.stages = {{"llm", 2}};
  }
  RunConfig from_folder(const std::string& output) const {
    RunConfig config = run_.in_folder(output);
    config.model_file = run_.path("hf").string();
    return config;
  }
  tiny::RunFolder run_;
};

TEST_F(InitialWeightsRun, TrainsAFolderAndWritesOne) {
  RunConfig config = from_folder("tuned");
  config.freeze = {"vision"};
  const TrainResult result = train_now(config);
  EXPECT_EQ(result.folder, run_.path("tuned") / "model");
  const auto before = tensors_in(run_.path("hf") / "model.safetensors");
  const auto after = tensors_in(result.folder / "model.safetensors");
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, value] : before) {
    const bool frozen = name.starts_with("visual.") && !name.starts_with("visual.merger.");
    EXPECT_EQ(after.at(name).scalar_type(), at::kBFloat16) << name;
    EXPECT_EQ(at::equal(after.at(name), value), frozen) << name;
  }
  EXPECT_EQ(read_file(result.folder / "config.json"), read_file(run_.path("hf") / "config.json"));
}

TEST_F(InitialWeightsRun, IsTheSameOnEveryLayoutAndWhenItGoesOn) {
  const RunConfig whole = from_folder("whole");
  train_now(whole);
  RunConfig one_lane = from_folder("one-lane");
  one_lane.plan.stages = {};
  one_lane.plan.single_lane = true;
  train_now(one_lane);
  const std::vector<double> losses = losses_of(whole);
  const std::vector<double> others = losses_of(one_lane);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(others[i], losses[i], 1e-4);
  }
  RunConfig parts = from_folder("parts");
  parts.steps = 2;
  train_now(parts);
  parts.steps = 4;
  EXPECT_EQ(train_now(parts).first_step, 2);
  EXPECT_EQ(weights_of(parts).size(), weights_of(whole).size());
}

// Stages of a training: the projector first, then all from what it became.
TEST_F(InitialWeightsRun, LoadsPartsAndDrawsOthers) {
  RunConfig first = from_folder("first");
  first.freeze = {"vision", "llm"};
  first.init.from = first.model_file;
  first.init.random = {"projector"};
  train_now(first);
  const auto source = tensors_in(run_.path("hf") / "model.safetensors");
  const auto tuned = tensors_in(run_.path("first") / "weights.safetensors");
  const std::string inner = "visual.merger.mlp.0.weight";
  const std::string decoder = "model.layers.0.mlp.up_proj.weight";
  EXPECT_TRUE(at::equal(tuned.at(decoder), source.at(decoder).to(at::kFloat)));
  EXPECT_GT((tuned.at(inner) - source.at(inner).to(at::kFloat)).abs().mean().item<double>(), 0.01);
  RunConfig second = from_folder("second");
  second.steps = 1;
  second.freeze = {"vision", "projector"};
  second.init.from = (run_.path("first") / "weights.safetensors").string();
  train_now(second);
  EXPECT_TRUE(at::equal(tensors_in(run_.path("second") / "weights.safetensors").at(inner),
                        tuned.at(inner)));
}

TEST_F(InitialWeightsRun, RefusesWhatIsNotThere) {
  const auto refused = [&](const RunConfig& config, const std::string& said) {
    const std::string message = oracle::error_of<InvalidInput>([&] { prepare_run(config); });
    EXPECT_NE(message.find(said), std::string::npos) << message;
  };
  RunConfig config = run_.config;
  config.init.random = {"projector"};
  refused(config, "without from");
  config = from_folder("bad");
  config.init.modules = {"audio"};
  refused(config, "init.modules: unknown module 'audio'");
  config = from_folder("bad");
  config.init.from = run_.path("nowhere").string();
  refused(config, "nowhere");
  const RunConfig other = run_.in_folder("other");  // of the tiny model
  train_now(other);
  config.init.from = (run_.path("other") / "weights.safetensors").string();
  refused(config, "has another size than the model's");
  config.init.modules = {"llm"};
  config.model_file = run_.path("model.toml").string();
  EXPECT_EQ(prepare_run(config).initial->parts, std::set<std::string>{"llm"});
}

TEST(PartOfParameter, IsAModuleOrItsProjector) {
  const ModelSpec model = hf_model_from_json(oracle::tiny_qwen_config(), "config.json").model;
  EXPECT_EQ(part_of_parameter(model, "visual.blocks.0.norm1.weight"), "vision");
  EXPECT_EQ(part_of_parameter(model, "visual.merger.mlp.2.bias"), "vision.projector");
  EXPECT_EQ(part_of_parameter(model, "lm_head.weight"), "llm");
}

}  // namespace
}  // namespace entrain::engine
