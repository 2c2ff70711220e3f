// What imbalance costs a data-parallel run (FSDP, DDP), from sizes alone, and what would remove it.
//
// Read first: AuditRequest, audit(), AuditReport.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/balance/balance.h"
#include "entrain/core/report/statistics.h"
#include "entrain/core/study/study.h"

namespace entrain {

struct AuditRequest {
  Layout layout = Layout::kFsdp;
  int ranks = 8;
  int microbatches = 4;  // of every rank; the study's global batch is divided by both
  bool padded = false;
  // Limits of a microbatch. Without any the sampler keeps to the most tokens and bytes that the
  // drawn order needs in the same step, unless `unlimited`.
  std::int64_t max_tokens = 0;    // 0: none
  std::int64_t memory_bytes = 0;  // for its activations; 0: unknown
  bool unlimited = false;
  std::vector<std::string> everywhere;  // encoders that every microbatch needs work in
  // What a microbatch takes besides its samples' work, on every rank: it is part of every step.
  std::int64_t microbatch_ns = 0;
  std::string costs_note;      // of a study of given costs: what they are, for the reader
  int steps = 0;               // 0: as many as an epoch has, at most 32
  int search_steps = 200'000;  // of balance()
  bool pipeline = true;        // simulate Entrain's pipeline, too
};

// One way to distribute every step's samples.
struct AuditPolicy {
  std::string name;
  std::string what;
  std::vector<std::int64_t> step_ns;  // [step]
  Spread spread;                      // of step_ns / perfect_ns
  double worst = 0;                   // of step_ns / perfect_ns
  std::int64_t most_tokens = 0;       // of a microbatch, as computed
  std::int64_t most_bytes = 0;        // of a microbatch
  int steps_over_memory = 0;
  int steps_without_media = 0;  // a microbatch has no work in any encoder

  [[nodiscard]] double seconds() const;  // mean step
};

// The sampler with costs that are wrong by a factor of this standard deviation, per sample and
// module, and its step under the right ones.
struct AuditError {
  double deviation = 0;
  double over_perfect = 0;  // mean
};

struct AuditSample {
  std::string id;
  std::vector<std::int64_t> work_ns;  // [module]
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;
};

// Every sample shortened to at most `tokens`, its work in proportion.
struct AuditCap {
  std::int64_t tokens = 0;
  double samples = 0;      // share of all samples that is longer
  double tokens_lost = 0;  // share of all tokens
  double step = 0;         // mean sampler's step / that without a cap
};

// Entrain's pipeline on as many devices: the best split found, assigned and simulated. All zero
// where 2, 4 and 8 lanes do not divide the ranks, or none fits.
struct AuditPipeline {
  int lanes = 0;
  int replicas = 0;
  int steps = 0;            // simulated
  double over_perfect = 0;  // mean step
};

// Work by size, for a histogram: [bucket] samples with at most limits[bucket] ns.
struct AuditHistogram {
  std::vector<std::int64_t> limits;
  std::vector<std::int64_t> samples;
};

// One rank's time in each microbatch and module: [rank][microbatch · modules + module] ns.
using AuditTimeline = std::vector<std::vector<std::int64_t>>;

struct AuditReport {
  std::string note;   // of the study: device and profile
  std::string data;   // file of the index; empty: costs of one's own
  std::string model;  // its name and file; likewise
  std::uint64_t seed = 0;
  AuditRequest request;
  std::vector<std::string> modules;
  int global_batch = 0;
  std::int64_t num_samples = 0;
  std::vector<std::int64_t> perfect_ns;  // [step] all work / ranks, and its microbatches' constants
  std::vector<std::int64_t> bound_ns;    // [step] no assignment is faster
  std::vector<AuditPolicy> policies;     // random first, the sampler ("entrain") last
  std::vector<AuditError> errors;
  std::vector<AuditSample> heaviest;     // by whole work, at most 10
  std::int64_t num_over_memory = 0;      // samples alone over a given limit, which is then dropped
  std::vector<AuditSample> over_memory;  // of these at most 10
  std::vector<AuditCap> caps;
  AuditPipeline pipeline;
  std::vector<AuditHistogram> histograms;  // [module]
  AuditTimeline before;                    // the first step, random order
  AuditTimeline after;                     // the same step, the sampler
  std::vector<char> bound_by_one_sample;   // [step] the largest sample alone is the bound

  [[nodiscard]] const AuditPolicy& random() const { return policies.front(); }
  [[nodiscard]] const AuditPolicy& sampler() const { return policies.back(); }
  // Mean bound / perfect.
  [[nodiscard]] double bound_over_perfect() const;
};

// All samples of the study as balance() takes them: work by the study's costs at tensor parallelism
// 1, bytes of activations (0 where costs have none).
//
// Throws  InvalidInput for more than kMaxBalanceModules modules.
std::vector<BalanceRequest::Sample> balance_samples(const Study& study);

// The request of a step without samples: limits, needs and layout.
// Throws  InvalidInput for an unknown encoder in `everywhere`.
BalanceRequest balance_request(const Study& study, const AuditRequest& request);

// Of balance() in a step of an epoch, Python's sampler included.
std::uint64_t step_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t step);

// balance(); what it throws names the step.
CellOf balance_step(const BalanceRequest& request, int step);

// Throws  InvalidInput where the study's global batch is no multiple of ranks × microbatches.
void check_layout(const Study& study, const AuditRequest& request);

// Shows progress on standard error.
//
// Throws  InvalidInput as check_layout(), and where a step has too few samples of an encoder in
//         `everywhere`; NothingFits where a step has no assignment within the limits.
// Cost    Steps × about 0.2 s for 1,024 samples a step.
AuditReport audit(const Study& study, const AuditRequest& request);

}  // namespace entrain
