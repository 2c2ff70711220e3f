// The update that a run is adding gradients up for: which of its steps are in it so far, and what
// their losses are divided by.
//
// Read first: UpdateInProgress. Where no step is skipped the divisor is the target tokens of all
// steps of the update from its first one on, whatever their number.
#pragma once

#include <cstdint>

namespace entrain::engine {

// A function of the steps' target tokens and of which were skipped alone, so all ranks hold the
// same one without asking, and so does a run that begins at the update again.
class UpdateInProgress {
 public:
  // Requires  target_tokens >= 1, of all steps of the update.
  void begin(std::int64_t target_tokens);

  // A step that stays out. Returns what gradients added up so far are to be multiplied by, so that
  // they are as if divided by divisor() from the start; 1 where there are none.
  // Requires  target_tokens >= 1, of a step neither added nor left out.
  double leave_out(std::int64_t target_tokens);
  // A step whose gradients have been added, its losses divided by divisor().
  void add(std::int64_t target_tokens);
  // Gradients added up so far are thrown away: their steps are out.
  void drop();

  // Target tokens of the steps that are in, those to come among them; 0 where none is left.
  [[nodiscard]] std::int64_t divisor() const { return divisor_; }
  // Whether nothing has been added up: gradients begin with the next step, or there is no update.
  [[nodiscard]] bool empty() const { return added_ == 0; }

 private:
  std::int64_t divisor_ = 0;
  std::int64_t added_ = 0;  // of these, in steps that have been added
};

}  // namespace entrain::engine
