#include "entrain/core/families/hf_tensors.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hf_folders.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

using oracle::FileTensor;
using oracle::TemporaryFolder;
using oracle::tensors_of;
using oracle::tiny_decoder_config;
using oracle::tiny_qwen_config;
using oracle::weight_file;

HfTensors read(const fs::path& folder) {
  return read_hf_tensors(folder, read_hf_model(folder));
}

TEST(HfTensors, MatchesFilesWithParameters) {
  const TemporaryFolder folder;
  oracle::write_hf_folder(folder.path(), tiny_qwen_config());
  const HfTensors tensors = read(folder.path());
  ASSERT_EQ(tensors.files.size(), 1U);
  const HfPlace embedding = tensors.parameters.at("visual.patch_embed.proj.weight");
  EXPECT_EQ(tensors.entry(embedding).shape, (std::vector<std::int64_t>{16, 3, 2, 14, 14}));
  EXPECT_EQ(tensors.parameters.size(), tensors.files[0].tensors.entries.size());
}

// transformers 5 keeps both spellings; a folder has one.
TEST(HfTensors, ReadsTheNewerSpelling) {
  const TemporaryFolder folder;
  oracle::write_hf_folder(folder.path(), tiny_qwen_config());
  std::vector<FileTensor> tensors = tensors_of(read_hf_model(folder.path()));
  for (FileTensor& tensor : tensors) {
    if (tensor.name.starts_with("visual.")) {
      tensor.name = "model." + tensor.name;
    } else if (tensor.name.starts_with("model.")) {
      tensor.name = "model.language_model." + tensor.name.substr(6);
    }
  }
  folder.write("model.safetensors", weight_file(tensors));
  const HfTensors found = read(folder.path());
  EXPECT_EQ(found.entry(found.parameters.at("model.norm.weight")).name,
            "model.language_model.norm.weight");
  tensors.front().name = tensors.front().name.substr(6);  // one of them in the older
  folder.write("model.safetensors", weight_file(tensors));
  const std::string message = oracle::error_of<InvalidInput>([&] { read(folder.path()); });
  EXPECT_NE(message.find("visual.patch_embed"), std::string::npos) << message;
}

// Released folders of Qwen2-VL, and those in the names of transformers 5's classes.
TEST(HfTensors, ReadsQwen2VlsNames) {
  const std::vector<FileTensor> block = {{"norm1.weight", {16}},
                                         {"norm1.bias", {16}},
                                         {"attn.qkv.weight", {48, 16}},
                                         {"attn.qkv.bias", {48}},
                                         {"attn.proj.weight", {16, 16}},
                                         {"attn.proj.bias", {16}},
                                         {"norm2.weight", {16}},
                                         {"norm2.bias", {16}},
                                         {"mlp.fc1.weight", {48, 16}},
                                         {"mlp.fc1.bias", {48}},
                                         {"mlp.fc2.weight", {16, 48}},
                                         {"mlp.fc2.bias", {16}}};
  std::vector<FileTensor> vision = {{"patch_embed.proj.weight", {16, 3, 2, 14, 14}},
                                    {"merger.ln_q.weight", {16}},
                                    {"merger.ln_q.bias", {16}},
                                    {"merger.mlp.0.weight", {64, 64}},
                                    {"merger.mlp.0.bias", {64}},
                                    {"merger.mlp.2.weight", {32, 64}},
                                    {"merger.mlp.2.bias", {32}}};
  for (const FileTensor& tensor : block) {
    vision.push_back({"blocks.0." + tensor.name, tensor.shape});
    vision.push_back({"blocks.1." + tensor.name, tensor.shape});
  }
  for (const bool newer : {false, true}) {
    const TemporaryFolder folder;
    oracle::write_hf_folder(folder.path(), oracle::tiny_qwen2_vl_config());
    const std::string visual = newer ? "model.visual." : "visual.";
    std::vector<FileTensor> tensors;
    for (const FileTensor& tensor : vision) {
      tensors.push_back({visual + tensor.name, tensor.shape});
    }
    for (FileTensor tensor : tensors_of(read_hf_model(folder.path()))) {
      if (newer && tensor.name.starts_with("model.")) {
        tensor.name = "model.language_model." + tensor.name.substr(6);
      }
      if (!tensor.name.starts_with("visual.")) {
        tensors.push_back(tensor);
      }
    }
    folder.write("model.safetensors", weight_file(tensors));
    const HfTensors found = read(folder.path());
    EXPECT_EQ(found.entry(found.parameters.at("visual.blocks.1.mlp.up_proj.weight")).name,
              visual + "blocks.1.mlp.fc1.weight");
    EXPECT_EQ(found.parameters.size(), tensors.size());
    tensors.push_back({visual + "patch_embed.proj.bias", {16}});
    folder.write("model.safetensors", weight_file(tensors));
    const std::string message = oracle::error_of<InvalidInput>([&] { read(folder.path()); });
    EXPECT_NE(message.find("patch_embed.proj.bias"), std::string::npos) << message;
  }
}

// Released folders of Qwen2-Audio, and those that transformers 5 may write.
TEST(HfTensors, ReadsWhispersNames) {
  const std::vector<FileTensor> tower = {{"conv1.weight", {16, 128, 3}},
                                         {"conv1.bias", {16}},
                                         {"conv2.weight", {16, 16, 3}},
                                         {"conv2.bias", {16}},
                                         {"embed_positions.weight", {20, 16}},
                                         {"layers.0.self_attn.k_proj.weight", {16, 16}},
                                         {"layers.0.self_attn.v_proj.weight", {16, 16}},
                                         {"layers.0.self_attn.v_proj.bias", {16}},
                                         {"layers.0.self_attn.q_proj.weight", {16, 16}},
                                         {"layers.0.self_attn.q_proj.bias", {16}},
                                         {"layers.0.self_attn.out_proj.weight", {16, 16}},
                                         {"layers.0.self_attn.out_proj.bias", {16}},
                                         {"layers.0.self_attn_layer_norm.weight", {16}},
                                         {"layers.0.self_attn_layer_norm.bias", {16}},
                                         {"layers.0.fc1.weight", {24, 16}},
                                         {"layers.0.fc1.bias", {24}},
                                         {"layers.0.fc2.weight", {16, 24}},
                                         {"layers.0.fc2.bias", {16}},
                                         {"layers.0.final_layer_norm.weight", {16}},
                                         {"layers.0.final_layer_norm.bias", {16}},
                                         {"layer_norm.weight", {16}},
                                         {"layer_norm.bias", {16}}};
  for (const std::string root : {"", "model."}) {
    const TemporaryFolder folder;
    oracle::write_hf_folder(folder.path(), oracle::tiny_qwen_audio_config());
    std::vector<FileTensor> tensors = {{root + "multi_modal_projector.linear.weight", {32, 16}},
                                       {root + "multi_modal_projector.linear.bias", {32}}};
    for (const FileTensor& tensor : tower) {
      tensors.push_back({root + "audio_tower." + tensor.name, tensor.shape});
    }
    for (const FileTensor& tensor : tensors_of(read_hf_model(folder.path()))) {
      if (tensor.name.starts_with("model.") || tensor.name == "lm_head.weight") {
        const std::string part =
            tensor.name.starts_with("model.") ? tensor.name.substr(6) : tensor.name;
        const bool head = tensor.name == "lm_head.weight";
        tensors.push_back({root.empty()
                               ? (head ? "language_model." : "language_model.model.") + part
                               : (head ? "" : "model.language_model.") + part,
                           tensor.shape});
      }
    }
    folder.write("model.safetensors", weight_file(tensors));
    const HfTensors found = read(folder.path());
    EXPECT_EQ(found.entry(found.parameters.at("audio_tower.positions.weight")).name,
              root + "audio_tower.embed_positions.weight");
    tensors.push_back({root + "audio_tower.layers.0.self_attn.k_proj.bias", {16}});
    folder.write("model.safetensors", weight_file(tensors));
    const std::string message = oracle::error_of<InvalidInput>([&] { read(folder.path()); });
    EXPECT_NE(message.find("self_attn.k_proj.bias"), std::string::npos) << message;
  }
}

TEST(HfTensors, ReadsShards) {
  const TemporaryFolder folder;
  oracle::write_hf_folder(folder.path(), tiny_decoder_config("Qwen2ForCausalLM", {}));
  const std::vector<FileTensor> tensors = tensors_of(read_hf_model(folder.path()));
  fs::remove(folder.path() / "model.safetensors");
  const auto half = tensors.begin() + 7;
  folder.write("a.safetensors", weight_file({tensors.begin(), half}));
  folder.write("b.safetensors", weight_file({half, tensors.end()}));
  Json map = Json::object();
  for (auto tensor = tensors.begin(); tensor != tensors.end(); ++tensor) {
    map[tensor->name] = tensor < half ? "a.safetensors" : "b.safetensors";
  }
  const Json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
  folder.write("model.safetensors.index.json", index.dump());
  EXPECT_EQ(read(folder.path()).files.size(), 2U);
  Json moved = index;
  moved["weight_map"]["lm_head.weight"] = "a.safetensors";
  folder.write("model.safetensors.index.json", moved.dump());
  std::string message = oracle::error_of<InvalidInput>([&] { read(folder.path()); });
  EXPECT_NE(message.find("lm_head.weight"), std::string::npos) << message;
  moved["weight_map"]["lm_head.weight"] = "../b.safetensors";
  folder.write("model.safetensors.index.json", moved.dump());
  message = oracle::error_of<InvalidInput>([&] { read(folder.path()); });
  EXPECT_NE(message.find("is no file of the folder"), std::string::npos) << message;
  fs::remove(folder.path() / "b.safetensors");
  folder.write("model.safetensors.index.json", index.dump());
  message = oracle::error_of<InvalidInput>([&] { read(folder.path()); });
  EXPECT_NE(message.find("no such weights file"), std::string::npos) << message;
}

struct BadFile {
  const char* what;
  std::function<void(std::vector<FileTensor>& tensors)> spoil;
  const char* said;
};

FileTensor& named(std::vector<FileTensor>& tensors, const std::string& name) {
  for (FileTensor& tensor : tensors) {
    if (tensor.name == name) {
      return tensor;
    }
  }
  throw std::logic_error(name);
}

// The four that were read as another model without a word, and others.
TEST(HfTensors, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  oracle::write_hf_folder(folder.path(), tiny_qwen_config());
  const std::vector<FileTensor> good = tensors_of(read_hf_model(folder.path()));
  const std::vector<BadFile> cases = {
      {"norms of heads",
       [](auto& t) {
         t.push_back({"model.layers.0.self_attn.q_norm.weight", {8}});
       },
       "tensor 'model.layers.0.self_attn.q_norm.weight' is no parameter"},
      {"a bias",
       [](auto& t) {
         t.push_back({"model.layers.0.self_attn.o_proj.bias", {32}});
       },
       "tensor 'model.layers.0.self_attn.o_proj.bias' is no parameter"},
      {"a folded convolution",
       [](auto& t) {
         named(t, "visual.patch_embed.proj.weight").shape = {16, 3, 14, 14};
       },
       "has shape [16, 3, 14, 14], the model needs [16, 3, 2, 14, 14]"},
      {"stored frequencies",
       [](auto& t) {
         t.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {4}});
       },
       "is no parameter"},
      {"an adapter",
       [](auto& t) {
         t.push_back({"model.layers.0.self_attn.q_proj.lora_A.weight", {2, 32}});
       },
       "lora_A.weight' is no parameter"},
      {"a name with a slip",
       [](auto& t) { named(t, "model.norm.weight").name = "model.norms.weight"; },
       "did you mean 'model.norm.weight'"},
      {"a missing bias",
       [](auto& t) {
         std::erase_if(t, [](const auto& x) { return x.name == "visual.blocks.1.attn.qkv.bias"; });
       },
       "the weights lack tensor 'visual.blocks.1.attn.qkv.bias'"},
      {"one layer less",
       [](auto& t) {
         std::erase_if(t, [](const auto& x) { return x.name.starts_with("model.layers.1."); });
       },
       "the weights lack tensor 'model.layers.1."},
      {"one layer more",
       [](auto& t) {
         t.push_back({"model.layers.2.input_layernorm.weight", {32}});
       },
       "'model.layers.2.input_layernorm.weight' is no parameter"},
      {"a transposed matrix",
       [](auto& t) {
         named(t, "model.layers.0.mlp.up_proj.weight").shape = {32, 40};
       },
       "has shape [32, 40], the model needs [40, 32]"},
      {"a larger vocabulary",
       [](auto& t) {
         named(t, "lm_head.weight").shape = {265, 32};
       },
       "has shape [265, 32]"},
      {"no head",
       [](auto& t) { std::erase_if(t, [](const auto& x) { return x.name == "lm_head.weight"; }); },
       "the weights lack tensor 'lm_head.weight'"}};
  for (const BadFile& bad : cases) {
    SCOPED_TRACE(bad.what);
    std::vector<FileTensor> tensors = good;
    bad.spoil(tensors);
    folder.write("model.safetensors", weight_file(tensors));
    const std::string message = oracle::error_of<InvalidInput>([&] { read(folder.path()); });
    EXPECT_NE(message.find(bad.said), std::string::npos) << message;
  }
}

TEST(HfTensors, RefusesDamagedFiles) {
  const TemporaryFolder folder;
  oracle::write_hf_folder(folder.path(), tiny_qwen_config());
  const std::string good = read_file(folder.path() / "model.safetensors");
  std::string long_header = good;
  long_header[5] = 1;  // of the header's length
  for (const std::string& bad : {std::string(),
                                 good.substr(0, 5),
                                 good.substr(0, 100),
                                 good.substr(0, good.size() - 1),
                                 good + "x",
                                 long_header}) {
    folder.write("model.safetensors", bad);
    EXPECT_THROW(read(folder.path()), InvalidInput);
  }
  fs::remove(folder.path() / "model.safetensors");
  EXPECT_THROW(read(folder.path()), InvalidInput);
  fs::remove(folder.path() / "config.json");
  EXPECT_THROW(read(folder.path()), InvalidInput);
}

}  // namespace
}  // namespace entrain
