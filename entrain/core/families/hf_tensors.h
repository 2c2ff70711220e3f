// The tensors of a Hugging Face folder, matched with a model's parameters by their headers alone.
//
// Read first: read_hf_tensors().
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "entrain/core/base/safetensors.h"
#include "entrain/core/families/family.h"

namespace entrain {

// One safetensors file of a folder.
struct HfFile : SafetensorsFile {
  std::filesystem::path path;
};

// Where a tensor is: its file and entry there.
struct HfPlace {
  std::size_t file = 0;
  std::size_t entry = 0;
};

struct HfTensors {
  std::filesystem::path folder;
  std::vector<HfFile> files;
  std::map<std::string, HfPlace> parameters;  // by our name
  // The parameter of each tensor, by its name in the files; "" where it is none.
  std::map<std::string, std::string> owners;

  [[nodiscard]] const SafetensorsEntry& entry(const HfPlace& place) const {
    return files[place.file].tensors.entries[place.entry];
  }
};

// The names that files may give a parameter, in the order of the model's spellings.
std::vector<std::string> hf_names(const HfModel& model, const std::string& parameter);

// Reads the headers of model.safetensors, or of the files that model.safetensors.index.json names.
// Of a tied pair both tensors may be there; their owner is the embedding's table.
//
// Throws  InvalidInput naming folder, file and tensor: no weights; files that the index does not
//         match; a tensor that no parameter of the model has, a parameter that has none, one of
//         another shape; whatever parse_safetensors_header() refuses.
HfTensors read_hf_tensors(const std::filesystem::path& folder, const HfModel& model);

}  // namespace entrain
