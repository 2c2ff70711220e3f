// A timeline as a Chrome trace, to be opened in Perfetto or chrome://tracing.
//
// One process is one lane of one replica; its threads are compute, send and receive. Predicted and
// measured timelines of a program have the same form, so that they can be aligned.
#pragma once

#include <filesystem>
#include <ostream>
#include <span>
#include <string>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

namespace entrain {

// Writes Timeline::events event by event. Times are microseconds with three decimals, so that no
// nanosecond is lost. A wait is on the compute thread and has the args of the operation
// that waited; step-wide operations have only `replica` and `lane`. Every lane with all its
// compute operations has a counter `activation bytes`: memory_timeline().
//
// Shapes    sample_ids: [samples of the global batch].
// Requires  `timeline` has events and belongs to `program`; `label` names it ("predicted").
// Throws    InvalidInput when the timeline has no events, SystemFailure when the file cannot be
//           written (none is left behind then).
void write_trace(const std::filesystem::path& path,
                 const Program& program,
                 const Timeline& timeline,
                 const StepCosts& costs,
                 std::span<const std::string> sample_ids,
                 const std::string& label);

// The same to a stream.
void write_trace(std::ostream& out,
                 const Program& program,
                 const Timeline& timeline,
                 const StepCosts& costs,
                 std::span<const std::string> sample_ids,
                 const std::string& label);

}  // namespace entrain
