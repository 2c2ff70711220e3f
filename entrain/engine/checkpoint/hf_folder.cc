#include "entrain/engine/checkpoint/hf_folder.h"

#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/parameters.h"

#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

struct FloatName {
  const char* name;    // of safetensors
  const char* config;  // of config.json
  at::ScalarType dtype;
};
constexpr std::array kFloats = {FloatName{"F32", "float32", at::kFloat},
                                FloatName{"BF16", "bfloat16", at::kBFloat16},
                                FloatName{"F16", "float16", at::kHalf},
                                FloatName{"F64", "float64", at::kDouble}};

// By its name in either place.
const FloatName* find_float(const std::string& name) {
  for (const FloatName& known : kFloats) {
    if (name == known.name || name == known.config) {
      return &known;
    }
  }
  return nullptr;
}

// A file's bytes, mapped into memory.
at::Tensor mapped(const HfFile& file) {
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file.path));
  return at::from_file(file.path.string(), /*shared=*/false, bytes, at::kByte);
}

at::Tensor bytes_of(const HfFile& file, const SafetensorsEntry& entry, const at::Tensor& map) {
  return map.narrow(0,
                    static_cast<std::int64_t>(file.data_begin + entry.begin),
                    static_cast<std::int64_t>(entry.end - entry.begin));
}

at::Tensor value_of_entry(const HfFile& file,
                          const SafetensorsEntry& entry,
                          const at::Tensor& map) {
  const FloatName* known = find_float(entry.dtype);
  if (known == nullptr) {
    throw InvalidInput(concat(file.path.string(),
                              ": tensor '",
                              entry.name,
                              "' has dtype ",
                              entry.dtype,
                              "; parameters are floating: F32, BF16, F16, F64"));
  }
  const at::Tensor bytes = bytes_of(file, entry, map);
  const auto size = static_cast<std::int64_t>(at::elementSize(known->dtype));
  // Offsets need not be multiples of the element.
  return (bytes.storage_offset() % size == 0 ? bytes : bytes.clone())
      .view(known->dtype)
      .view(entry.shape);
}

void check_tied(const HfTensors& folder, const HfPlace& place, const at::Tensor& table) {
  for (const HfFile& file : folder.files) {
    for (const SafetensorsEntry& entry : file.tensors.entries) {
      const auto owner = folder.owners.find(entry.name);
      if (owner->second == kTokenTableName && entry.name != folder.entry(place).name &&
          !at::equal(value_of_entry(file, entry, mapped(file)), table)) {
        throw InvalidInput(concat(file.path.string(),
                                  ": '",
                                  entry.name,
                                  "' differs from '",
                                  folder.entry(place).name,
                                  "', but config.json says that they are tied"));
      }
    }
  }
}

// A tensor of the new folder.
struct NewTensor {
  const HfFile* file = nullptr;  // that has it now
  const SafetensorsEntry* entry = nullptr;
  std::string dtype;
  std::uint64_t bytes = 0;
};

struct NewFile {
  std::string name;
  std::vector<NewTensor> tensors;
  std::string header;  // JSON text
};

std::uint64_t bytes_of(const NewFile& file) {
  std::uint64_t sum = 0;
  for (const NewTensor& tensor : file.tensors) {
    sum += tensor.bytes;
  }
  return sum;
}

std::string header_of(const HfFile& first, const NewFile& file) {
  Json header = Json::object();
  if (!first.tensors.metadata.empty()) {
    header["__metadata__"] = first.tensors.metadata;
  }
  std::uint64_t offset = 0;
  for (const NewTensor& tensor : file.tensors) {
    header[tensor.entry->name] = {{"dtype", tensor.dtype},
                                  {"shape", tensor.entry->shape},
                                  {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

std::vector<NewFile> same_files(const HfTensors& source) {
  std::vector<NewFile> files;
  for (const HfFile& file : source.files) {
    NewFile& copy = files.emplace_back(NewFile{file.path.filename().string(), {}, file.header});
    for (const SafetensorsEntry& entry : file.tensors.entries) {
      copy.tensors.push_back({&file, &entry, entry.dtype, entry.end - entry.begin});
    }
  }
  return files;
}

// All tensors in their order, parameters in this dtype, a new file where one would be too large.
std::vector<NewFile> files_with(const HfTensors& source,
                                const FloatName& dtype,
                                std::uint64_t max_shard_bytes) {
  std::vector<NewFile> files(1);
  for (const HfFile& file : source.files) {
    for (const SafetensorsEntry& entry : file.tensors.entries) {
      NewTensor tensor{&file, &entry, entry.dtype, entry.end - entry.begin};
      if (!source.owners.at(entry.name).empty()) {
        tensor.dtype = dtype.name;
        tensor.bytes = tensor.bytes / at::elementSize(find_float(entry.dtype)->dtype) *
                       at::elementSize(dtype.dtype);
      }
      if (!files.back().tensors.empty() &&
          bytes_of(files.back()) + tensor.bytes > max_shard_bytes) {
        files.emplace_back();
      }
      files.back().tensors.push_back(std::move(tensor));
    }
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::array<char, 64> name{"model.safetensors"};
    if (files.size() > 1) {
      std::snprintf(
          name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
    }
    files[i].name = name.data();
    files[i].header = header_of(source.files.front(), files[i]);
  }
  return files;
}

void write_tensors(const HfTensors& source,
                   const NewFile& file,
                   const ValueOf& value_of,
                   const fs::path& target) {
  std::map<const HfFile*, at::Tensor> maps;
  write_file(target, [&](std::ostream& out) {
    const std::uint64_t length = file.header.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out.write(file.header.data(), static_cast<std::streamsize>(length));
    for (const NewTensor& tensor : file.tensors) {
      at::Tensor& map = maps[tensor.file];
      if (!map.defined()) {
        map = mapped(*tensor.file);
      }
      const std::string& owner = source.owners.at(tensor.entry->name);
      const at::Tensor values =
          owner.empty()
              ? bytes_of(*tensor.file, *tensor.entry, map)
              : value_of(owner).detach().to(at::kCPU, find_float(tensor.dtype)->dtype).contiguous();
      out.write(static_cast<const char*>(values.const_data_ptr()),
                static_cast<std::streamsize>(values.nbytes()));
    }
  });
}

constexpr const char* kIndexName = "model.safetensors.index.json";

void write_index(const fs::path& folder, const std::vector<NewFile>& files) {
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  std::uint64_t total = 0;
  for (const NewFile& file : files) {
    total += bytes_of(file);
    for (const NewTensor& tensor : file.tensors) {
      index["weight_map"][tensor.entry->name] = file.name;
    }
  }
  index["metadata"]["total_size"] = total;
  write_file(folder / kIndexName, index.dump(2) + "\n");
}

// Changes what config.json says of the dtype.
void note_dtype(const fs::path& folder, const FloatName& dtype) {
  const fs::path config = folder / "config.json";
  Json document = read_json_file(config);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (document.contains(key)) {
      document[key] = dtype.config;
    }
    for (auto& [name, part] : document.items()) {
      if (part.is_object() && part.contains(key)) {
        part[key] = dtype.config;
      }
    }
  }
  write_file(config, document.dump(2) + "\n");
}

}  // namespace

void load_hf_weights(const HfTensors& folder, const std::vector<NamedParameter>& parameters) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> maps(folder.files.size());
  for (const NamedParameter& parameter : parameters) {
    const auto found = folder.parameters.find(parameter.name);
    if (found == folder.parameters.end()) {
      throw InvalidInput(concat(folder.folder.string(), ": no tensor for '", parameter.name, "'"));
    }
    const HfFile& file = folder.files[found->second.file];
    at::Tensor& map = maps[found->second.file];
    if (!map.defined()) {
      map = mapped(file);
    }
    const at::Tensor value = value_of_entry(file, folder.entry(found->second), map);
    check_finite({folder.entry(found->second).name, value}, file.path.string());
    if (parameter.name == kTokenTableName) {
      check_tied(folder, found->second, value);
    }
    at::Tensor target = parameter.tensor;
    target.copy_(value.reshape(target.sizes()));
  }
}

void write_hf_folder(const HfTensors& source,
                     const ValueOf& value_of,
                     const fs::path& target,
                     const std::string& dtype,
                     std::uint64_t max_shard_bytes) {
  const FloatName* chosen = dtype.empty() ? nullptr : find_float(dtype);
  if (!dtype.empty() && chosen == nullptr) {
    throw InvalidInput(concat("dtype '", dtype, "' given; allowed: float32, bfloat16, float16"));
  }
  const fs::path partial = target.string() + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  fs::create_directories(partial);
  for (const auto& entry : fs::directory_iterator(source.folder)) {
    if (entry.is_regular_file() && entry.path().extension() != ".safetensors") {
      fs::copy_file(entry.path(), partial / entry.path().filename());
    }
  }
  const std::vector<NewFile> files =
      chosen == nullptr ? same_files(source) : files_with(source, *chosen, max_shard_bytes);
  for (const NewFile& file : files) {
    write_tensors(source, file, value_of, partial / file.name);
  }
  if (chosen != nullptr) {
    note_dtype(partial, *chosen);
    fs::remove(partial / kIndexName);
    if (files.size() > 1) {
      write_index(partial, files);
    }
  }
  replace_folder(partial, target);
}

void replace_folder(const fs::path& complete, const fs::path& target) {
  std::error_code error;
  const fs::path old = target.string() + ".old";
  fs::remove_all(old, error);
  fs::rename(target, old, error);  // if there is one
  fs::rename(complete, target, error);
  if (error) {
    throw SystemFailure(concat(target.string(), ": cannot be made: ", error.message()));
  }
  fs::remove_all(old);
}

}  // namespace entrain::engine
