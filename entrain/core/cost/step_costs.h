// What every unit of a global batch costs on every stage, in integer nanoseconds and bytes.
//
// Read first: step_costs(). Everything that decides (assigner, schedule, planner) and everything
// that predicts (simulator) reads these tables; from here on all arithmetic is on integers.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

struct OperationTimes {
  std::chrono::nanoseconds forward{0};
  std::chrono::nanoseconds backward_input{0};   // 0 where nothing nearer the input is trainable
  std::chrono::nanoseconds backward_weight{0};  // 0 where the stage is frozen
  [[nodiscard]] std::chrono::nanoseconds backward() const {
    return backward_input + backward_weight;
  }
  OperationTimes& operator+=(const OperationTimes& other);
};

// One unit (segment in an encoder, whole sample in the LLM) on one stage.
struct UnitCost {
  OperationTimes time;                // without the launch constant
  std::int64_t activation_bytes = 0;  // kept from forward to backward, the stage's input included
  std::int64_t output_bytes = 0;      // of the message to the next stage; 0 on the LLM's last
};

struct StageCosts {
  OperationTimes launch;             // paid once per operation
  bool trainable = false;            // has parameters that take gradients
  std::int64_t parameter_bytes = 0;  // all parameters
  std::int64_t trainable_parameters = 0;
  std::chrono::nanoseconds reduce{0};  // all-reduce of the stage's gradients; 0 for one replica
  std::chrono::nanoseconds optimizer{0};
  std::vector<UnitCost> units;  // [unit]
};

struct ModuleCosts {
  std::vector<StageCosts> stages;  // [stage]
  std::vector<int> first_unit;     // [num_samples + 1]; encoders: a sample's units are consecutive
  std::vector<std::int64_t> tokens;  // [unit], in the module's own tokens
};

struct StepCosts {
  int num_samples = 0;
  std::vector<ModuleCosts> modules;  // encoders first, LLM last
  std::vector<SampleWork> work;      // [sample]
  LinkSpec link;

  [[nodiscard]] int llm_module() const { return static_cast<int>(modules.size()) - 1; }
  // Index into StageCosts::units. Chunks have no unit of their own.
  [[nodiscard]] int unit_of(int module, const WorkItem& item) const {
    return modules[static_cast<std::size_t>(module)]
               .first_unit[static_cast<std::size_t>(item.sample)] +
           (item.segment < 0 ? 0 : item.segment);
  }
  [[nodiscard]] int num_units(int module) const {
    return modules[static_cast<std::size_t>(module)].first_unit.back();
  }
};

// Frozen layers: the weight gradient is paid by trainable layers only, the input gradient where
// something trainable lies nearer the input (for the LLM any encoder layer, projectors included).
// Layers that pay neither keep no activations.
//
// A layer costs a·pairs + b·tokens + c: tokens are target tokens in the output head, and everything
// else counts its module's own; c goes to StageCosts::launch. Activation bytes are the profile's
// per token. Messages hold [tokens, hidden] in the profile's dtype, the last encoder stage's
// [llm_tokens, LLM hidden]. An all-reduce takes gradient bytes / reduce_bytes_per_second.
//
// Shapes    result.modules[m].stages[s].units: [units of m]; samples in the order of `work`.
// Requires  plan and profile are valid for the model; `work` comes from the same model.
// Ensures   a unit's time per stage and operation is rounded once to nanoseconds, halves to even.
// Throws    InvalidInput when the profile lacks a layer at the plan's tensor_parallel (or the plan
//           has context_parallel), its dtype is unknown, or the batch's total (every unit launched
//           alone) exceeds 2^62 ns or bytes.
// Cost      O(units × stages + layers).
StepCosts step_costs(const ModelSpec& model,
                     const Plan& plan,
                     const Profile& profile,
                     std::span<const SampleWork> work);

// Work of a batch of sizes, for step_costs().
std::vector<SampleWork> batch_work(const ModelSpec& model, std::span<const SampleSizes> batch);

// Duration of a compute operation on a group: launch constant plus the sum over its items.
// Requires  kind is kForward, kBackward, kBackwardInput or kBackwardWeight.
std::chrono::nanoseconds operation_time(const StepCosts& costs,
                                        OperationKind kind,
                                        const UnitKey& unit,
                                        const Group& group);
std::int64_t activation_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group);
std::int64_t output_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group);
// Time of one message over the link: latency + bytes / bandwidth, rounded up.
// Throws    InvalidInput beyond 2^62 ns.
std::chrono::nanoseconds transfer_time(const LinkSpec& link, std::int64_t bytes);

// Sum over stages of a lane of forward + backward of one unit, without launch constants.
std::chrono::nanoseconds lane_time(const StepCosts& costs,
                                   const std::vector<StageRef>& lane,
                                   int module,
                                   int unit);

}  // namespace entrain
