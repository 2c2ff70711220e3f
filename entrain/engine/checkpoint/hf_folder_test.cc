#include "entrain/engine/checkpoint/hf_folder.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/spec/parameters.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hf_folders.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

using oracle::TemporaryFolder;

HfTensors read(const fs::path& folder) {
  return read_hf_tensors(folder, read_hf_model(folder));
}

// Every parameter of the folder's model in float32, with its values.
std::map<std::string, at::Tensor> load_all(const fs::path& folder) {
  std::vector<NamedParameter> parameters;
  const ModelSpec model = read_hf_model(folder).model;
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      for (const ParameterSpec& parameter : parameters_of(model, module, layer)) {
        parameters.push_back({parameter.name, at::zeros(parameter.shape)});
      }
    }
  }
  load_hf_weights(read(folder), parameters);
  std::map<std::string, at::Tensor> values;
  for (const NamedParameter& parameter : parameters) {
    values[parameter.name] = parameter.tensor;
  }
  return values;
}

TEST(HfFolder, ComesOutByteForByteAsItWentIn) {
  for (const char* dtype : {"F32", "BF16"}) {
    const TemporaryFolder folder;
    const fs::path in = folder.path() / "in";
    const fs::path out = folder.path() / "out";
    oracle::write_hf_folder(in, oracle::tiny_qwen_config(), dtype);
    const auto values = load_all(in);
    write_hf_folder(
        read(in), [&](const std::string& name) { return values.at(name); }, out);
    int files = 0;
    for (const auto& entry : fs::directory_iterator(in)) {
      EXPECT_EQ(read_file(entry.path()), read_file(out / entry.path().filename()))
          << entry.path().filename();
      ++files;
    }
    EXPECT_EQ(files, 4);
    EXPECT_FALSE(fs::exists(out.string() + ".partial"));
  }
}

TEST(HfFolder, ChangesOnlyWhatWasTrained) {
  const TemporaryFolder folder;
  const fs::path in = folder.path() / "in";
  const fs::path out = folder.path() / "out";
  oracle::write_hf_folder(in, oracle::tiny_qwen_config(), "BF16");
  auto values = load_all(in);
  const std::string trained = "model.layers.1.mlp.up_proj.weight";
  values[trained] = values[trained] + 1;
  for (int time = 0; time < 2; ++time) {  // the second replaces the first
    write_hf_folder(
        read(in), [&](const std::string& name) { return values.at(name); }, out);
  }
  const auto found = load_all(out);
  for (const auto& [name, value] : load_all(in)) {
    EXPECT_EQ(at::equal(found.at(name), value), name != trained) << name;
  }
}

TEST(HfFolder, WritesAnotherDtypeAndSaysSo) {
  const TemporaryFolder folder;
  const fs::path in = folder.path() / "in";
  const fs::path out = folder.path() / "out";
  oracle::write_hf_folder(in, oracle::tiny_qwen_config(), "F32");
  const auto values = load_all(in);
  const auto value_of = [&](const std::string& name) { return values.at(name); };
  write_hf_folder(read(in), value_of, out, "bfloat16");
  const HfTensors written = read(out);
  EXPECT_EQ(written.entry(written.parameters.at("lm_head.weight")).dtype, "BF16");
  EXPECT_EQ(read_json_file(out / "config.json")["dtype"], "bfloat16");
  const auto found = load_all(out);
  for (const auto& [name, value] : values) {
    EXPECT_TRUE(at::equal(found.at(name), value.to(at::kBFloat16).to(at::kFloat))) << name;
  }
  EXPECT_FALSE(fs::exists(out / "model.safetensors.index.json"));
  EXPECT_THROW(write_hf_folder(read(in), value_of, out, "I8"), InvalidInput);
}

TEST(HfFolder, SplitsLargeFilesOfAnotherDtype) {
  const TemporaryFolder folder;
  const fs::path in = folder.path() / "in";
  const fs::path out = folder.path() / "out";
  oracle::write_hf_folder(in, oracle::tiny_qwen_config(), "BF16");
  const auto values = load_all(in);
  const auto value_of = [&](const std::string& name) { return values.at(name); };
  constexpr std::uint64_t kBytes = 20'000;
  write_hf_folder(read(in), value_of, out, "float32", kBytes);
  EXPECT_FALSE(fs::exists(out / "model.safetensors"));
  const Json index = read_json_file(out / "model.safetensors.index.json");
  const HfTensors written = read(out);
  EXPECT_GT(written.files.size(), 2U);
  std::uint64_t total = 0;
  for (const HfFile& file : written.files) {
    std::uint64_t bytes = 0;
    for (const SafetensorsEntry& entry : file.tensors.entries) {
      EXPECT_EQ(index["weight_map"][entry.name], file.path.filename().string());
      bytes += entry.end - entry.begin;
    }
    EXPECT_TRUE(bytes <= kBytes || file.tensors.entries.size() == 1) << file.path;
    total += bytes;
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  const auto found = load_all(out);
  for (const auto& [name, value] : values) {
    EXPECT_TRUE(at::equal(found.at(name), value)) << name;
  }
}

TEST(HfFolder, RefusesATiedPairThatDiffers) {
  const TemporaryFolder folder;
  Json config = oracle::tiny_decoder_config("Qwen2ForCausalLM", {{"tie_word_embeddings", true}});
  oracle::write_hf_folder(folder.path(), config);
  load_all(folder.path());
  auto tensors = oracle::tensors_of(read_hf_model(folder.path()));
  tensors.push_back({"lm_head.weight", {264, 32}});
  folder.write("model.safetensors", oracle::weight_file(tensors));
  const std::string message = oracle::error_of<InvalidInput>([&] { load_all(folder.path()); });
  EXPECT_NE(message.find("'lm_head.weight' differs from 'model.embed_tokens.weight'"),
            std::string::npos)
      << message;
}

TEST(HfFolder, RefusesValuesThatAreNotFiniteAndIntegers) {
  const TemporaryFolder folder;
  oracle::write_hf_folder(folder.path(), oracle::tiny_qwen_config());
  std::string bytes = read_file(folder.path() / "model.safetensors");
  const float bad = std::numeric_limits<float>::quiet_NaN();
  bytes.replace(bytes.size() - 4, 4, reinterpret_cast<const char*>(&bad), 4);
  folder.write("model.safetensors", bytes);
  EXPECT_NE(oracle::error_of<InvalidInput>([&] { load_all(folder.path()); }).find("lm_head.weight"),
            std::string::npos);
  auto tensors = oracle::tensors_of(read_hf_model(folder.path()));
  tensors.back().dtype = "I32";
  folder.write("model.safetensors", oracle::weight_file(tensors));
  EXPECT_NE(oracle::error_of<InvalidInput>([&] { load_all(folder.path()); }).find("dtype I32"),
            std::string::npos);
}

}  // namespace
}  // namespace entrain::engine
