// Adapters (LoRA) from and to folders that peft reads and writes, and added to a model's weights.
//
// Read first: write_adapter_folder() and read_adapter_folder(). A folder has adapter_config.json
// and adapter_model.safetensors; names are those of the modules of the model's class, between
// `base_model.model.` and `.lora_A.weight` or `.lora_B.weight`.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/families/family.h"
#include "entrain/core/spec/model.h"

#include "entrain/engine/checkpoint/hf_folder.h"
#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// The weight with its adapter added, W + scale · B A in float32 or wider; a parameter without
// adapter is itself.
//
// `value_of`: of the model's parameters, adapters included; nothing for a name that it lacks.
at::Tensor merged_value(const ValueOf& value_of, const std::string& parameter, double scale);

// `model`: with the adapters; `hf`: the same without them. All values in their own dtypes.
// `base_model`: the folder that the adapters belong to. `target` is replaced when the new folder is
// complete.
//
// Throws  SystemFailure if it cannot be written.
void write_adapter_folder(const ModelSpec& model,
                          const HfModel& hf,
                          const ValueOf& value_of,
                          const std::string& base_model,
                          const std::filesystem::path& target);

struct AdapterFolder {
  std::filesystem::path weights;
  std::map<std::string, std::string> names;  // in the file, by our parameter
};

// Checks, by the headers alone, that the folder has the adapters of `model` and no others.
//
// Throws  InvalidInput naming file, key and tensor: another kind of adapter, rank or alpha; a key
//         of adapter_config.json that changes what is computed; a tensor that is missing, of no
//         parameter, or of another shape.
AdapterFolder read_adapter_folder(const std::filesystem::path& folder,
                                  const ModelSpec& model,
                                  const HfModel& hf);

// Copies the values into whole parameters of the same names, in place.
// Throws  InvalidInput naming file and tensor for values that are not finite.
void load_adapters(const AdapterFolder& folder, const std::vector<NamedParameter>& parameters);

}  // namespace entrain::engine
