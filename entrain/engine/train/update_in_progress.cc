#include "entrain/engine/train/update_in_progress.h"

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {

void UpdateInProgress::begin(std::int64_t target_tokens) {
  divisor_ = target_tokens;
  added_ = 0;
}

double UpdateInProgress::leave_out(std::int64_t target_tokens) {
  const std::int64_t before = divisor_;
  divisor_ -= target_tokens;
  ENTRAIN_INVARIANT(divisor_ >= added_,
                    concat("an update of ", divisor_, " target tokens with ", added_, " in it"));
  return empty() ? 1.0 : static_cast<double>(before) / static_cast<double>(divisor_);
}

void UpdateInProgress::add(std::int64_t target_tokens) {
  added_ += target_tokens;
  ENTRAIN_INVARIANT(added_ <= divisor_,
                    concat("an update of ", divisor_, " target tokens with ", added_, " in it"));
}

void UpdateInProgress::drop() {
  divisor_ -= added_;
  added_ = 0;
}

}  // namespace entrain::engine
