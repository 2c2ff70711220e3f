// Finding results of a study of the paper. Internal to its page.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/base/json.h"

namespace entrain {

struct Contestant {
  std::string planner;
  std::string policy;
  std::string schedule;
};

// As published.
inline const Contestant kDistTrain = {"one-sample", "disttrain", "1f1b"};
inline const Contestant kEntrainPaper = {"b-min", "entrain-paper", "1f1b"};
inline const Contestant kOurs = {"ours", "entrain", "entrain"};
// Under the plan of all devices that our search finds.
inline const Contestant kSearched = {"searched", "entrain", "entrain"};

std::vector<const Json*> of_kind(const std::vector<Json>& results, const std::string& kind);

// "coco, 1b, frozen"
std::string setting_name(const Json& result);
// "coco.1b.frozen", of file names.
std::string setting_file(const Json& result);

// Whether the row's planner chose replicas and degrees too, instead of the paper's.
bool plans_all_devices(const Json& row);
// Whether the row ran on every step within its limit.
bool has_step(const Json& row);
// Seconds, median over steps. Requires  has_step().
double step_of(const Json& row);

// The row of a contestant that has a step; null where there is none.
const Json* row_of(const Json& result, const Contestant& whose, const std::string& memory);

// Milliseconds: standard deviation of forward times over a replica's slots, mean over replicas,
// summed over encoders, or the LLM's.
double slot_std_ms(const Json& result, const Json& row, bool encoders);

}  // namespace entrain
