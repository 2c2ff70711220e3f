// Everything `entrain train` needs, from one TOML file and `--set path=value`.
//
// Read first: RunConfig. Paths are relative to the working directory. The resolved form is saved
// with the run as config.json and reads back unchanged.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/model.h"

namespace entrain::engine {

inline constexpr const char* kKeepLastBatch = "keep";
inline constexpr std::int64_t kMostSteps = 1'000'000'000;  // of a run

struct DataConfig {                // [data]
  std::string train;               // index file of the training samples
  std::string validation;          // index file, or empty for none
  double validation_fraction = 0;  // or this share of the training samples, in [0, 1): 0 = none
  int global_batch = 0;            // samples per step over all replicas, >= 1
  // What becomes of an epoch's last samples where they do not fill a global batch: "drop" leaves
  // them out of that epoch, kKeepLastBatch ("keep") makes them a smaller batch.
  std::string last_batch = "drop";
  // Media that the model has no encoder for and that the run may do without: "audio", "image".
  std::vector<std::string> ignore_modality;
  std::int64_t read_ahead_mib = 256;  // decoded images kept ahead per rank, >= 1
};

struct PlanConfig {                   // [plan]
  std::string file;                   // plan JSON; when given, only what says so may be overridden
  int replicas = 1;                   // >= 1
  int num_slots = 8;                  // default microbatches per replica, >= 1
  std::map<std::string, int> stages;  // [plan.stages] lanes per module, each >= 1; 1 where absent
  // [plan.tensor_parallel] ranks that share each lane of a module, >= 1; 1 where absent
  std::map<std::string, int> tensor_parallel;
  bool single_lane = false;  // all stages on one lane
  std::string policy = "entrain";
  std::string schedule = "1f1b";  // any of schedule_names()
  std::string profile;            // profile JSON; empty: analytic "cpu-2core"
  // Index or manifest of the samples that the plan was made for, empty: data.train. The run watches
  // whether its work drifts away from them (drift_watch.h).
  std::string index;
  int max_deferral = -1;  // slots; -1 = any
  bool chunks =
      false;  // whether the `entrain` policy may cut a sample's LLM work into token ranges
  int evaluations = 1000;            // of the `entrain` policy per step, >= 0
  std::vector<std::string> without;  // parts the `entrain` policy must do without, for ablations:
                                     // "shape", "slots", "deferral", "segments", "chunks"
  std::int64_t bytes_per_lane_mib = 0;  // activation memory; 0 = no limit
  // Optimizer state shared out among replicas; where absent as `file` says, else not. May override.
  std::optional<bool> shard_optimizer;
};

// Where a part of the model differs, in the units of [optimizer].
struct PartOptimizer {  // [optimizer.modules.NAME]
  std::optional<double> learning_rate;
  std::optional<double> final_fraction;
  std::optional<int> warmup_steps;
  std::optional<double> weight_decay;
};

struct OptimizerConfig {        // [optimizer]
  double learning_rate = 1e-3;  // peak, > 0
  double final_fraction = 0.1;  // of the peak, reached at the last update, in [0, 1]
  int warmup_steps = 20;        // updates, linear, >= 0
  double weight_decay = 0.01;   // on matrices only, >= 0
  double beta1 = 0.9;           // in [0, 1)
  double beta2 = 0.95;          // in [0, 1)
  double epsilon = 1e-8;        // > 0
  double clip_norm = 1.0;       // global gradient norm; 0 = no clipping
  int update_every = 1;         // steps whose gradients are added up for one update, >= 1
  std::map<std::string, PartOptimizer> modules;  // by module name; "projector": of all encoders
};

struct ValidationConfig {  // [validation]
  int every = 0;           // steps between validations; 0 = only at the end
  int samples = 128;       // from the head of the validation index, >= 1
};

inline constexpr const char* kResumeAuto = "auto";
inline constexpr const char* kResumeAccept = "accept";
inline constexpr const char* kResumeNever = "never";

struct CheckpointConfig {        // [checkpoint]
  std::int64_t every_steps = 0;  // steps between two; 0 = by the clock and at the end alone
  double every_minutes = 15;     // of rank 0's clock between two, >= 0; 0 = off
  int keep = 2;                  // newest ones that stay, >= 1
  std::string folder;            // empty: "checkpoints" in the run folder
  // "auto": go on from the folder's newest where it is of this same run; "accept": go on from it
  // though settings differ; "never": set an earlier run aside and begin anew; else a checkpoint, a
  // folder of them or a run folder to start from.
  std::string resume = kResumeAuto;
};

// What forward and backward compute with and lanes send each other. Weights are trained, and their
// gradients added up, in float32 either way.
enum class Precision : std::uint8_t { kFp32, kBf16 };
std::string_view name_of(Precision precision);        // "fp32", "bf16"
std::string_view dtype_name_of(Precision precision);  // "float32", "bfloat16": as profiles say it

// Which layers of a stage keep their input alone and run again in backward.
enum class RecomputeKind : std::uint8_t {
  kPlan,   // "plan": as the plan says
  kNone,   // "none"
  kFull,   // "full": all
  kEvery,  // n: one of every n, rounded up; the stage's first ones, as plans count them
  kFit,    // "fit": as few as keep the plan's memory limits, the lanes that lack most first
};
// Of those with a name, kEvery has none.
inline constexpr std::array kRecomputeNames = {std::pair("plan", RecomputeKind::kPlan),
                                               std::pair("none", RecomputeKind::kNone),
                                               std::pair("full", RecomputeKind::kFull),
                                               std::pair("fit", RecomputeKind::kFit)};
struct RecomputePolicy {
  RecomputeKind kind = RecomputeKind::kPlan;
  int every = 0;  // kEvery: n >= 1
};

// Where ranks compute, as device_of() takes it.
inline constexpr std::array<std::string_view, 2> kDevices = {"cpu", "cuda"};
inline constexpr const char* kNccl = "nccl";
inline constexpr std::array<std::string_view, 2> kDeviceMessages = {"host", kNccl};
inline constexpr std::array<std::string_view, 2> kMemoryChecks = {"stop", "warn"};

struct ExecutionConfig {  // [execution]
  // Of several GPUs ranks take one each in turn.
  std::string device = "cpu";
  // How tensors of GPUs pass between ranks that are processes: "host", by way of the host, which
  // any ranks can; "nccl", between GPUs, of which every rank then needs its own.
  std::string device_messages = "host";
  Precision precision = Precision::kFp32;
  RecomputePolicy recompute;
  bool paced = false;  // wait for predicted times instead of computing
  // Under Plan::shard_optimizer: send gradients to where they are summed as soon as the last
  // backward has made them, instead of behind it. Changes no bit.
  bool overlap_reduction = true;
  // What a run does whose predicted memory this host or its devices do not have (memory_fit.h): one
  // of kMemoryChecks. "stop": nothing is allocated; "warn": it goes on, as a prediction may be
  // wrong.
  std::string memory_check = "stop";
  // Record what activations every lane holds at most, beside the prediction, in metrics.jsonl; the
  // allocator then reports every tensor, which costs microseconds each.
  bool measure_memory = false;
  // Write the ids of every step's samples into metrics.jsonl, in drawn order.
  bool log_samples = false;
  double deadline_seconds = 120;  // of every blocking call between ranks, > 0
  // That a run told to stop has for its step, checkpoint and weights, >= 0; then it ends without.
  // The default leaves a margin to the 30 s after which Kubernetes and torchrun kill.
  double stop_seconds = 20;
  int trace_step = 3;  // step whose predicted and measured timelines are written; -1 = none
  // [replica, lane, step]: that rank (of a lane's ranks the first) throws in the middle of that
  // step, so that one can see how a failing rank stops the others and is reported; empty = no
  // drill.
  std::vector<int> fault_drill;
  // What it does instead of throwing: "throw", "hang" (for three deadlines), "die" (without a
  // word), "wrong-size" (a message with a row too many), "nan" (in one of its outputs).
  std::string fault_kind = "throw";
};

inline constexpr const char* kSkipStep = "skip-step";

struct FaultConfig {                   // [faults]; docs/faults.md
  std::string on_bad_sample = "stop";  // or "skip-step": no rank runs a step that has one
  std::string on_nan = "stop";         // or "skip-step": such a step adds nothing to an update
  int max_skips_in_a_row = 10;         // more than these stop the run, >= 0
};

struct RunConfig {
  std::string output;  // run folder, not empty
  // Exactly one of both is given. With `epochs`, prepare_run() sets `steps` when it knows the data.
  std::int64_t steps = 0;   // >= 1
  std::int64_t epochs = 0;  // passes over the training samples, >= 1; 0: `steps` says how long
  std::uint64_t seed = 0;
  std::string model_file;           // `model = "model.toml"`
  std::vector<std::string> freeze;  // as freeze_modules() reads
  DataConfig data;
  PlanConfig plan;
  OptimizerConfig optimizer;
  ValidationConfig validation;
  CheckpointConfig checkpoint;
  ExecutionConfig execution;
  FaultConfig faults;
};

// Throws  InvalidInput with file, key path, what was given and what is allowed; unknown keys with a
//         suggestion. `overrides` are `path.to.key=value` texts, applied before checking; one of
//         steps or epochs replaces the other of the file.
RunConfig read_run_config(const std::filesystem::path& path,
                          const std::vector<std::string>& overrides);
RunConfig run_config_from_json(const Json& document, const std::string& where);
// Holds `epochs` without `steps` where epochs are given.
Json to_json(const RunConfig& config);

// Throws  InvalidInput when steps or checkpoint.every_steps end between two updates.
void check_whole_updates(const RunConfig& config, const std::string& where);

// The model file with `freeze` applied: a module named there takes no weight gradients.
ModelSpec run_model(const RunConfig& config);

// Where the run writes its checkpoints.
std::filesystem::path checkpoint_folder(const RunConfig& config);

// What holds for a part ("llm", an encoder, "projector"): [optimizer] with its own keys over it.
OptimizerConfig optimizer_of(const OptimizerConfig& config, const std::string& part);

}  // namespace entrain::engine
