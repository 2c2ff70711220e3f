// The origin of costs: device and machine. Profiles and plans record it, so that readers of their
// figures, and runs on another machine, can check it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "entrain/core/base/json.h"

namespace entrain {

struct CostOrigin {
  std::string profile;  // file, "analytic:a40", or "costs: FILE" for the user's own costs
  std::string device;   // "cpu", "cuda", "a40"; empty for the user's own costs
  std::string machine;  // name of the processor or GPU; empty if not measured or unknown
  std::string dtype;    // empty for the user's own costs
  bool measured = false;
  std::string links{};  // cluster file whose links replaced the profile's; empty if none
  bool operator==(const CostOrigin&) const = default;
};

// "profile profile.json: measured on 'AMD EPYC 7763' (cpu, float32)", "profile analytic:a40: a40,
// bfloat16, not measured"
std::string to_string(const CostOrigin& origin);

// The document with the key "costs" after "num_slots", for plans; "links" only where there are any.
Json with_origin(const Json& plan, const CostOrigin& origin);
CostOrigin cost_origin_from_json(const Json& document, const std::string& where);
// The origin in a plan file; empty for files written before it was recorded.
std::optional<CostOrigin> plan_origin(const std::filesystem::path& path);

// The document with the key "machine" after "device", for profiles.
Json with_machine(const Json& profile, const std::string& machine);
// The machine in a profile file; empty if it names none.
std::string profile_machine(const std::filesystem::path& path);

// The name of this machine's processor ("cpu") or first GPU ("cuda"), from the system; empty
// if unknown.
std::string machine_name(const std::string& device);

// Why predictions from these costs do not apply to a run that computes on `device` of the machine
// `machine`: "analytic (a40)", "measured on 'A', this machine has 'B'"; empty if they apply, or
// if unknown.
std::string origin_mismatch(const CostOrigin& origin,
                            const std::string& device,
                            const std::string& machine);

}  // namespace entrain
