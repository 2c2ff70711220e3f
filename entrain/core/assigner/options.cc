#include <array>

#include <fmt/format.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

struct Part {
  std::string_view name;
  bool EntrainOptions::*flag;
};

constexpr std::array kParts = {
    Part{"joint", &EntrainOptions::joint},
    Part{"replicas", &EntrainOptions::replica_balance},
    Part{"shape", &EntrainOptions::shape},
    Part{"order", &EntrainOptions::slot_order},
    Part{"slots", &EntrainOptions::choose_slots},
    Part{"deferral", &EntrainOptions::defer},
    Part{"segments", &EntrainOptions::split_segments},
    Part{"chunks", &EntrainOptions::chunks},
    Part{"search", &EntrainOptions::search},
    Part{"rivals", &EntrainOptions::rivals},
    Part{"tuning", &EntrainOptions::tuning},
    Part{"bytes", &EntrainOptions::slot_bytes},
};

}  // namespace

EntrainOptions entrain_options_without(const std::vector<std::string>& parts,
                                       const std::string& where) {
  EntrainOptions options;
  for (const std::string& name : parts) {
    bool found = false;
    for (const Part& part : kParts) {
      if (part.name == name) {
        options.*part.flag = false;
        found = true;
      }
    }
    if (!found) {
      std::vector<std::string> names;
      for (const Part& part : kParts) {
        names.emplace_back(part.name);
      }
      throw InvalidInput(
          fmt::format("{}: unknown part '{}'{}", where, name, suggestion(name, names)));
    }
  }
  return options;
}

}  // namespace entrain
