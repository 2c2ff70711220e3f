// Which samples form the global batch of a step: a pure function of (seed, step).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "entrain/core/dataset/hold.h"
#include "entrain/core/dataset/mixture.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// What happens to an epoch's last samples if they do not fill a global batch.
enum class LastBatch : std::uint8_t {
  kDrop,  // skipped in that epoch; another epoch has another order
  kKeep,  // a separate batch, smaller than the others
};

// Sample indices of an epoch in drawn order: of training, studies, `entrain export` and Python's
// sampler.
std::vector<int> epoch_rows(int num_samples, std::uint64_t seed, std::int64_t epoch);

// Draws without replacement within an epoch, never crosses epochs. Resuming needs only the step
// number. With `hold` the steps of an epoch form windows of hold.steps, each of which is rearranged
// by hold_oversized(): a sample comes at most hold.steps - 1 steps before or after the step that
// draws it. The last window has the steps that are left, without a smaller last batch, which stays
// as drawn. A mixture draws instead without epochs, and windows begin at multiples of hold.steps.
class GlobalBatchSampler {
 public:
  // Requires  hold.weights outlive the sampler.
  // Throws    InvalidInput when num_samples < global_batch (with both numbers), when
  //           global_batch < 1, and when hold.steps is out of range.
  GlobalBatchSampler(int num_samples,
                     int global_batch,
                     std::uint64_t seed,
                     LastBatch last = LastBatch::kDrop,
                     Hold hold = {});

  // Requires  hold.weights outlive the sampler.
  GlobalBatchSampler(Mixture mixture, int global_batch, Hold hold = {});

  // Sample indices of a step, in drawn order: global_batch of them, or under kKeep, in an epoch's
  // last step, what is left. The same step always gives the same batch.
  //
  // Throws  InvalidInput when step < 0.
  // Cost    O(global_batch); O(num_samples) if the epoch differs from that of the previous call,
  //         hold_oversized() if the window does.
  std::vector<int> batch(std::int64_t step);
  [[nodiscard]] const std::optional<Mixture>& mixture() const { return mixture_; }
  // The next three are of epochs, which a mixture has not.
  [[nodiscard]] std::int64_t steps_per_epoch() const;
  // Samples of an epoch's last step: global_batch, or under kKeep what is left.
  [[nodiscard]] int last_batch() const;
  // Samples that an epoch skips, always 0 under kKeep.
  [[nodiscard]] int left_out_per_epoch() const;

 private:
  // Rearranges the step's window in order_, unless that is done.
  void hold_window_of(std::int64_t step_in_epoch);

  std::optional<Mixture> mixture_;
  int num_samples_ = 0;
  int global_batch_;
  std::uint64_t seed_ = 0;
  LastBatch last_ = LastBatch::kDrop;
  Hold hold_;
  std::int64_t epoch_ = -1;  // of order_
  std::vector<int> order_;
  std::set<std::int64_t> held_;  // windows that are rearranged in order_
};

// For studies on manifests smaller than four batches: draws with replacement; a sample's second and
// later occurrence within a batch is called `id~2`, `id~3` …. A pure function of its arguments.
//
// Throws  InvalidInput when samples is empty, global_batch < 1 or step < 0.
std::vector<SampleSizes> draw_with_replacement(const std::vector<SampleSizes>& samples,
                                               int global_batch,
                                               std::uint64_t seed,
                                               std::int64_t step);

// Whether a study with this many samples draws with replacement: fewer than four batches.
inline bool drawn_with_replacement(std::int64_t num_samples, int global_batch) {
  return num_samples < std::int64_t{4} * global_batch;
}

// Rows of a study's batch of one step: drawn by GlobalBatchSampler, or with replacement, where
// windows begin at multiples of hold.steps.
//
// Shapes  result: [global_batch], values in [0, num_samples).
// Throws  InvalidInput when num_samples < 1, global_batch < 1 or step < 0.
std::vector<int> draw_study_rows(int num_samples,
                                 int global_batch,
                                 std::uint64_t seed,
                                 std::int64_t step,
                                 const Hold& hold = {});

// The ids of a batch with a sample's second and later occurrences marked `id~2`, `id~3` ….
std::vector<std::string> unique_names(std::vector<std::string> ids);

}  // namespace entrain
