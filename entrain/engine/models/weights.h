// Named weights on disk, in the safetensors format.
//
// Read first: write_weights() and load_weights(). Layout: 8 bytes little-endian header length, a
// JSON header {"name": {"dtype", "shape", "data_offsets": [begin, end]}, …}, then the tensors'
// bytes without gaps, row-major and little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_info.h"

namespace entrain::engine {

struct WeightFile {
  std::vector<NamedParameter> tensors;          // on CPU, without gradients, by offset
  std::map<std::string, std::string> metadata;  // the header's "__metadata__"
};

// Appears under `path` only when complete. Tensors are written in the order given; tensors on
// another device are copied one at a time.
//
// Throws  InvalidInput for a duplicate name or a dtype the format lacks; SystemFailure if the
//         file cannot be written.
void write_weights(const std::filesystem::path& path,
                   const std::vector<NamedParameter>& parameters,
                   const std::map<std::string, std::string>& metadata = {});

// Trusts nothing in the file: header length (at most 100 MB), dtypes, shapes and offsets are
// checked against the file's size before memory is allocated; tensors must fill the data
// exactly, without gap or overlap.
//
// Throws  InvalidInput naming file and tensor; SystemFailure when it cannot be read.
//
// With `wanted`, only tensors whose names it accepts are read and returned.
WeightFile read_weights(const std::filesystem::path& path,
                        const std::function<bool(const std::string& name)>& wanted = {});

// Only the header, checked as for the whole file; tensors by offset.
std::vector<TensorInfo> read_weight_header(const std::filesystem::path& path);

// The entry a file would have for this tensor.
// Throws  InvalidInput for a dtype the format lacks.
TensorInfo info_of(const NamedParameter& parameter);

// Throws  InvalidInput naming `where` and the tensor when one of its values is NaN or infinite.
void check_finite(const NamedParameter& parameter, const std::string& where);

// Copies the file's values into parameters of the same names (any device and dtype), in place.
// Names without a parameter are ignored, so that each lane takes its own from one file.
//
// Throws  InvalidInput if a parameter is missing in the file, or there has another shape or values
//         that are not finite; then nothing was changed.
void load_weights(const std::filesystem::path& path, const std::vector<NamedParameter>& parameters);

}  // namespace entrain::engine
