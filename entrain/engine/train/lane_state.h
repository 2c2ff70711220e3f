// A lane's weights and moments, as in checkpoints.
#pragma once

#include <vector>

#include "entrain/engine/models/stages.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/train/optimizer.h"
#include "entrain/engine/train/resume.h"

namespace entrain::engine {

// Both moments of every trained parameter, named as in a checkpoint: to be copied.
std::vector<NamedParameter> named_moments(const Executor& executor, const AdamW& optimizer);

// Weights and moments of a checkpoint after `updates` updates.
// Throws  as load_tensors() does.
void restore(const ResumePoint& resume, std::int64_t updates, Executor& executor, AdamW& optimizer);

}  // namespace entrain::engine
