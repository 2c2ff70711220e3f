// Where costs come from: which device, measured on which machine. Profiles and plans record it, so
// that a reader of their figures, and a run on another machine, can know.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "entrain/core/base/json.h"

namespace entrain {

struct CostOrigin {
  std::string profile;  // file, "analytic:a40", or "costs: FILE" for costs of one's own
  std::string device;   // "cpu", "cuda", "a40"; empty for costs of one's own
  std::string machine;  // name of the processor or GPU; empty where nothing was measured or noted
  std::string dtype;    // empty for costs of one's own
  bool measured = false;
  bool operator==(const CostOrigin&) const = default;
};

// "profile profile.json: measured on 'AMD EPYC 7763' (cpu, float32)", "profile analytic:a40: a40,
// bfloat16, not measured"
std::string to_string(const CostOrigin& origin);

// The document with the key "costs" behind "num_slots", for plans.
Json with_origin(const Json& plan, const CostOrigin& origin);
CostOrigin cost_origin_from_json(const Json& document, const std::string& where);
// What a plan file says; nothing in files that were written before it was recorded.
std::optional<CostOrigin> plan_origin(const std::filesystem::path& path);

// The document with the key "machine" behind "device", for profiles.
Json with_machine(const Json& profile, const std::string& machine);
// Of a profile file; empty where it names none.
std::string profile_machine(const std::filesystem::path& path);

// The name of this machine's processor ("cpu") or first GPU ("cuda"), as the system has it; empty
// where it has none.
std::string machine_name(const std::string& device);

// Why predictions from these costs are not of a run that computes on `device` of the machine
// `machine`: "analytic (a40)", "measured on 'A', this machine has 'B'"; empty where they are, or
// where nobody can know.
std::string origin_mismatch(const CostOrigin& origin,
                            const std::string& device,
                            const std::string& machine);

}  // namespace entrain
