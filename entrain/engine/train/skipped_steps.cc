#include "entrain/engine/train/skipped_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

constexpr std::int64_t kMessageBytes = 1024;  // of a problem's message

}  // namespace

StepSkips::StepSkips(const FaultConfig& config, Comm& comm, const SkipCounts& before)
    : config_(config), comm_(comm), counts_(before) {}

std::optional<SkippedStep> StepSkips::before(StepData* data) {
  if (config_.on_bad_sample != kSkipStep || data == nullptr) {
    return std::nullopt;
  }
  const std::optional<std::string> problem = first_problem(data->problem());
  if (!problem.has_value()) {
    return std::nullopt;
  }
  return SkippedStep{"bad-sample", *problem};
}

std::optional<SkippedStep> StepSkips::behind(const StepOutcome& outcome, bool ends_update) {
  if (config_.on_nan != kSkipStep) {
    return std::nullopt;
  }
  if (ends_update) {  // exchanged before the optimizer
    return outcome.finite ? std::nullopt : std::optional(SkippedStep{"nan", ""});
  }
  const std::optional<std::string> problem = first_problem(
      std::isfinite(outcome.loss_sum) ? std::nullopt
                                      : std::optional(concat("loss ", outcome.loss_sum)));
  return problem.has_value() ? std::optional(SkippedStep{"nan", *problem}) : std::nullopt;
}

void StepSkips::count(bool skipped, bool ends_update, bool updated) {
  counts_.steps += skipped ? 1 : 0;
  counts_.updates += ends_update && !updated ? 1 : 0;
  in_a_row_ = updated ? 0 : in_a_row_ + (skipped ? 1 : 0);
}

void StepSkips::check_row(std::int64_t step, const SkippedStep& last) const {
  if (in_a_row_ > config_.max_skips_in_a_row) {
    throw SystemFailure(concat("step ",
                               step,
                               ": ",
                               counted(in_a_row_, "step"),
                               in_a_row_ == 1 ? " in a row was" : " in a row were",
                               " skipped with no update between them, faults.max_skips_in_a_row = ",
                               config_.max_skips_in_a_row,
                               "; the last one (",
                               last.cause,
                               "): ",
                               last.detail));
  }
}

// The problem of the lowest rank that has one, on every rank. Ranks exchange one flag; the text
// only where a flag is set.
std::optional<std::string> StepSkips::first_problem(const std::optional<std::string>& own) {
  std::vector<int> all(static_cast<std::size_t>(comm_.size()));
  std::iota(all.begin(), all.end(), 0);
  at::Tensor flag =
      at::full({1}, own.has_value() ? 1.0 : 0.0, at::TensorOptions().dtype(at::kDouble));
  comm_.all_reduce_sum(flag, all);
  if (flag.item<double>() == 0) {
    return std::nullopt;
  }
  at::Tensor text = at::zeros({kMessageBytes}, at::TensorOptions().dtype(at::kByte));
  if (own.has_value()) {
    std::memcpy(text.mutable_data_ptr(),
                own->data(),
                std::min(own->size(), static_cast<std::size_t>(kMessageBytes - 1)));
  }
  const at::Tensor texts = comm_.all_gather(text, all);
  std::optional<std::string> first;
  for (std::int64_t rank = 0; rank < comm_.size() && !first.has_value(); ++rank) {
    const char* message = static_cast<const char*>(texts.const_data_ptr()) + rank * kMessageBytes;
    if (*message != '\0') {
      first = concat("rank ", rank, ": ", message);
    }
  }
  ENTRAIN_INVARIANT(first.has_value(), "a rank has a problem without a message");
  return first;
}

}  // namespace entrain::engine
