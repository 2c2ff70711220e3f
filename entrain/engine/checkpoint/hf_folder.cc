#include "entrain/engine/checkpoint/hf_folder.h"

#include <array>
#include <utility>

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

const FloatName* find_float(const std::string& name) {
  for (const FloatName& known : kFloats) {
    if (name == known.name) {
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

// The header of a file whose parameters have another dtype.
std::string header_with(const HfTensors& source, const HfFile& file, const FloatName& dtype) {
  Json header = Json::object();
  if (!file.tensors.metadata.empty()) {
    header["__metadata__"] = file.tensors.metadata;
  }
  std::uint64_t offset = 0;
  for (const SafetensorsEntry& entry : file.tensors.entries) {
    std::uint64_t bytes = entry.end - entry.begin;
    const bool parameter = !source.owners.at(entry.name).empty();
    if (parameter) {
      bytes =
          bytes / at::elementSize(find_float(entry.dtype)->dtype) * at::elementSize(dtype.dtype);
    }
    header[entry.name] = {{"dtype", parameter ? dtype.name : entry.dtype},
                          {"shape", entry.shape},
                          {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void write_tensors(const HfTensors& source,
                   const HfFile& file,
                   const ValueOf& value_of,
                   const FloatName* dtype,
                   const fs::path& target) {
  const at::Tensor map = mapped(file);
  const std::string header = dtype == nullptr ? file.header : header_with(source, file, *dtype);
  write_file(target, [&](std::ostream& out) {
    const std::uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out.write(header.data(), static_cast<std::streamsize>(header.size()));
    for (const SafetensorsEntry& entry : file.tensors.entries) {
      const std::string& owner = source.owners.at(entry.name);
      const at::Tensor values =
          owner.empty()
              ? bytes_of(file, entry, map)
              : value_of(owner)
                    .detach()
                    .to(at::kCPU, dtype == nullptr ? find_float(entry.dtype)->dtype : dtype->dtype)
                    .contiguous();
      out.write(static_cast<const char*>(values.const_data_ptr()),
                static_cast<std::streamsize>(values.nbytes()));
    }
  });
}

// Changes what config.json and the index say of dtype and size.
void note_dtype(const fs::path& folder, const FloatName& dtype, std::uint64_t bytes) {
  const fs::path config = folder / "config.json";
  Json document = read_json_file(config);
  for (const char* key : {"dtype", "torch_dtype"}) {
    for (Json* part : {&document}) {
      if (part->contains(key)) {
        (*part)[key] = dtype.config;
      }
    }
    for (auto& [name, part] : document.items()) {
      if (part.is_object() && part.contains(key)) {
        part[key] = dtype.config;
      }
    }
  }
  write_file(config, document.dump(2) + "\n");
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(index)) {
    Json whole = read_json_file(index);
    whole["metadata"]["total_size"] = bytes;
    write_file(index, whole.dump(2) + "\n");
  }
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
                     const std::string& dtype) {
  const FloatName* chosen = dtype.empty() ? nullptr : find_float(dtype);
  if (!dtype.empty() && chosen == nullptr) {
    throw InvalidInput(concat("dtype '", dtype, "' given; allowed: F32, BF16, F16"));
  }
  const fs::path partial = target.string() + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  fs::create_directories(partial);
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(source.folder)) {
    if (entry.is_regular_file() && entry.path().extension() != ".safetensors") {
      fs::copy_file(entry.path(), partial / entry.path().filename());
    }
  }
  for (const HfFile& file : source.files) {
    const fs::path written = partial / file.path.filename();
    write_tensors(source, file, value_of, chosen, written);
    bytes += fs::file_size(written) - kSafetensorsLengthBytes;
  }
  if (chosen != nullptr) {
    note_dtype(partial, *chosen, bytes);
  }
  const fs::path old = target.string() + ".old";
  fs::remove_all(old, error);
  fs::rename(target, old, error);  // if there is one
  fs::rename(partial, target, error);
  if (!error) {
    fs::remove_all(old);
  } else {
    throw SystemFailure(concat(target.string(), ": cannot be made: ", error.message()));
  }
}

}  // namespace entrain::engine
