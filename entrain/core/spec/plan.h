// The static parallel plan: which layers run on which lane, how many replicas and slots.
//
// A lane is one position of a replica's pipeline. It hosts one stage, or several (co-located,
// single-lane). JSON form in docs of `to_json`; see the plan format in ARCHITECTURE.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/model.h"

namespace entrain {

struct LayerRange {
  int begin = 0;  // first layer of the module
  int end = 0;    // one past the last, > begin
  bool operator==(const LayerRange&) const = default;
};

struct ModulePlan {
  std::string name;  // as in the model
  int tensor_parallel = 1;
  int context_parallel = 1;
  std::vector<LayerRange> stages;  // contiguous, covering all layers
  // [stage] how many of its layers, from the first one on, keep only their input and run their
  // forward again in backward; empty: none anywhere.
  std::vector<int> recompute = {};

  [[nodiscard]] int recomputed(int stage) const {
    return recompute.empty() ? 0 : recompute[static_cast<std::size_t>(stage)];
  }
  bool operator==(const ModulePlan&) const = default;
};

struct StageRef {
  int module = 0;
  int stage = 0;
  bool operator==(const StageRef&) const = default;
};

// Simulated replicas that the `entrain` policy may spend on a step unless it is told: so many for
// up to 4 replicas, then 1,000 × √replicas (11,313 for 128), at most 10⁶. Each of 800 operations:
// larger ones use it up sooner (assigner.h).
inline constexpr int kUsualEvaluations = 1800;
int default_evaluations(int replicas);

// Limits on assignments and programs.
struct PlanLimits {
  std::int64_t bytes_per_lane = 0;       // activations, for every lane; 0 = no limit
  std::vector<std::int64_t> lane_bytes;  // [lane] instead of bytes_per_lane; empty: use that
  int max_deferral = -1;  // slots between a segment's encoder slot and its LLM slot; -1 = any
  bool chunks = false;    // whether LLM work may be cut into token ranges
  int evaluations = kUsualEvaluations;  // that the `entrain` policy may spend on a step
  // Activation bytes that a lane may hold; 0 = no limit.
  [[nodiscard]] std::int64_t bytes_of(int lane) const {
    return lane_bytes.empty() ? bytes_per_lane : lane_bytes[static_cast<std::size_t>(lane)];
  }
  bool operator==(const PlanLimits&) const = default;
};

// Bound and result of the search that made the plan; zero if not computed.
struct PlanCertificate {
  double lower_bound_s = 0;
  double simulated_s = 0;
  double ratio = 0;  // simulated / bound
  double dynamic_regret = 0;
  int b_min = 0;
  // Number of global batches, besides those used to choose it, that were found to fit in memory.
  int further_batches = 0;
  bool operator==(const PlanCertificate&) const = default;
};

struct Plan {
  int replicas = 1;   // >= 1
  int num_slots = 1;  // default microbatches per replica, >= 1; assignments may differ
  std::vector<ModulePlan> modules;           // in module order: encoders, then "llm"
  std::vector<std::vector<StageRef>> lanes;  // every stage exactly once
  std::string policy = "entrain";
  std::string schedule = "1f1b";
  PlanLimits limits;
  // The optimizer's state is sharded over replicas (ZeRO-1): each sums, updates and sends
  // its own share of a lane's trained parameters.
  bool shard_optimizer = false;
  PlanCertificate certificate;

  [[nodiscard]] int num_lanes() const { return static_cast<int>(lanes.size()); }
  [[nodiscard]] int lane_of(int module, int stage) const;  // -1 when absent
  bool operator==(const Plan&) const = default;
};

// Whether some stage recomputes a layer.
bool recomputes(const ModulePlan& module);
bool recomputes(const Plan& plan);
// Every layer of every stage.
void recompute_all(Plan& plan);

// One lane a stage, in module order.
std::vector<std::vector<StageRef>> default_lanes(const std::vector<ModulePlan>& modules);

// A plan that cuts each module into `stages[module]` near-equal runs of layers.
// Throws  InvalidInput when a module has fewer layers than stages.
Plan even_plan(const ModelSpec& model, const std::vector<int>& stages, int replicas, int num_slots);

Plan read_plan(const std::filesystem::path& path, const ModelSpec& model);
Plan plan_from_json(const Json& document, const ModelSpec& model, const std::string& where);
Json to_json(const Plan& plan);
// Throws  InvalidInput when the plan does not fit the model: layers not covered, stage order, a
//         stage on no lane or on two, lanes that hold stages of a module out of order.
void validate(const Plan& plan, const ModelSpec& model, const std::string& where);
// Digest of what decides a run, without the certificate.
std::string digest(const Plan& plan);

}  // namespace entrain
