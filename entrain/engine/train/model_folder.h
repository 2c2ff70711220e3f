// A run's weights as the Hugging Face folder that its model is.
#pragma once

#include <filesystem>
#include <vector>

#include "entrain/core/spec/model.h"

#include "entrain/engine/models/stages.h"
#include "entrain/engine/train/run_config.h"

namespace entrain::engine {

// Writes a copy of `config.model_file` with these values, adapters merged, in `config.model_dtype`;
// or, where [lora] export says so, the folder of the adapters alone. `target` is replaced when the
// new one is complete.
//
// Requires  config.model_file to be a folder, and all parameters of `model`, on CPU.
// Throws  InvalidInput for a folder that has changed since: read_hf_tensors(); SystemFailure if it
//         cannot be written.
void write_model_folder(const RunConfig& config,
                        const ModelSpec& model,
                        const std::vector<NamedParameter>& parameters,
                        const std::filesystem::path& target);

}  // namespace entrain::engine
