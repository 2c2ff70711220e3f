// In which step of a study's run a sample is drawn.
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/study/study.h"

namespace entrain {

// The first step whose global batch holds the sample.
//
// Throws  InvalidInput for an id that the study does not have (with a suggestion), and for one that
//         no step of the first four epochs holds: every epoch's last incomplete batch is dropped.
// Cost    O(steps × global batch).
std::int64_t step_of_sample(const Study& study, const std::string& id);

}  // namespace entrain
