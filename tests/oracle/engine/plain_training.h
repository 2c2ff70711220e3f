// A run's logged losses against plain training: one process, one sample at a time, by the reference
// model.
#pragma once

#include "entrain/engine/train/run_setup.h"

#include "tests/oracle/engine/reference_model.h"

namespace entrain::oracle {

// Expects the losses in the run's metrics.jsonl to be those of plain training: the first ten within
// 1e-5, later ones within twice the gap that another order of summation opens by itself; and the
// last below the first. Prints both.
//
// Requires  the run has trained all its steps from its seed; in fp32, one update a global batch.
void expect_plain_training(const engine::RunSetup& setup);

// The reference's mean loss over all samples of a data set.
double plain_loss(const ModelSpec& model, const engine::DataSet& data, const NamedWeights& weights);

}  // namespace entrain::oracle
