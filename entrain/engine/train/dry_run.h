// The output of `entrain train --dry-run`: the plan, its memory, and the first step's assignment.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"

#include "entrain/engine/train/memory_fit.h"
#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {

// Tables of lanes, of memory and of slots; no line longer than 100 columns.
std::string dry_run_page(const RunSetup& setup, const PreparedStep& first, const MemoryFit& fit);

// All documents: config, plan, assignment, memory.
Json dry_run_json(const RunSetup& setup, const PreparedStep& first, const MemoryFit& fit);

}  // namespace entrain::engine
