// The description of a checkpoint: one JSON file beside its tensors.
//
// Read first: Manifest. docs/checkpoint.md has the folder's layout and what is guaranteed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"

#include "entrain/engine/models/tensor_info.h"

namespace entrain::engine {

inline constexpr const char* kManifestName = "manifest.json";

// The optimizer's tensors of the parameter "NAME" are named "NAME.first_moment" and
// "NAME.second_moment".
inline constexpr std::array<std::string_view, 2> kMomentSuffixes = {".first_moment",
                                                                    ".second_moment"};

// The run that wrote a checkpoint. Values a resumed run must share are separate from those it may
// change; the documents are stored in full, so that a difference can be named.
struct CheckpointRun {
  std::uint64_t seed = 0;  // must match on resume, as must the next three
  int global_batch = 0;
  std::string index_digest;
  std::string model_digest;
  std::string plan_digest;  // may change
  std::string config_digest;
  Json config;  // RunConfig as to_json() gives it
  Json plan;
  Json model;
};

struct CheckpointFile {
  std::string name;  // within the checkpoint's folder
  std::int64_t bytes = 0;
  std::string digest;  // digest_of_file()
};

struct CheckpointTensor {
  TensorInfo info;
  std::string file;
};

// What one lane wrote.
struct LaneFiles {
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;
};

// Skipped work of a run up to a step; in the file only if there is any.
struct SkipCounts {
  std::int64_t steps = 0;    // skipped
  std::int64_t updates = 0;  // due but not made
};

struct Manifest {
  std::int64_t step = 0;  // finished
  SkipCounts skipped;
  std::string entrain_version;
  std::string torch_version;
  CheckpointRun run;
  std::vector<LaneFiles> lanes;
};

// The file's content: JSON whose last key is the digest of everything before it.
std::string encode(const Manifest& manifest);

// Decodes exactly what encode() wrote; any other byte is refused.
//
// Throws  InvalidInput naming `where` and what is wrong.
Manifest decode_manifest(const std::string& content, const std::string& where);

// The digest that encode() wrote into the content.
std::string digest(const Manifest& manifest);

bool is_moment(const std::string& tensor_name);

}  // namespace entrain::engine
