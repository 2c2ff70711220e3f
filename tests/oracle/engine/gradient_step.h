// One pipelined step of a small batch on thread ranks, and its comparison with one plain process.
//
// Read first: configure() draws a step, run_step() runs it, expect_reference() judges it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/base/random.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

#include "entrain/engine/comm/comm.h"

#include "tests/oracle/engine/gradient_batch.h"
#include "tests/oracle/random_cases.h"

namespace entrain::oracle {

enum class StageLanes : std::uint8_t {
  kOwn,        // a lane a stage
  kSingle,     // one lane for all
  kWrapped,    // stages i, i + 2, … of a module on one lane of its two
  kColocated,  // stage i of every module on lane i
};

struct StepLayout {
  std::vector<int> stages;  // [module]
  int replicas = 1;
  StageLanes lanes = StageLanes::kOwn;
  std::vector<int> tensor_parallel = {};  // [module], alike on a lane; empty: 1 everywhere
};

inline constexpr std::array<FrozenPattern, 5> kFrozenPatterns = {FrozenPattern::kNone,
                                                                 FrozenPattern::kEncoders,
                                                                 FrozenPattern::kEncoderBodies,
                                                                 FrozenPattern::kLlm,
                                                                 FrozenPattern::kOnlyProjector};
// One after another, by rising seed.
inline FrozenPattern frozen_pattern_of(std::uint64_t seed) {
  return kFrozenPatterns[seed % kFrozenPatterns.size()];
}

// Who says what runs in which slot.
enum class StepPolicy : std::uint8_t {
  kRandom,         // wilder than any policy's
  kRandomChunks,   // the same, about half of the samples cut into two to four chunks
  kSequential,     // the policy
  kEntrain,        // the policy, chunks allowed
  kEntrainChunks,  // its assignment with every sample cut in two or three
};

struct StepConfiguration {
  ModelSpec model;
  Plan plan;
  std::string schedule;
  StepPolicy policy = StepPolicy::kRandom;
  StepCosts costs;
  StepAssignment assignment;
  Program program;
};

// Everything a step needs, with an assignment, layer cuts and, where asked for, recomputed layers
// drawn from `rng`. The program is validated.
StepConfiguration configure(Rng& rng,
                            const GradientBatch& batch,
                            const StepLayout& layout,
                            const std::string& schedule,
                            FrozenPattern frozen,
                            bool recompute = false,
                            bool shard_optimizer = false,
                            StepPolicy policy = StepPolicy::kRandom);

// The same step with the optimizer's state shared out among replicas.
void shard_optimizer(StepConfiguration& configuration);

// For every stage a number of its layers, some more than none.
void recompute_layers(Rng& rng, Plan& plan);

// For the message of a failing test.
std::string describe(const StepConfiguration& configuration, std::uint64_t seed);

struct StepResult {
  double loss = 0;
  double gradient_norm = 0;
  // [replica], after the reduction, whole: with a sharded optimizer all shards together, under
  // tensor parallelism all parts.
  std::vector<NamedWeights> gradients;
};

// One rank's part of it.
struct RankResult {
  double loss_sum = 0;
  double gradient_norm = 0;
  NamedWeights gradients;  // of its lane's parameters
};

RankResult run_rank(const GradientBatch& batch,
                    const StepConfiguration& configuration,
                    engine::Comm& comm,
                    at::ScalarType precision = at::kFloat);

// Computes in `precision`.
StepResult run_step(const GradientBatch& batch,
                    const StepConfiguration& configuration,
                    at::ScalarType precision = at::kFloat);

// Largest deviations seen, in units of what is allowed.
struct Deviations {
  int configurations = 0;
  double loss = 0;
  double gradient = 0;
};

// Loss within 1e-6; every gradient within 1e-5 of its norm, or of a thousandth of the global norm
// where that is larger; equal on all replicas.
void expect_reference(const GradientBatch& batch, const StepResult& result, Deviations& deviations);

void print(const Deviations& deviations);

void expect_bitwise_equal(const StepResult& first, const StepResult& second);
void expect_two_runs_alike(const GradientBatch& batch, const StepConfiguration& configuration);

}  // namespace entrain::oracle
