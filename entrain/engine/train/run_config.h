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

#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"
#include "entrain/core/dataset/mixture.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain::engine {

inline constexpr const char* kKeepLastBatch = "keep";
inline constexpr std::int64_t kMostSteps = 1'000'000'000;  // of a run

struct DataConfig {                // [data]
  std::string train;               // index file of the training samples
  std::string validation;          // index file, or empty for none
  double validation_fraction = 0;  // or this fraction of the training samples, in [0, 1): 0 = none
  int global_batch = 0;            // samples per step over all replicas, >= 1
  // An epoch's last samples that do not fill a global batch: "drop" leaves
  // them out of that epoch, kKeepLastBatch ("keep") makes them a smaller batch.
  std::string last_batch = "drop";
  // Steps within which oversized samples are held (hold.h), in [1, kMostHeldSteps]; 1 (or 0 in the
  // file): off.
  int hold = 1;
  std::vector<MixturePart> mixture;  // [data.mixture] the shares of samples; empty: epochs of all
  // Media that the model has no encoder for and that the run may ignore: "audio", "image".
  std::vector<std::string> ignore_modality;
  std::int64_t read_ahead_mib = 256;  // decoded images kept ahead per rank, >= 1
  // Threads that decode, of each rank, in [0, 256]; 0: the host's cores divided by its ranks, 1
  // to 8.
  int decode_threads = 0;
  // Ranks of a lane that are processes of one host share one decode (lane_feed.h); not with `feed`.
  bool share_decoding = true;
  // Feeds that decode for this run (feed_server.h), as HOST:PORT; each rank begins with another.
  std::vector<std::string> feed;
  std::string feed_key;        // file of the feeds' key; empty only for feeds of this host
  double feed_deadline_s = 2;  // after which a silent feed is lost, in [0.1, 3600]
};

struct PlanConfig {                   // [plan]
  std::string file;                   // plan JSON; if given, only keys marked so may be overridden
  int replicas = 1;                   // >= 1
  int num_slots = 8;                  // default microbatches per replica, >= 1
  std::map<std::string, int> stages;  // [plan.stages] lanes per module, each >= 1; 1 where absent
  // [plan.tensor_parallel] ranks that share each lane of a module, >= 1; 1 where absent
  std::map<std::string, int> tensor_parallel;
  bool single_lane = false;        // all stages on one lane
  std::string policy = "entrain";  // any of policy_names()
  std::string schedule = "1f1b";   // any of schedule_names()
  std::string profile;             // profile JSON; empty: analytic "cpu-2core"
  // Index or manifest of the samples that the plan was made for; empty: data.train. The run watches
  // whether its work drifts from them (drift_watch.h).
  std::string index;
  int max_deferral = -1;  // slots; -1 = any
  bool chunks =
      false;  // whether the `entrain` policy may cut a sample's LLM work into token ranges
  int evaluations = kUsualEvaluations;  // of the `entrain` policy per step, >= 0
  int assign_threads = 1;               // that assign a step; the assignment is the same
  std::vector<std::string> without;     // parts the `entrain` policy omits, for ablations:
                                        // "shape", "slots", "deferral", "segments", "chunks"
  std::int64_t bytes_per_lane_mib = 0;  // activation memory; 0 = no limit
  // Optimizer state sharded over replicas; default: as in `file`, else false. May be overridden.
  std::optional<bool> shard_optimizer;
  // Keys of the run file whose place `file` takes; not saved.
  std::vector<std::string> unused;
};

// Overrides for a part of the model, in the units of [optimizer].
struct PartOptimizer {                   // [optimizer.modules.NAME]
  std::optional<double> learning_rate;   // peak, > 0; default of each: the key of [optimizer]
  std::optional<double> final_fraction;  // of the peak, in [0, 1]
  std::optional<int> warmup_steps;       // updates, >= 0
  std::optional<double> weight_decay;    // on matrices only, >= 0
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
  std::int64_t every_steps = 0;  // between two; 0 = only by the clock and at the end
  double every_minutes = 15;     // minutes between two by rank 0's clock, >= 0; 0 = off
  int keep = 2;                  // newest ones to keep, >= 1
  std::string folder;            // empty: "checkpoints" in the run folder
  // "auto": continue from the folder's newest if it is of this same run; "accept": continue even
  // if settings differ; "never": set an earlier run aside and start again; else a checkpoint, a
  // folder of them or a run folder to start from.
  std::string resume = kResumeAuto;
};

// Precision of forward, backward and messages between lanes. Weights are trained, and their
// gradients accumulated, in float32 either way.
enum class Precision : std::uint8_t { kFp32, kBf16 };
std::string_view name_of(Precision precision);        // "fp32", "bf16"
std::string_view dtype_name_of(Precision precision);  // "float32", "bfloat16": as in profiles

// Which layers of a stage keep only their input and run forward again in backward.
enum class RecomputeKind : std::uint8_t {
  kPlan,   // "plan": as in the plan
  kNone,   // "none"
  kFull,   // "full": all
  kEvery,  // n: one of every n, rounded up; the stage's first layers, as in plans
  kFit,    // "fit": as few as keep the plan's memory limits, on the lanes that lack most first
};
// The named modes; kEvery has no name.
inline constexpr std::array kRecomputeNames = {std::pair("plan", RecomputeKind::kPlan),
                                               std::pair("none", RecomputeKind::kNone),
                                               std::pair("full", RecomputeKind::kFull),
                                               std::pair("fit", RecomputeKind::kFit)};
struct RecomputePolicy {
  RecomputeKind kind = RecomputeKind::kPlan;
  int every = 0;  // kEvery: n >= 1
};

// The compute device, as for device_of().
inline constexpr std::array<std::string_view, 2> kDevices = {"cpu", "cuda"};
inline constexpr const char* kNccl = "nccl";
inline constexpr std::array<std::string_view, 2> kDeviceMessages = {"host", kNccl};
inline constexpr std::array<std::string_view, 3> kModelDtypes = {"float32", "bfloat16", "float16"};
inline constexpr std::array<std::string_view, 2> kMemoryChecks = {"stop", "warn"};

struct ExecutionConfig {  // [execution]
  // Several GPUs are assigned to ranks in turn.
  std::string device = "cpu";
  // How tensors on GPUs are sent between ranks that are processes: "host", through the host, which
  // always works; "nccl", between GPUs, which requires one GPU per rank.
  std::string device_messages = "host";
  Precision precision = Precision::kFp32;  // "fp32", "bf16"
  // Layers of a stage that keep only their input: "plan" as in the plan; "none"; "full"; n for one
  // of every n, the stage's first ones; "fit" as few as keep the plan's memory limits.
  RecomputePolicy recompute;
  bool paced = false;  // wait for predicted times instead of computing
  // Under Plan::shard_optimizer: send gradients to the ranks that sum them as soon as the last
  // backward has computed them, instead of after it. Changes no bit.
  bool overlap_reduction = true;
  // If the predicted memory exceeds that of this host or its devices (memory_fit.h): one
  // of kMemoryChecks. "stop": ends before allocating; "warn": continues, as a prediction may be
  // wrong.
  std::string memory_check = "stop";
  // Record the peak activations of every lane, beside the prediction, in metrics.jsonl; the
  // allocator then reports every tensor, at a cost of microseconds each.
  bool measure_memory = false;
  // Write the ids of every step's samples into metrics.jsonl, in drawn order.
  bool log_samples = false;
  double deadline_seconds = 120;  // of every blocking call between ranks, > 0
  // Time for the step, checkpoint and weights after a stop signal, >= 0; then the run ends.
  // The default leaves a margin to the 30 s after which Kubernetes and torchrun kill.
  double stop_seconds = 20;
  int trace_step = 3;  // step whose predicted and measured timelines are written; -1 = none
  // [replica, lane, step]: that rank (the first of the lane's ranks) throws in the middle of that
  // step, to show how a failing rank stops the others and is reported; empty = no
  // drill.
  std::vector<int> fault_drill;
  // What it does instead of throwing: "throw", "hang" (for three deadlines), "die" (without an
  // abort), "wrong-size" (a message with one row too many), "nan" (in one of its outputs).
  std::string fault_kind = "throw";
};

inline constexpr const char* kSkipStep = "skip-step";

struct FaultConfig {                   // [faults]; docs/faults.md
  std::string on_bad_sample = "stop";  // or "skip-step": no rank runs a step with a bad sample
  std::string on_nan = "stop";         // or "skip-step": such a step adds nothing to an update
  int max_skips_in_a_row = 10;         // more than these stop the run, >= 0
};

inline constexpr const char* kTensorboardName = "tensorboard";  // in the run folder

struct MetricsConfig {       // [metrics]; beside metrics.jsonl
  bool tensorboard = false;  // event files in the folder `tensorboard` of the run folder
  std::string prometheus;    // file of the last step's figures (exposition.h); empty: none
};

inline constexpr const char* kExportMerged = "merged";
inline constexpr const char* kExportAdapter = "adapter";

struct LoraConfig : LoraSpec {            // [lora]; docs/lora.md
  std::string export_as = kExportMerged;  // what a finished run of a Hugging Face folder writes:
                                          // a folder with the adapters added to its weights, or
                                          // one with the adapters alone, as peft has them
};

struct InitConfig {                  // [init]; docs/models.md
  std::string from;                  // Hugging Face folder, or a file of weights with our names;
                                     // empty: the model's folder, if it is one, else drawn weights
  std::vector<std::string> modules;  // loaded parts, in the words of `freeze`; empty: all
  std::vector<std::string> random;   // of these, parts that are drawn instead
  std::string adapter;               // folder with the adapters of [lora]; empty: drawn ones
};

struct RunConfig {
  std::string output;  // run folder, not empty
  // Exactly one of the two is given. With `epochs`, prepare_run() sets `steps` once the data is
  // read.
  std::int64_t steps = 0;           // >= 1
  std::int64_t epochs = 0;          // passes over the training samples, >= 1; 0: `steps` is given
  std::uint64_t seed = 0;           // of batches, initial weights and policies that draw
  std::string model_file;           // `model = "model.toml"`, or a Hugging Face folder
  std::string model_dtype;          // of the folder that is written: "float32", "bfloat16" or
                                    // "float16"; empty: that of each tensor of the model's folder
  std::vector<std::string> freeze;  // as freeze_modules() reads
  DataConfig data;
  PlanConfig plan;
  OptimizerConfig optimizer;
  ValidationConfig validation;
  CheckpointConfig checkpoint;
  ExecutionConfig execution;
  FaultConfig faults;
  MetricsConfig metrics;
  InitConfig init;
  std::optional<LoraConfig> lora;
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

// The model file with `freeze` and [lora] applied.
//
// Throws  InvalidInput naming key and pattern, as freeze_modules() and add_lora() do, and where
//         nothing is left to train.
ModelSpec run_model(const RunConfig& config);

// The folder for the run's checkpoints.
std::filesystem::path checkpoint_folder(const RunConfig& config);

// The options of a part ("llm", an encoder, "projector"): [optimizer] with its own keys over it.
OptimizerConfig optimizer_of(const OptimizerConfig& config, const std::string& part);

}  // namespace entrain::engine
