#include "entrain/engine/train/initial_weights.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/spec/parameters.h"

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

// Adapters on the LLM, the projector trained itself: a folder in which only these differ.
TEST_F(InitialWeightsRun, TrainsAdaptersAndAddsThemToTheFolder) {
  RunConfig config = from_folder("adapted");
  config.lora = LoraConfig();
  config.lora->rank = 2;
  config.lora->alpha = 6;
  config.lora->targets = {"q_proj", "llm.*.down_proj"};
  config.lora->train = {"projector"};
  const TrainResult result = train_now(config);
  const auto before = tensors_in(run_.path("hf") / "model.safetensors");
  const auto after = tensors_in(result.folder / "model.safetensors");
  const auto trained = tensors_in(result.weights);
  ASSERT_EQ(after.size(), before.size());
  int adapters = 0;
  for (const auto& [name, value] : before) {
    const std::string matrix = name.substr(0, name.rfind('.'));
    at::Tensor expected = trained.at(name);
    if (name.ends_with(".weight") && trained.contains(matrix + kLoraA)) {
      ++adapters;
      EXPECT_TRUE(at::equal(trained.at(name), value.to(at::kFloat))) << name;
      expected =
          expected + at::matmul(trained.at(matrix + kLoraB), trained.at(matrix + kLoraA)) * 3.0;
    }
    EXPECT_TRUE(at::equal(after.at(name), expected.to(at::kBFloat16).view(value.sizes()))) << name;
    const bool changed = name.starts_with("visual.merger.") || matrix.ends_with("q_proj") ||
                         (matrix.ends_with("down_proj") && name.starts_with("model."));
    EXPECT_EQ(at::equal(after.at(name), value),
              !(changed && name.ends_with("weight")) && !name.starts_with("visual.merger."))
        << name;
  }
  EXPECT_EQ(adapters, 4);
}

// An adapter's folder is where a further run begins; so are weights with adapters.
TEST_F(InitialWeightsRun, WritesAdaptersAndBeginsFromThem) {
  RunConfig first = from_folder("first");
  first.lora = LoraConfig();
  first.lora->rank = 2;
  first.lora->alpha = 4;
  first.lora->targets = {"*_proj", "attn.qkv"};
  first.lora->export_as = kExportAdapter;
  const TrainResult result = train_now(first);
  EXPECT_EQ(result.folder, run_.path("first") / "adapter");
  EXPECT_FALSE(fs::exists(run_.path("first") / "model"));
  const std::vector<double> losses = losses_of(first);
  RunConfig second = from_folder("second");
  second.steps = 1;
  second.lora = first.lora;
  second.init.adapter = result.folder.string();
  train_now(second);
  RunConfig third = from_folder("third");
  third.steps = 1;
  third.lora = first.lora;
  third.init.from = result.weights.string();
  train_now(third);
  RunConfig fresh = from_folder("fresh");
  fresh.steps = 1;
  fresh.lora = first.lora;
  train_now(fresh);
  EXPECT_EQ(losses_of(second), losses_of(third));
  EXPECT_NE(losses_of(second), losses_of(fresh));
  EXPECT_EQ(losses_of(fresh).front(), losses.front());
  // Adapters of the run, in every layout, go on as they were.
  RunConfig parts = from_folder("parts");
  parts.lora = first.lora;
  parts.steps = 2;
  train_now(parts);
  parts.steps = 4;
  EXPECT_EQ(train_now(parts).first_step, 2);
  EXPECT_TRUE(weights_of(parts) == weights_of(first));
}

TEST_F(InitialWeightsRun, RefusesAdaptersThatHaveNoPlace) {
  const auto refused = [&](const RunConfig& config, const std::string& said) {
    const std::string message = oracle::error_of<InvalidInput>([&] { prepare_run(config); });
    EXPECT_NE(message.find(said), std::string::npos) << message;
  };
  RunConfig config = run_.config;  // of a model file
  config.lora = LoraConfig();
  config.lora->rank = 2;
  config.lora->alpha = 2;
  config.lora->targets = {"q_proj"};
  config.lora->export_as = kExportAdapter;
  refused(config, "lora.export: 'adapter' given; needs a Hugging Face folder");
  config.lora->export_as = kExportMerged;
  train_now(config);
  RunConfig without = run_.in_folder("without");
  without.init.from = (run_.path("run") / "weights.safetensors").string();
  refused(without, "has adapters, such as 'model.layers.0.self_attn.q_proj.lora_A.weight'");
  RunConfig more = run_.in_folder("more");
  more.init.from = without.init.from;
  more.lora = config.lora;
  more.lora->targets = {"q_proj", "v_proj"};
  refused(more, "'model.layers.0.self_attn.v_proj.lora_A.weight' is missing");
  more.init.from.clear();
  more.init.adapter = "anywhere";
  refused(more, "init.adapter given; needs a Hugging Face folder");
  RunConfig folder = from_folder("bad");
  folder.init.adapter = run_.path("nowhere").string();
  refused(folder, "init.adapter: given without [lora]");
  folder.lora = config.lora;
  refused(folder, "nowhere: no adapter_config.json");
  folder.lora->targets = {"q_prj"};
  refused(folder, "lora.targets: 'q_prj' fits no linear layer, did you mean 'q_proj'?");
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
