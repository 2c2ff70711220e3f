// A checkpoint of a model small enough for a unit test: two lanes, every value of its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "entrain/core/base/text.h"
#include "entrain/core/spec/model.h"

#include "entrain/engine/checkpoint/write.h"
#include "entrain/engine/models/stages.h"

namespace entrain::engine::tiny {

// The encoder is frozen, its projector is not.
inline ModelSpec checkpoint_model() {
  return model_from_json(parse_toml(R"(
name = "tiny"
[vision]
num_layers = 1
hidden = 8
num_heads = 2
intermediate = 8
patch_size = 4
merge_size = 2
min_pixels = 64
max_pixels = 1024
frozen = true
[llm]
num_layers = 1
hidden = 8
num_heads = 2
num_kv_heads = 1
intermediate = 8
vocab_size = 16
max_tokens = 64
)",
                                    "tiny model"),
                         "tiny model");
}

inline CheckpointRun checkpoint_run() {
  CheckpointRun run;
  run.seed = 3;
  run.global_batch = 6;
  run.index_digest = "i";
  run.model_digest = digest(checkpoint_model());
  run.plan_digest = "p";
  run.config_digest = "c";
  run.config = {{"steps", 10}, {"rate", 1e-3}};
  run.plan = Json::object();
  run.model = to_json(checkpoint_model());
  return run;
}

// Lane 0 has the encoder, lane 1 the LLM; the values depend on the name and on `step`.
inline std::vector<LaneSnapshot> checkpoint_lanes(std::int64_t step) {
  const ModelSpec model = checkpoint_model();
  const StageOptions options = {.seed = static_cast<std::uint64_t>(step)};
  const EncoderStage encoder(
      model.encoders[0], model.llm.hidden, {0, num_layers(model, 0)}, options);
  const LlmStage llm(model.llm, {0, num_layers(model, 1)}, options);
  std::vector<LaneSnapshot> lanes;
  for (const std::vector<NamedParameter>& parameters : {encoder.parameters(), llm.parameters()}) {
    std::vector<NamedParameter> moments;
    for (const NamedParameter& parameter : parameters) {
      for (const std::string_view suffix : kMomentSuffixes) {
        if (parameter.tensor.requires_grad()) {
          const std::string name = concat(parameter.name, suffix);
          moments.push_back(
              {name, initial_weight(name, parameter.tensor.sizes().vec(), 1, options)});
        }
      }
    }
    lanes.push_back(snapshot_of(static_cast<int>(lanes.size()), parameters, moments));
  }
  return lanes;
}

// Writes and commits the checkpoint of `step`.
inline Manifest write_checkpoint(const std::filesystem::path& folder,
                                 std::int64_t step,
                                 int keep = 2) {
  Manifest manifest;
  manifest.step = step;
  manifest.entrain_version = "0";
  manifest.torch_version = "0";
  manifest.run = checkpoint_run();
  const std::filesystem::path partial = begin_checkpoint(folder, step);
  for (const LaneSnapshot& lane : checkpoint_lanes(step)) {
    manifest.lanes.push_back(write_lane(partial, lane));
  }
  commit_checkpoint(folder, manifest, keep);
  return manifest;
}

}  // namespace entrain::engine::tiny
