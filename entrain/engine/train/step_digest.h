// One short text that differs whenever two ranks would run a step differently.
#pragma once

#include <string>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

// 32 hexadecimal digits over the step's number, its samples, their placement, the order of
// operations of every lane and the number of target tokens; equal on every machine.
//
// Cost  O(operations).
std::string digest(const PreparedStep& step);

}  // namespace entrain::engine
