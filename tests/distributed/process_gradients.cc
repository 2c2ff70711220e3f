#include "tests/distributed/process_gradients.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/engine/pipeline/rank_places.h"

#include "tests/distributed/process_expect.h"
#include "tests/oracle/covering_rows.h"
#include "tests/oracle/engine/forwarding_comm.h"
#include "tests/oracle/engine/gradient_step.h"
#include "tests/oracle/engine/step_coverage.h"

namespace entrain {
namespace {

using engine::C10dComm;
using oracle::Deviations;
using oracle::GradientBatch;
using oracle::kFrozenPatterns;
using oracle::RankResult;
using oracle::StageLanes;
using oracle::StepConfiguration;
using oracle::StepCoverage;
using oracle::StepLayout;
using oracle::StepPolicy;
using oracle::StepResult;

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A communicator of a larger one's first ranks.
class FirstRanks : public oracle::ForwardingComm {
 public:
  FirstRanks(engine::Comm& whole, int size) : ForwardingComm(whole), size_(size) {}
  [[nodiscard]] int size() const override { return size_; }

 private:
  int size_;
};

// What a step gave as one row of numbers: loss, norm, and the gradients by name; not a number where
// a parameter takes none.
at::Tensor flat_result(const StepResult& result) {
  std::vector<at::Tensor> parts = {at::full({1}, result.loss, at::kDouble),
                                   at::full({1}, result.gradient_norm, at::kDouble)};
  for (const auto& [name, gradient] : result.gradients.front()) {
    parts.push_back(gradient.defined() ? gradient.flatten().to(at::kDouble)
                                       : at::full({1}, std::nan(""), at::kDouble));
  }
  return at::cat(parts);
}

// This rank's gradients against those of the row, whose parameters are all of the batch's.
void expect_equal(const RankResult& own, const GradientBatch& batch, const at::Tensor& row) {
  expect(own.gradient_norm == row[1].item<double>(), "the gradient norm differs");
  std::int64_t place = 2;
  std::size_t compared = 0;
  for (const auto& [name, weight] : batch.weights) {
    const bool taken = !std::isnan(row[place].item<double>());
    const std::int64_t size = taken ? weight.numel() : 1;
    const auto found = own.gradients.find(name);
    if (found != own.gradients.end()) {
      expect(found->second.defined() == taken &&
                 (!taken ||
                  at::equal(found->second.flatten().to(at::kDouble), row.narrow(0, place, size))),
             name + " differs");
      ++compared;
    }
    place += size;
  }
  expect(place == row.numel() && compared == own.gradients.size(), "parameters are missing");
}

// Rank 0 runs the step on threads too, holds that to the reference and tells the others.
void check_step(C10dComm& comm,
                const GradientBatch& batch,
                const StepConfiguration& configuration,
                Deviations& deviations) {
  const int num_ranks = engine::RankPlaces(configuration.plan).num_ranks();
  if (comm.rank() < num_ranks) {
    const std::vector<int> ranks = first_ranks(num_ranks);
    std::int64_t length = 0;
    at::Tensor row;
    if (comm.rank() == 0) {
      const StepResult threads = oracle::run_step(batch, configuration);
      oracle::expect_reference(batch, threads, deviations);
      expect(!testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed(), "off the reference");
      row = flat_result(threads);
      length = row.numel();
    }
    at::Tensor shared_length = at::full({1}, length, at::kLong);
    comm.broadcast(shared_length, 0, ranks);
    row = comm.rank() == 0 ? row : at::empty({shared_length.item<std::int64_t>()}, at::kDouble);
    comm.broadcast(row, 0, ranks);
    FirstRanks ranks_of_plan(comm, num_ranks);
    const RankResult own = oracle::run_rank(batch, configuration, ranks_of_plan);
    expect_equal(own, batch, row);
    at::Tensor loss =
        at::full({1}, own.loss_sum / static_cast<double>(batch.target_tokens), at::kDouble);
    comm.all_reduce_sum(loss, ranks);
    expect(loss.item<double>() == row[0].item<double>(), "the loss differs");
  }
  comm.barrier(first_ranks(comm.size()));  // nobody waits for longer than one step takes
}

void check_described(C10dComm& comm,
                     const GradientBatch& batch,
                     const StepConfiguration& configuration,
                     std::uint64_t seed,
                     Deviations& deviations) {
  try {
    check_step(comm, batch, configuration, deviations);
  } catch (const std::exception& error) {
    throw std::runtime_error(concat(error.what(), ": ", describe(configuration, seed)));
  }
}

void print_of(const C10dComm& comm, int sharded, const Deviations& deviations) {
  if (comm.rank() == 0) {
    std::printf(
        "%d configurations on up to %d processes, %d with sharded optimizers, bitwise those of "
        "threads; largest error in units of the tolerance: loss %.3f, gradient %.3f\n",
        deviations.configurations,
        comm.size(),
        sharded,
        deviations.loss,
        deviations.gradient);
  }
}

// A row's places.
enum Factor : std::size_t {
  kPipeline,
  kTensor,
  kReplicas,
  kEncoders,
  kFrozen,
  kRecompute,
  kShard,
  kTied,
  kSchedule,
  kPolicy,
  kFactors,
};

constexpr std::pair<int, int> kDegrees[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}};  // encoders, LLM
constexpr StepPolicy kPolicies[] = {
    StepPolicy::kSequential, StepPolicy::kEntrain, StepPolicy::kEntrainChunks};

// As wide as the ranks allow: stages of encoders are one or two; on one lane where even that is too
// wide.
StepLayout layout_of(const std::vector<int>& row, Rng& rng) {
  const auto [of_encoders, of_llm] = kDegrees[row[kTensor]];
  const int encoders = 1 + row[kEncoders];
  const int llm_stages = 1 + row[kPipeline];
  StepLayout layout;
  layout.replicas = 1 + row[kReplicas];
  const int of_replica = kCoverRanks / layout.replicas - llm_stages * of_llm;
  const int room = of_replica / (encoders * of_encoders);
  for (int encoder = 0; encoder < encoders; ++encoder) {
    layout.stages.push_back(room > 1 ? 1 + static_cast<int>(rng.below(2)) : 1);
    layout.tensor_parallel.push_back(of_encoders);
  }
  layout.stages.push_back(llm_stages);
  layout.tensor_parallel.push_back(of_llm);
  if (room < 1 || (of_encoders == of_llm && rng.below(4) == 0)) {
    layout.lanes = StageLanes::kSingle;
  }
  return layout;
}

}  // namespace

void check_lanes_of_several_stages(C10dComm& comm) {
  const std::vector<StepLayout> layouts = {{{2, 3}, 4, StageLanes::kSingle},
                                           {{3, 3}, 1, StageLanes::kWrapped},
                                           {{2, 2}, 2, StageLanes::kColocated},
                                           {{2, 2}, 2, StageLanes::kSingle, {2, 2}}};
  const GradientBatch batch = oracle::make_gradient_batch(1, 9, 1);
  std::uint64_t seed = 70'000;
  Deviations deviations;
  int sharded = 0;
  for (const std::string& schedule : schedule_names()) {
    for (const StepLayout& layout : layouts) {
      Rng rng(++seed, 77);
      const bool recompute = rng.below(2) == 1;
      const bool shard_optimizer = layout.replicas > 1 && rng.below(2) == 1;
      sharded += shard_optimizer ? 1 : 0;
      const StepConfiguration configuration = oracle::configure(rng,
                                                                batch,
                                                                layout,
                                                                schedule,
                                                                oracle::frozen_pattern_of(seed),
                                                                recompute,
                                                                shard_optimizer);
      check_described(comm, batch, configuration, seed, deviations);
    }
  }
  expect(sharded >= 5, "few configurations with sharded optimizers");
  print_of(comm, sharded, deviations);
}

void check_covering_steps(C10dComm& comm) {
  const std::vector<std::string> schedules = schedule_names();
  std::vector<int> sizes(kFactors);
  sizes[kPipeline] = 4;
  sizes[kTensor] = 4;
  sizes[kReplicas] = 3;
  sizes[kFrozen] = static_cast<int>(kFrozenPatterns.size());
  sizes[kSchedule] = static_cast<int>(schedules.size());
  sizes[kPolicy] = 3;
  for (const Factor yes_or_no : {kEncoders, kRecompute, kShard, kTied}) {
    sizes[yes_or_no] = 2;
  }
  Rng rng(80'000, 77);
  const std::vector<std::vector<int>> rows = oracle::covering_rows(
      sizes,
      [](const std::vector<int>& row) { return row[kShard] == 0 || row[kReplicas] > 0; },
      rng);
  std::map<std::pair<int, int>, GradientBatch> batches;  // by more than one encoder, and tied
  for (const int tied : {0, 1}) {
    batches[{0, tied}] = oracle::make_gradient_batch({"vision"}, 9, 21, tied == 1);
    batches[{1, tied}] = oracle::make_gradient_batch({"vision", "thermal"}, 9, 22, tied == 1);
  }
  Deviations deviations;
  StepCoverage coverage;
  std::uint64_t seed = 80'000;
  int sharded = 0;
  for (const std::vector<int>& row : rows) {
    Rng own(++seed, 77);
    const GradientBatch& batch = batches.at({row[kEncoders], row[kTied]});
    const StepConfiguration configuration =
        oracle::configure(own,
                          batch,
                          layout_of(row, own),
                          schedules[static_cast<std::size_t>(row[kSchedule])],
                          kFrozenPatterns[static_cast<std::size_t>(row[kFrozen])],
                          row[kRecompute] == 1,
                          row[kShard] == 1,
                          kPolicies[row[kPolicy]]);
    check_described(comm, batch, configuration, seed, deviations);
    coverage.add(configuration);
    sharded += row[kShard];
  }
  if (comm.rank() == 0) {
    coverage.expect_pairs(oracle::all_step_factors());
    expect(!testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed(), "pairs are missing");
  }
  print_of(comm, sharded, deviations);
}

}  // namespace entrain
