// Agreement of ranks that are processes before training: every rank can start, and all would run
// the same run.
//
// Read first: prepare_together(). In-process ranks share one RunSetup and do not need this.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "entrain/engine/comm/comm.h"
#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Why no rank starts: the failure of the first rank that could not, known to all of them.
struct StartFailure {
  enum class Kind : std::uint8_t { kInvalidInput, kSystemFailure, kNothingFits, kInternalError };
  Kind kind = Kind::kInternalError;
  int rank = 0;
  std::string message;

  // Throws  the error of that kind; the message names the rank unless it is rank 0.
  [[noreturn]] void raise() const;
};

struct Prepared {  // exactly one is set
  std::optional<RunSetup> setup;
  std::optional<StartFailure> failure;
};

// Calls `claim`, if given, on rank 0, before any rank looks at the run's folders. Then calls
// `prepare` on this rank and shares the outcome; all ranks call it together.
//
// Then checks that there is one process for every rank of the plan, and that configuration,
// model, plan, profile, data, checkpoint and versions are equal on all ranks.
//
// Returns  the setup, or on every rank the same failure.
// Throws   SystemFailure, CommAborted if the ranks cannot communicate.
Prepared prepare_together(Comm& comm,
                          const std::function<RunSetup()>& prepare,
                          const std::function<void()>& claim = {});

}  // namespace entrain::engine
