// Weights from and to Hugging Face folders.
//
// Read first: load_hf_weights() and write_hf_folder(). Which tensor is which parameter:
// core/families/hf_tensors.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/families/hf_tensors.h"

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

// Copies the folder's values into whole parameters of the same names (any floating dtype and
// device), in place. Files are mapped: only the bytes of these parameters are read.
//
// Throws  InvalidInput naming file and tensor: a parameter that the folder lacks, a tensor that is
//         not floating, a value that is not finite, a tied pair that differs.
void load_hf_weights(const HfTensors& folder, const std::vector<NamedParameter>& parameters);

// The value of a whole parameter by our name, on CPU.
using ValueOf = std::function<at::Tensor(const std::string& parameter)>;

// Files of a folder written in another dtype hold at most so many bytes of tensors, as those of
// save_pretrained() do; a tensor that is larger has a file of its own.
inline constexpr std::uint64_t kMaxShardBytes = 5'000'000'000;

// A copy of the folder with other values, and every file without tensors as it is. `dtype`: ""
// keeps each tensor's, and the same files with the same tensors in the same order; values that were
// not changed come out as the same bytes. Else float32, bfloat16 or float16 for all parameters, in
// files of at
// most `max_shard_bytes`; config.json says so. Tensors that are no parameters are copied.
//
// `target` is replaced when the new folder is complete.
//
// Throws  InvalidInput for another dtype; SystemFailure if it cannot be written.
void write_hf_folder(const HfTensors& source,
                     const ValueOf& value_of,
                     const std::filesystem::path& target,
                     const std::string& dtype = "",
                     std::uint64_t max_shard_bytes = kMaxShardBytes);

// Renames a complete folder to `target`, which it replaces.
// Throws  SystemFailure if it cannot.
void replace_folder(const std::filesystem::path& complete, const std::filesystem::path& target);

}  // namespace entrain::engine
