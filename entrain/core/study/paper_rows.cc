#include "entrain/core/study/paper_rows.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace entrain {

std::vector<const Json*> of_kind(const std::vector<Json>& results, const std::string& kind) {
  std::vector<const Json*> found;
  for (const Json& result : results) {
    if (result.at("kind") == kind) {
      found.push_back(&result);
    }
  }
  return found;
}

std::string setting_name(const Json& result) {
  std::string name =
      result.at("data").get<std::string>() + ", " + result.at("model").get<std::string>();
  const std::string variant = result.value("variant", "");
  return variant.empty() ? name : name + ", " + variant;
}

std::string setting_file(const Json& result) {
  std::string name = setting_name(result);
  for (std::size_t comma = name.find(", "); comma != std::string::npos; comma = name.find(", ")) {
    name.replace(comma, 2, ".");
  }
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool plans_all_devices(const Json& row) {
  const std::string planner = row.at("planner");
  return planner == "dflop" || planner == "orchmllm" || planner == kSearched.planner;
}

bool has_step(const Json& row) {
  return row.at("refused") == 0 && row.contains("step_s") && row.at("over_bytes") == 0;
}

double step_of(const Json& row) {
  return row.at("step_s").get<double>();
}

const Json* row_of(const Json& result, const Contestant& whose, const std::string& memory) {
  for (const Json& row : result.at("rows")) {
    if (row.at("planner") == whose.planner && row.at("policy") == whose.policy &&
        row.at("schedule") == whose.schedule && row.at("memory") == memory && has_step(row)) {
      return &row;
    }
  }
  return nullptr;
}

double slot_std_ms(const Json& result, const Json& row, bool encoders) {
  const Json& modules = result.at("modules");
  double seconds = 0;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (encoders == (i + 1 < modules.size())) {
      seconds += row.at("modules").at(modules[i].get<std::string>()).at("std_s").get<double>();
    }
  }
  return 1e3 * seconds;
}

}  // namespace entrain
