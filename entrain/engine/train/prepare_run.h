// Turns a run's configuration into everything that is fixed during the run.
//
// Read first: prepare_run().
#pragma once

#include "entrain/engine/train/run_config.h"
#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// Reads model, data, plan and profile and checks them against each other: afterwards the run
// cannot fail for a reason the caller could have known before the first step.
RunSetup prepare_run(const RunConfig& config);

}  // namespace entrain::engine
