// The weights that a run starts from: `[init]` of the run file, or the folder that is its model.
//
// Read first: read_initial_weights().
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "entrain/core/families/hf_tensors.h"
#include "entrain/core/spec/model.h"

#include "entrain/engine/checkpoint/adapter_folder.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

struct InitialWeights {
  std::filesystem::path from;
  std::optional<HfTensors> folder;  // if `from` is a Hugging Face folder; else a file of weights
  std::set<std::string> parts;      // that are loaded: modules, "NAME.projector"; others are drawn
  std::optional<AdapterFolder> adapter;  // of [init] adapter
  bool has_adapters = false;             // `from` has those of the model; else they are drawn
};

// Checks, by headers alone, that `from` has every parameter of the parts that are loaded. Nothing
// if the run starts from drawn weights.
//
// Throws  InvalidInput naming key or file: a part that the model does not have, whatever
//         read_hf_tensors() and read_adapter_folder() refuse, a file that lacks a tensor or has
//         another shape, or adapters that the model lacks.
std::optional<InitialWeights> read_initial_weights(const RunConfig& config, const ModelSpec& model);

// Loads what a rank's lane holds. All ranks that share the lane, and under Plan::shard_optimizer
// all its replicas, call it together.
//
// Throws  InvalidInput naming file and tensor, as load_hf_weights() and load_weights() do.
void load_initial_weights(const InitialWeights& initial,
                          const ModelSpec& model,
                          Executor& executor);

// "vision", "vision.projector", "llm": the part of the model that a parameter belongs to.
std::string part_of_parameter(const ModelSpec& model, const std::string& name);

}  // namespace entrain::engine
