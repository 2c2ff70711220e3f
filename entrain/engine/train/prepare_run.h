// From a run's configuration to all that stays fixed during it.
//
// Read first: prepare_run().
#pragma once

#include "entrain/engine/train/run_config.h"
#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Reads model, data, plan and profile and checks them against each other: after it, nothing about
// the run can be wrong for a reason the caller could have known before the first step.
RunSetup prepare_run(const RunConfig& config);

}  // namespace entrain::engine
