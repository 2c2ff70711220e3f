// The cost of every unit of a global batch on every stage, in integer nanoseconds and bytes.
//
// Read first: step_costs(). Everything that decides (assigner, schedule, planner) and everything
// that predicts (simulator) reads these tables; from here on all arithmetic is on integers.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "entrain/core/base/shared_vector.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

// Upper limit of a batch's total, so that sums of sums stay within 64 bits.
inline constexpr std::int64_t kMostNanoseconds = std::int64_t{1} << 62;

struct OperationTimes {
  std::chrono::nanoseconds forward{0};
  std::chrono::nanoseconds backward_input{0};   // 0 if no trainable weight needs it
  std::chrono::nanoseconds backward_weight{0};  // 0 if the stage is frozen
  std::chrono::nanoseconds split{0};  // extra time of a backward in halves over a whole one
  [[nodiscard]] std::chrono::nanoseconds backward() const {
    return backward_input + backward_weight;
  }
  // The second half of a split backward; the first is backward_input.
  [[nodiscard]] std::chrono::nanoseconds weight_half() const { return backward_weight + split; }
  OperationTimes& operator+=(const OperationTimes& other) {
    forward += other.forward;
    backward_input += other.backward_input;
    backward_weight += other.backward_weight;
    split += other.split;
    return *this;
  }
};

// Activations that recomputation restores in backward, beyond those kept since the forward.
struct RecomputeBytes {
  std::int64_t all = 0;  // of all recomputed layers: for a split backward, until its weight half
  std::int64_t largest = 0;  // of one of them: while a whole backward runs, layer by layer
  RecomputeBytes& operator+=(const RecomputeBytes& other) {
    all += other.all;
    largest += other.largest;
    return *this;
  }
  bool operator==(const RecomputeBytes&) const = default;
};

// One unit (segment in an encoder, whole sample in the LLM) on one stage.
struct UnitCost {
  OperationTimes time;  // without the launch constant
  // Bytes per device of the lane.
  std::int64_t activation_bytes = 0;  // kept from forward to backward, the stage's input included
  std::int64_t output_bytes = 0;      // of the message to the next stage; 0 on the LLM's last
  RecomputeBytes recompute{};
};

// What one attention pair, token and target token of a sample add to a cost, all >= 0.
struct CostWeights {
  double per_pair = 0;
  double per_token = 0;
  double per_target_token = 0;
  bool operator==(const CostWeights&) const = default;
};

// How a sample's cost on an LLM stage is distributed over its tokens: all that chunks need. Only
// ratios matter, the whole sample's cost is in StageCosts::units; a cost without weights
// is distributed evenly over the tokens.
struct ChunkWeights {
  CostWeights forward;
  CostWeights backward_input;
  CostWeights backward_weight;
  CostWeights split;
  CostWeights activation;
  CostWeights recompute{};
  // Bytes that the largest recomputed layer restores: of decoders per token, of the output head
  // per target token. A chunk has the larger of the two.
  CostWeights recompute_largest{};
  bool operator==(const ChunkWeights&) const = default;
};

struct StageCosts {
  OperationTimes launch;                  // paid once per operation
  bool trainable = false;                 // has parameters with gradients
  std::int64_t parameter_bytes = 0;       // all parameters, per device of the lane
  std::int64_t trainable_parameters = 0;  // per device of the lane
  // All-reduce of the stage's gradients over replicas and context ranks; 0 if there is only one.
  // Under a sharded optimizer reduce-scatter, half of it; the gather, the other half, counts as
  // optimizer.
  std::chrono::nanoseconds reduce{0};
  std::chrono::nanoseconds optimizer{0};
  SharedVector<UnitCost> units;   // [unit]; stages of like layers share them
  std::int64_t output_width = 0;  // numbers of a row that it sends on
  ChunkWeights chunk_weights;     // LLM stages
  // LLM stages: keys and values of all their layers, per token of the lane and device.
  std::int64_t key_value_bytes_per_token = 0;
};

struct ModuleCosts {
  std::vector<StageCosts> stages;  // [stage]
  std::vector<int> first_unit;     // [num_samples + 1]; encoders: a sample's units are consecutive
  std::vector<std::int64_t> tokens;  // [unit], in the module's own tokens
  // [run] how many neighbouring units of a sample are equal on every stage, such as windows of a
  // recording; in all they are all units. Empty: not known.
  std::vector<int> runs;

  // visit(unit, count) for the first unit of every run.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    const bool known = !runs.empty();
    const std::size_t end = known ? runs.size() : tokens.size();
    int unit = 0;
    for (std::size_t run = 0; run < end; ++run) {
      const int count = known ? runs[run] : 1;
      visit(static_cast<std::size_t>(unit), count);
      unit += count;
    }
  }
};

// Buckets per stage of a reduction that overlaps the backward's tail, as in the engine under
// a sharded optimizer.
inline constexpr int kReduceBuckets = 4;

struct StepCosts {
  int num_samples = 0;
  std::vector<ModuleCosts> modules;  // encoders first, LLM last
  SharedVector<SampleWork> work;     // [sample]
  LinkSpec link;
  int reduce_buckets = 0;  // per stage; 0: reductions run at the end of the step

  [[nodiscard]] int llm_module() const { return static_cast<int>(modules.size()) - 1; }
  // Index into StageCosts::units: that of its whole sample for a chunk, whose own cost is
  // unit_cost().
  [[nodiscard]] int unit_of(int module, const WorkItem& item) const {
    return modules[static_cast<std::size_t>(module)]
               .first_unit[static_cast<std::size_t>(item.sample)] +
           (item.segment < 0 ? 0 : item.segment);
  }
  [[nodiscard]] int num_units(int module) const {
    return modules[static_cast<std::size_t>(module)].first_unit.back();
  }
};

// Frozen layers: only trainable layers, those with a trainable parameter, pay the weight gradient,
// for what of them is trained (trained_profile.h). A layer pays the input gradient if
// something trainable is nearer the input (for the LLM any encoder layer, projectors included) or
// within the layer: gradients reach a trainable layer's first weights through all layers after
// them. So the first trainable layer pays it too, unless it is a patch or token embedding, which
// are one operation. This includes the gradient of the first operation's input, which autograd
// skips: a norm's, or that of the audio embedding's first convolution. Layers that pay neither
// keep no activations.
//
// Recomputed layers (ModulePlan::recompute) that pay either keep only their input, and pay their
// forward once more, by the profile's curve for that if it has one, as a part of the input
// gradient: it runs before either half of a backward. Patch and token embeddings do not, since they
// keep only their input anyway. If chunks are allowed, a decoder also keeps its keys and values,
// which later chunks read. Restored activations exist for one layer at a time; in a split
// backward they stay until the weight half has read them.
//
// A backward in halves takes the profile's `split` of every layer that pays both gradients longer
// than a whole one, all of it in the weight half.
//
// A layer costs a·pairs + b·tokens + c: tokens are target tokens in the output head, and the
// module's own elsewhere; c goes to StageCosts::launch. Activation bytes are the profile's
// per token, a decoder layer's keys and values among them. Messages hold [tokens, hidden] in the
// profile's dtype, the last encoder stage's [llm_tokens, LLM hidden]. An all-reduce takes gradient
// bytes / reduce_bytes_per_second.
//
// A lane's tensor × context devices act as one: times are the lane's, at the profile's entries for
// the module's degrees; bytes are those of one device, which holds its share of activations and of
// parameters (sharding.h) and sends and receives its share of every message on its own link.
// Between lanes of different numbers of devices a message is divided among the smaller number:
// an upper bound for the larger lane's memory.
//
// Shapes    result.modules[m].stages[s].units: [units of m]; samples in the order of `work`.
// Requires  plan and profile are valid for the model; `work` comes from the same model.
// Ensures   a unit's time per stage and operation is rounded once to nanoseconds, halves to even.
// Throws    InvalidInput when the profile lacks a layer at the plan's tensor_parallel and
//           context_parallel, its dtype is unknown, or the batch's total (every unit launched
//           alone) exceeds 2^62 ns or bytes.
// Cost      O(units × stages + layers).
StepCosts step_costs(const ModelSpec& model,
                     const Plan& plan,
                     const Profile& profile,
                     std::span<const SampleWork> work);
// The same without a copy of the work.
StepCosts step_costs(const ModelSpec& model,
                     const Plan& plan,
                     const Profile& profile,
                     const SharedVector<SampleWork>& work);

// Work of a batch of sizes, for step_costs().
std::vector<SampleWork> batch_work(const ModelSpec& model, std::span<const SampleSizes> batch);

// Cost of one item of a slot on one stage of a module: a unit's own, or a chunk's.
//
// A chunk [f, t) costs C(t) - C(f), where C(x) is the share of the sample's first x tokens in the
// whole sample's cost, by the stage's weights, rounded once: x² / 2 attention pairs (rounded down),
// x tokens, and the target tokens among them, which are the sequence's last. So a chunk has
// (t² - f²) / 2 pairs, and the chunks of a sample add up to exactly its cost, each time within 2 ns
// of its exact share. Output bytes are those of t - f tokens. Its slot does not matter.
//
// Throws    InvalidInput for a chunk that is no range within its sample's tokens.
// Cost      O(1), no allocation.
UnitCost unit_cost(const StepCosts& costs, int module, int stage, const WorkItem& item);

// Whether the item ends its sample: false for a chunk that is followed by another.
bool ends_sample(const StepCosts& costs, const WorkItem& item);

// Bytes of an LLM item's keys and values on a stage that a later chunk of its sample reads; 0 when
// the item ends its sample. Their gradients take as many bytes again.
std::int64_t key_value_bytes(const StepCosts& costs, int stage, const WorkItem& item);

// Duration of a compute operation on a group: launch constant plus the sum over its items.
// Requires  kind is kForward, kBackward, kBackwardInput or kBackwardWeight.
std::chrono::nanoseconds operation_time(const StepCosts& costs,
                                        OperationKind kind,
                                        const UnitKey& unit,
                                        const Group& group);
// Sums over a group's items.
std::int64_t activation_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group);
std::int64_t output_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group);
// The largest layers of the items need not be the same one: their sum is an upper bound.
RecomputeBytes recompute_bytes(const StepCosts& costs, const UnitKey& unit, const Group& group);
// Time of one message over the link: latency + bytes / bandwidth, rounded up.
// Throws    InvalidInput beyond 2^62 ns.
std::chrono::nanoseconds transfer_time(const LinkSpec& link, std::int64_t bytes);

}  // namespace entrain
