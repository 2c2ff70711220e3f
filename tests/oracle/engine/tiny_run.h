// A training run small enough for a unit test: model file, shards of flat images, their indices and
// a run configuration in a folder that goes with the object.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/index.h"

#include "entrain/engine/train/prepare_run.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/shards.h"

namespace entrain::engine::tiny {

inline constexpr const char* kRunModel = R"(
name = "tiny"
[vision]
num_layers = 2
hidden = 16
num_heads = 2
intermediate = 24
patch_size = 4
merge_size = 2
min_pixels = 64
max_pixels = 1024
[llm]
num_layers = 2
hidden = 24
num_heads = 2
num_kv_heads = 1
intermediate = 32
vocab_size = 264
max_tokens = 256
)";

// Colours to name: two samples of one image, one of two images and one without, over and over; the
// answer is "red" or "blue" as the images are, "none" without any.
inline std::string colour_shard(int first, int count) {
  oracle::TarWriter tar;
  for (int i = first; i < first + count; ++i) {
    const std::string name = concat("s", i);
    const int images = i % 4 == 3 ? 2 : i % 4 == 2 ? 0 : 1;
    const bool red = i / 4 % 2 == i % 2;
    for (int image = 0; image < images; ++image) {
      tar.add(concat(name, ".", image, ".png"),
              oracle::flat_png(16 + 8 * (i % 3), 16, red ? 250 : 5, 10, red ? 5 : 250));
    }
    const std::string answer = images == 0 ? "none" : red ? "red" : "blue";
    tar.add(name + ".json", concat(R"({"question": "?", "answer": ")", answer, R"("})"));
  }
  return tar.archive();
}

// 12 samples to train on and 5 others to validate with, on one lane a module.
class RunFolder {
 public:
  RunFolder() {
    at::set_num_threads(1);
    folder_.write("model.toml", kRunModel);
    config.output = path("run").string();
    config.steps = 4;
    config.seed = 3;
    config.model_file = path("model.toml").string();
    config.data.train = make_index("train", colour_shard(0, 12));
    config.data.validation = make_index("val", colour_shard(12, 5));
    config.data.global_batch = 6;
    config.plan.num_slots = 3;
    config.plan.evaluations = 20;
    config.optimizer.learning_rate = 5e-3;
    config.optimizer.warmup_steps = 3;
    config.execution.trace_step = -1;
    config.execution.deadline_seconds = 20;
  }

  [[nodiscard]] std::filesystem::path path(const std::string& name) const {
    return folder_.path() / name;
  }
  [[nodiscard]] std::filesystem::path output(const std::string& name) const {
    return std::filesystem::path(config.output) / name;
  }
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    return folder_.write(name, content);
  }
  // The index of one shard, `<name>.csv`, as a path.
  std::string make_index(const std::string& name, const std::string& archive) const {
    const std::filesystem::path shard = folder_.write(name + "-000000.tar", archive);
    build_index({shard}, path(name + ".csv"), {});
    return path(name + ".csv").string();
  }

  // The run with an output of its own.
  [[nodiscard]] RunConfig in_folder(const std::string& name) const {
    RunConfig result = config;
    result.output = path(name).string();
    return result;
  }

  RunConfig config;

 private:
  oracle::TemporaryFolder folder_;
};

// Lines of a run's metrics.jsonl, in order.
inline std::vector<Json> metrics_of(const std::filesystem::path& file) {
  std::vector<Json> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(Json::parse(line));
  }
  return lines;
}

// `interrupt`: stopped as soon as it can be.
inline TrainResult train_now(const RunConfig& config, bool interrupt = false) {
  const std::atomic<bool> interrupted{interrupt};
  return train(prepare_run(config), interrupted);
}

// Rows of the steps that were not skipped, in order.
inline std::vector<Json> steps_of(const RunConfig& config) {
  std::vector<Json> rows;
  for (const Json& line : metrics_of(std::filesystem::path(config.output) / "metrics.jsonl")) {
    if (line.contains("loss")) {
      rows.push_back(line);
    }
  }
  return rows;
}

inline std::vector<double> losses_of(const RunConfig& config) {
  std::vector<double> losses;
  for (const Json& row : steps_of(config)) {
    losses.push_back(row["loss"].get<double>());
  }
  return losses;
}

// Bytes of the weights at the end.
inline std::string weights_of(const RunConfig& config) {
  return read_file(std::filesystem::path(config.output) / "weights.safetensors");
}

}  // namespace entrain::engine::tiny
