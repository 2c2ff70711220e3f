#include "entrain/core/spec/cost_origin.h"

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace entrain {
namespace {

// The text after `key` and its colon in a file of "key : value" lines; empty if there is none.
std::string value_of(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) {
      continue;
    }
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// `document` with an entry after the one of `after`.
Json inserted(const Json& document, const char* after, const char* key, const Json& value) {
  Json result = Json::object();
  for (const auto& [name, entry] : document.items()) {
    result[name] = entry;
    if (name == after) {
      result[key] = value;
    }
  }
  return result;
}

}  // namespace

std::string to_string(const CostOrigin& origin) {
  if (origin.device.empty()) {
    return origin.profile;
  }
  if (!origin.measured) {
    return fmt::format(
        "device {}, {}; profile {}, not measured", origin.device, origin.dtype, origin.profile);
  }
  return fmt::format("device {}{}, {}; profile {}, measured",
                     origin.device,
                     origin.machine.empty() ? "" : fmt::format(" ({})", origin.machine),
                     origin.dtype,
                     origin.profile);
}

Json with_origin(const Json& plan, const CostOrigin& origin) {
  Json costs = {{"profile", origin.profile},
                {"device", origin.device},
                {"machine", origin.machine},
                {"dtype", origin.dtype},
                {"measured", origin.measured}};
  if (!origin.links.empty()) {
    costs["links"] = origin.links;
  }
  return inserted(plan, "num_slots", "costs", costs);
}

CostOrigin cost_origin_from_json(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  CostOrigin origin;
  origin.profile = reader.optional("profile", std::string());
  origin.device = reader.optional("device", std::string());
  origin.machine = reader.optional("machine", std::string());
  origin.dtype = reader.optional("dtype", std::string());
  origin.measured = reader.optional("measured", false);
  origin.links = reader.optional("links", std::string());
  reader.finish();
  return origin;
}

std::optional<CostOrigin> plan_origin(const std::filesystem::path& path) {
  const Json document = read_json_file(path);
  if (!document.is_object() || !document.contains("costs")) {
    return std::nullopt;
  }
  return cost_origin_from_json(document["costs"], key_path(path.string(), "costs"));
}

Json with_machine(const Json& profile, const std::string& machine) {
  return inserted(profile, "device", "machine", machine);
}

std::string profile_machine(const std::filesystem::path& path) {
  const Json document = read_json_file(path);
  return document.is_object() && document.contains("machine")
             ? value_as<std::string>(document["machine"], key_path(path.string(), "machine"))
             : "";
}

std::string machine_name(const std::string& device) {
  if (device == "cpu") {
    return value_of("/proc/cpuinfo", "model name");
  }
  std::error_code error;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    return value_of(gpu.path() / "information", "Model");
  }
  return "";
}

std::string origin_mismatch(const CostOrigin& origin,
                            const std::string& device,
                            const std::string& machine) {
  if (origin.device.empty()) {
    return "";
  }
  if (!origin.measured) {
    return fmt::format("not measured (analytic, of device {})", origin.device);
  }
  if (origin.device != device) {
    return fmt::format("measured on device {}, the run computes on {}", origin.device, device);
  }
  if (origin.machine.empty() || machine.empty() || origin.machine == machine) {
    return "";
  }
  return fmt::format("measured on '{}', this machine has '{}'", origin.machine, machine);
}

}  // namespace entrain
