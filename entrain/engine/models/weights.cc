#include "entrain/engine/models/weights.h"

#include <array>
#include <bit>
#include <cstdint>
#include <fstream>
#include <ostream>
#include <set>
#include <string_view>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/safetensors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are written as in memory, which must be little-endian");

struct DtypeName {
  at::ScalarType dtype;
  std::string_view name;
};
constexpr std::array kDtypes = {DtypeName{at::kFloat, "F32"},
                                DtypeName{at::kDouble, "F64"},
                                DtypeName{at::kHalf, "F16"},
                                DtypeName{at::kBFloat16, "BF16"},
                                DtypeName{at::kLong, "I64"},
                                DtypeName{at::kInt, "I32"},
                                DtypeName{at::kByte, "U8"}};

std::string_view format_name(at::ScalarType dtype, const std::string& name) {
  const auto found = std::ranges::find(kDtypes, dtype, &DtypeName::dtype);
  if (found == kDtypes.end()) {
    throw InvalidInput(
        concat("weight '", name, "': safetensors files cannot hold ", c10::toString(dtype)));
  }
  return found->name;
}

// Requires  one of a SafetensorsEntry.
at::ScalarType dtype_of(const std::string& name) {
  const auto found = std::ranges::find(kDtypes, name, &DtypeName::name);
  ENTRAIN_INVARIANT(found != kDtypes.end(), concat("no dtype '", name, "'"));
  return found->dtype;
}

std::string encode_header(const std::vector<NamedParameter>& parameters,
                          const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::set<std::string> names = {"__metadata__"};
  std::uint64_t offset = 0;
  for (const NamedParameter& parameter : parameters) {
    if (!names.insert(parameter.name).second) {
      throw InvalidInput(concat("weight '", parameter.name, "' given twice, or a reserved name"));
    }
    const std::uint64_t end = offset + parameter.tensor.nbytes();
    header[parameter.name] = {
        {"dtype", format_name(parameter.tensor.scalar_type(), parameter.name)},
        {"shape", parameter.tensor.sizes().vec()},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kSafetensorsLengthBytes - 1) / kSafetensorsLengthBytes *
                  kSafetensorsLengthBytes,
              ' ');
  return text;
}

// A file with a validated header.
struct OpenedFile {
  std::ifstream file;
  SafetensorsFile held;
};

OpenedFile open_weights(const std::filesystem::path& path) {
  const std::string where = path.string();
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw InvalidInput(concat(where, ": no such weights file"));
  }
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  OpenedFile opened;
  opened.file.open(path, std::ios::binary);
  if (error || !opened.file) {
    throw SystemFailure(concat(where, ": cannot be opened"));
  }
  opened.held = read_safetensors_header(opened.file, file_bytes, where);
  return opened;
}

}  // namespace

void write_weights(const std::filesystem::path& path,
                   const std::vector<NamedParameter>& parameters,
                   const std::map<std::string, std::string>& metadata) {
  const std::string header = encode_header(parameters, metadata);
  write_file(path, [&](std::ostream& out) {
    const std::uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out.write(header.data(), static_cast<std::streamsize>(header.size()));
    for (const NamedParameter& parameter : parameters) {
      const at::Tensor values = parameter.tensor.detach().to(at::kCPU).contiguous();
      out.write(static_cast<const char*>(values.const_data_ptr()),
                static_cast<std::streamsize>(values.nbytes()));
    }
  });
}

WeightFile read_weights(const std::filesystem::path& path,
                        const std::function<bool(const std::string& name)>& wanted) {
  OpenedFile opened = open_weights(path);
  const std::string where = path.string();
  WeightFile result;
  for (const SafetensorsEntry& entry : opened.held.tensors.entries) {
    if (wanted && !wanted(entry.name)) {
      continue;
    }
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(dtype_of(entry.dtype)));
    const std::uint64_t bytes = entry.end - entry.begin;
    ENTRAIN_INVARIANT(tensor.nbytes() == bytes,
                      concat(where, ": ", entry.name, " has other bytes than its dtype"));
    opened.file.seekg(static_cast<std::streamoff>(opened.held.data_begin + entry.begin));
    if (!opened.file.read(static_cast<char*>(tensor.mutable_data_ptr()),
                          static_cast<std::streamsize>(bytes))) {
      throw SystemFailure(concat(where, ": ", entry.name, ": reading ", bytes, " bytes failed"));
    }
    result.tensors.push_back({entry.name, std::move(tensor)});
  }
  result.metadata = std::move(opened.held.tensors.metadata);
  return result;
}

std::vector<TensorInfo> read_weight_header(const std::filesystem::path& path) {
  std::vector<TensorInfo> tensors;
  for (SafetensorsEntry& entry : open_weights(path).held.tensors.entries) {
    tensors.push_back({std::move(entry.name), std::move(entry.dtype), std::move(entry.shape)});
  }
  return tensors;
}

TensorInfo info_of(const NamedParameter& parameter) {
  return {parameter.name,
          std::string(format_name(parameter.tensor.scalar_type(), parameter.name)),
          parameter.tensor.sizes().vec()};
}

void check_finite(const NamedParameter& parameter, const std::string& where) {
  const at::Tensor& values = parameter.tensor;
  if (!values.is_floating_point()) {
    return;
  }
  const auto wrong = values.numel() - at::isfinite(values).sum().item<std::int64_t>();
  if (wrong > 0) {
    throw InvalidInput(concat(where,
                              ": '",
                              parameter.name,
                              "': ",
                              wrong,
                              " of ",
                              values.numel(),
                              " values are NaN or infinite"));
  }
}

void load_weights(const std::filesystem::path& path,
                  const std::vector<NamedParameter>& parameters) {
  const WeightFile file = read_weights(path);
  std::unordered_map<std::string, at::Tensor> values;
  for (const NamedParameter& tensor : file.tensors) {
    values.emplace(tensor.name, tensor.tensor);
  }
  for (const NamedParameter& parameter : parameters) {
    const auto found = values.find(parameter.name);
    if (found == values.end()) {
      throw InvalidInput(concat(path.string(), ": no weight named '", parameter.name, "'"));
    }
    if (found->second.sizes() != parameter.tensor.sizes()) {
      throw InvalidInput(concat(path.string(),
                                ": ",
                                parameter.name,
                                ": shape ",
                                found->second.sizes(),
                                " in the file, the model has ",
                                parameter.tensor.sizes()));
    }
    check_finite({parameter.name, found->second}, path.string());
  }
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    at::Tensor target = parameter.tensor;
    target.copy_(values.at(parameter.name));
  }
}

}  // namespace entrain::engine
