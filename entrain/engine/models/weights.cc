#include "entrain/engine/models/weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <fstream>
#include <ostream>
#include <set>
#include <string_view>
#include <unordered_map>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are written as they lie in memory, which must be little-endian");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kLengthBytes = 8;

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
  for (const DtypeName& entry : kDtypes) {
    if (entry.dtype == dtype) {
      return entry.name;
    }
  }
  throw InvalidInput(
      concat("weight '", name, "': safetensors files cannot hold ", c10::toString(dtype)));
}

at::ScalarType dtype_of(const std::string& name, const std::string& where) {
  std::string allowed;
  for (const DtypeName& entry : kDtypes) {
    if (entry.name == name) {
      return entry.dtype;
    }
    allowed += allowed.empty() ? "" : ", ";
    allowed += entry.name;
  }
  throw InvalidInput(concat(where, ": dtype '", name, "' given, allowed: ", allowed));
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
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  return text;
}

// One entry of a header, checked in itself.
struct TensorEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

TensorEntry read_entry(const std::string& name,
                       const Json& document,
                       std::uint64_t data_bytes,
                       const std::string& where) {
  ObjectReader reader(document, where);
  TensorEntry entry;
  entry.name = name;
  entry.dtype = dtype_of(reader.required<std::string>("dtype"), where);
  // Empty sides count as one here, since strides are products of all other sides.
  auto extent = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
  bool empty = false;
  reader.at("shape");
  for (const auto& [value, value_where] : reader.array("shape")) {
    const auto side = value_as<std::int64_t>(*value, value_where);
    if (side < 0 || __builtin_mul_overflow(extent, std::max<std::int64_t>(side, 1), &extent)) {
      throw InvalidInput(concat(value_where, ": impossible tensor side ", side));
    }
    empty = empty || side == 0;
    entry.shape.push_back(side);
  }
  const std::uint64_t bytes = empty ? 0 : static_cast<std::uint64_t>(extent);
  reader.at("data_offsets");
  const auto offsets = reader.array("data_offsets");
  if (offsets.size() != 2) {
    throw InvalidInput(
        concat(where, ".data_offsets: ", offsets.size(), " numbers given, must be [begin, end]"));
  }
  entry.begin = value_as<std::uint64_t>(*offsets[0].first, offsets[0].second);
  entry.end = value_as<std::uint64_t>(*offsets[1].first, offsets[1].second);
  reader.finish();
  if (entry.begin > entry.end || entry.end > data_bytes || entry.end - entry.begin != bytes) {
    throw InvalidInput(concat(where,
                              ": data_offsets [",
                              entry.begin,
                              ", ",
                              entry.end,
                              "] must hold the ",
                              bytes,
                              " bytes of its shape within the file's ",
                              data_bytes,
                              " bytes of data"));
  }
  return entry;
}

// Entries by offset; proves that they fill [0, data_bytes) without gap or overlap.
std::vector<TensorEntry> read_entries(const Json& header,
                                      std::uint64_t data_bytes,
                                      const std::string& where) {
  if (!header.is_object()) {
    throw InvalidInput(concat(where, ": the header must be a JSON object"));
  }
  std::vector<TensorEntry> entries;
  for (const auto& [name, document] : header.items()) {
    if (name != "__metadata__") {
      entries.push_back(read_entry(name, document, data_bytes, concat(where, ": ", name)));
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t filled = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != filled) {
      throw InvalidInput(concat(where,
                                ": ",
                                entry.name,
                                ": data starts at byte ",
                                entry.begin,
                                ", must start at ",
                                filled,
                                " where the tensor before it ends"));
    }
    filled = entry.end;
  }
  if (filled != data_bytes) {
    throw InvalidInput(concat(where,
                              ": the tensors end at byte ",
                              filled,
                              ", the data at ",
                              data_bytes,
                              ": the header and the file do not belong together"));
  }
  return entries;
}

void read_bytes(std::ifstream& file, char* target, std::uint64_t bytes, const std::string& where) {
  file.read(target, static_cast<std::streamsize>(bytes));
  if (!file) {
    throw SystemFailure(concat(where, ": reading ", bytes, " bytes failed"));
  }
}

// A file whose header has been read and checked.
struct OpenedFile {
  std::ifstream file;
  Json header;
  std::vector<TensorEntry> entries;  // by offset
  std::uint64_t data_begin = 0;      // bytes from the file's start
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
  if (file_bytes < kLengthBytes) {
    throw InvalidInput(concat(where, ": ", file_bytes, " bytes, too short for a safetensors file"));
  }
  std::uint64_t header_bytes = 0;
  read_bytes(opened.file, reinterpret_cast<char*>(&header_bytes), kLengthBytes, where);
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_bytes - kLengthBytes) {
    throw InvalidInput(concat(where,
                              ": header of ",
                              header_bytes,
                              " bytes claimed, at most ",
                              std::min(kMaxHeaderBytes, file_bytes - kLengthBytes),
                              " are possible"));
  }
  std::string text(header_bytes, '\0');
  read_bytes(opened.file, text.data(), header_bytes, where);
  opened.header = parse_json(text, where);
  opened.data_begin = kLengthBytes + header_bytes;
  opened.entries = read_entries(opened.header, file_bytes - opened.data_begin, where);
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
  for (const TensorEntry& entry : opened.entries) {
    if (wanted && !wanted(entry.name)) {
      continue;
    }
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(entry.dtype));
    opened.file.seekg(static_cast<std::streamoff>(opened.data_begin + entry.begin));
    read_bytes(opened.file,
               static_cast<char*>(tensor.mutable_data_ptr()),
               entry.end - entry.begin,
               concat(where, ": ", entry.name));
    result.tensors.push_back({entry.name, std::move(tensor)});
  }
  if (opened.header.contains("__metadata__")) {
    const std::string metadata_where = where + ": __metadata__";
    const Json& metadata = opened.header.at("__metadata__");
    ObjectReader reader(metadata, metadata_where);
    for (const auto& [key, value] : metadata.items()) {
      result.metadata[key] = value_as<std::string>(value, concat(metadata_where, ".", key));
    }
  }
  return result;
}

std::vector<TensorInfo> read_weight_header(const std::filesystem::path& path) {
  std::vector<TensorInfo> tensors;
  for (const TensorEntry& entry : open_weights(path).entries) {
    tensors.push_back({entry.name, std::string(format_name(entry.dtype, entry.name)), entry.shape});
  }
  return tensors;
}

TensorInfo info_of(const NamedParameter& parameter) {
  return {parameter.name,
          std::string(format_name(parameter.tensor.scalar_type(), parameter.name)),
          parameter.tensor.sizes().vec()};
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
  }
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    at::Tensor target = parameter.tensor;
    target.copy_(values.at(parameter.name));
  }
}

}  // namespace entrain::engine
