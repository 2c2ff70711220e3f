// The update for which a run accumulates gradients: which of its steps count so far, and the
// divisor of their losses.
//
// Read first: UpdateInProgress. If no step is skipped the divisor is the target tokens of all
// steps of the update from its first one on, whatever their number.
#pragma once

#include <cstdint>

namespace entrain::engine {

// Depends only on the steps' target tokens and on which were skipped, so all ranks hold the
// same one without communication, and so does a run that resumes at the update.
class UpdateInProgress {
 public:
  // Requires  target_tokens >= 1, of all steps of the update.
  void begin(std::int64_t target_tokens);

  // Skips a step. Returns the factor for the gradients accumulated so far that makes them as if
  // divided by divisor() from the start; 1 if there are none.
  // Requires  target_tokens >= 1, of a step neither added nor skipped.
  double leave_out(std::int64_t target_tokens);
  // A step whose gradients were accumulated, its losses divided by divisor().
  void add(std::int64_t target_tokens);
  // The gradients accumulated so far are dropped: their steps no longer count.
  void drop();

  // Target tokens of the steps that count, including those to come; 0 if none is left.
  [[nodiscard]] std::int64_t divisor() const { return divisor_; }
  // Whether nothing is accumulated: gradients begin with the next step, or there is no update.
  [[nodiscard]] bool empty() const { return added_ == 0; }

 private:
  std::int64_t divisor_ = 0;
  std::int64_t added_ = 0;  // of these, in accumulated steps
};

}  // namespace entrain::engine
