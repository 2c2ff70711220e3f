// What ranks that are processes must settle before they train: that every one of them could begin,
// and that all would run the same run.
//
// Read first: prepare_together(). In-process ranks share one RunSetup and need none of this.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Why no rank begins: the failure of the first rank that could not, known to all of them.
struct StartFailure {
  enum class Kind : std::uint8_t { kInvalidInput, kSystemFailure, kNothingFits, kInternalError };
  Kind kind = Kind::kInternalError;
  int rank = 0;
  std::string message;

  // Throws  the error of that kind; the message names the rank where it is not rank 0.
  [[noreturn]] void raise() const;
};

struct Prepared {  // exactly one of both
  std::optional<RunSetup> setup;
  std::optional<StartFailure> failure;
};

// Calls `claim`, if given, on rank 0, before any rank may look at the run's folders; then `prepare`
// on this rank, and tells the others how it went; all ranks call it together.
//
// Then checks that there is one process for every rank of the plan, and that configuration,
// model, plan, profile, data, checkpoint and versions are rank 0's everywhere.
//
// Returns  the setup, or on every rank the same failure.
// Throws   SystemFailure, CommAborted when the ranks cannot talk.
Prepared prepare_together(Comm& comm,
                          const std::function<RunSetup()>& prepare,
                          const std::function<void()>& claim = {});

}  // namespace entrain::engine
