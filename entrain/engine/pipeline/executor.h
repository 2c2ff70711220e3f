// Runs one lane's operations of a Program: real arithmetic, real messages, one autograd graph a
// group.
//
// Read first: Executor::run(). It knows nothing of policies or schedules: the Program is the order,
// and the shapes follow from the assignment, so no rank ever asks another for a size.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/call_log.h"
#include "entrain/core/cost/memory.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/data/step_data.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/pipeline/fault_drill.h"
#include "entrain/engine/pipeline/flat_layout.h"
#include "entrain/engine/pipeline/rank_places.h"

namespace entrain::engine {

struct ExecutorOptions {
  // Seed, device, and the dtype to compute and to send with. Weights begin, are trained and are
  // checkpointed in float32, gradients are added up in it.
  StageOptions stage;
  double clip_norm = 0;           // largest global gradient norm; 0 = no clipping
  bool record_events = false;     // fill StepOutcome::events, on the first rank of every lane
  bool measure_memory = false;    // fill LaneUsage::peak_bytes and StepOutcome::working_bytes
  bool paced = false;             // wait for each operation's predicted time instead of computing
  bool overlap_reduction = true;  // under Plan::shard_optimizer (overlapped_reduction.h)
  FaultDrill drill;               // of this rank
  CallLog* log = nullptr;         // where operations are noted; null: in one of the executor's own
};

// Everything about one step that all ranks agree on.
struct StepInputs {
  const Program* program = nullptr;
  const StepCosts* costs = nullptr;                      // token counts, and times when paced
  const std::vector<std::string>* sample_ids = nullptr;  // [sample], for error messages
  std::int64_t step = 0;
  // What losses are divided by, >= 1: target tokens of all replicas, and of all steps of the update
  // as far as they are in it.
  std::int64_t target_tokens = 0;
  StepData* data = nullptr;                     // may be null when paced
  std::chrono::steady_clock::time_point start;  // common origin of measured times
  // Of the steps whose gradients are added up for one update: the first one, and the last.
  bool begins_update = true;
  bool ends_update = true;
  // Whether forward and backward run; without, the step ends an update that earlier ones have
  // gradients for.
  bool computes = true;
};

// A run of one trained parameter's elements that this rank updates.
struct TrainedPiece {
  std::string name;        // of the parameter
  std::string part;        // module, or "projector"
  bool matrix = false;     // the parameter has two dimensions or more
  std::int64_t begin = 0;  // element of the rank's shard of flat buffers (flat_layout.h)
  at::Tensor value;        // [n] float32, to be changed in place
  at::Tensor gradient;     // [n] float32
};

struct StepOutcome {
  // Cross-entropy summed over this lane's targets; 0 off the last LLM stage, and but on the lane's
  // first rank.
  double loss_sum = 0;
  double gradient_norm = 0;  // global, before clipping; the same on all ranks
  // Whether every rank's losses and the norm are numbers; the same on all ranks. Where not, the
  // optimizer has not been called.
  bool finite = true;
  std::vector<TimelineEvent> events;
  LaneUsage usage;
  // Time of the lane's thread within usage.busy; of a device that is not the processor, its own.
  std::chrono::nanoseconds processor{0};
  // Most that was allocated at any moment, temporaries of the operation at hand and messages among
  // it, parameters and their gradients not (those that an operation is just making excepted); 0
  // where not measured. usage.peak_bytes leaves the temporaries out: what is held between
  // operations, which is what the simulator predicts.
  std::int64_t working_bytes = 0;
};

class Executor {
 public:
  // Builds the lane's stages with their parameters; none when paced.
  //
  // Requires  comm.rank() stands there (rank_places.h), one rank for every place.
  // Throws    InvalidInput as check_runnable() does.
  Executor(const ModelSpec& model,
           const Plan& plan,
           int replica,
           int lane,
           Comm& comm,
           const ExecutorOptions& options);
  ~Executor();

  // Runs the step. `optimizer_step` is called at the Program's optimizer_step operation, with
  // gradients reduced over replicas and already clipped in place, and changes trained(); it may be
  // empty. It is not called where a loss or the norm is no number, which all ranks find alike.
  // Gradients are zeroed where an update begins; every trainable parameter has one. Steps that do
  // not end an update leave out the reduction and all behind it. Under Plan::shard_optimizer the
  // reduction begins while the last backward runs, where asked for and not paced; paced runs go by
  // StepCosts::reduce_buckets.
  //
  // Throws  InvalidInput for a program with tied parameters.
  //         A failure of this rank keeps its type (torch's errors become SystemFailure), names
  //         rank, step, operation, sample ids and the last operations, and aborts the communicator
  //         first, so that every other rank stops with CommAborted.
  StepOutcome run(const StepInputs& inputs, const std::function<void()>& optimizer_step);

  // Between two steps of an update: multiplies the gradients added up so far.
  void scale_gradients(double factor);

  // Forward operations only, without gradients: the sum of losses of this lane's targets.
  double evaluate(const StepInputs& inputs);

  // What forward and backward compute with: all parameters of the lane's stages, frozen ones
  // included, in layer order.
  [[nodiscard]] std::vector<NamedParameter> parameters() const;

  // What the optimizer changes, in the order of parameters(): under Plan::shard_optimizer this
  // rank's shard of the lane. Shapes  as long as the executor
  // lives, always the same tensors.
  [[nodiscard]] std::vector<TrainedPiece> trained() const;
  [[nodiscard]] const FlatLayout& layout() const;

  // What this rank holds all the time: parameters to compute with, gradients, and as optimizer
  // state the masters beside narrower parameters.
  [[nodiscard]] LaneState held_bytes() const;

  // Every weight of the lane whole and in float32, under its name, as checkpoints hold them: to be
  // copied, not changed. All ranks that share the lane, and under Plan::shard_optimizer all its
  // replicas, must call this and whole() together.
  [[nodiscard]] std::vector<NamedParameter> weights() const;
  // Takes such values over, for computing and for training.
  void set_weights(const std::vector<NamedParameter>& values);
  // The same for a flat buffer that goes with trained(): the values of every trained parameter, as
  // "NAMEsuffix". Shapes  own: [layout().shard_size()].
  [[nodiscard]] std::vector<NamedParameter> whole(const at::Tensor& own,
                                                  std::string_view suffix = "") const;
  // Takes such values over into `own`, zeros between them.
  void take(const std::vector<NamedParameter>& whole, const at::Tensor& own) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace entrain::engine
