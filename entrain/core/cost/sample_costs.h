// A cost table from a model and a profile: what every sample costs, as CSV that
// read_cost_table() takes.
//
// Read first: sample_costs(). Rows are appended piece by piece, so that an index of any length can
// be written.
#pragma once

#include <span>
#include <string>

#include "entrain/core/cost/cost_table.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

// Costs over whole modules at degree 1: the sum over a module's layers without launch constants,
// rounded once to nanoseconds; backward is input and weight gradient, unless the model's
// freezing removes them. Units are segments in encoders and whole samples in the LLM.
// Links, reductions and the optimizer belong to no sample.
//
// Shapes    ids, work: [sample]; a sample without work in an encoder has no units there.
// Requires  `work` comes from the model.
// Throws    InvalidInput as step_costs() does.
// Cost      O(units + layers).
CostTable sample_costs(const ModelSpec& model,
                       const Profile& profile,
                       std::span<const std::string> ids,
                       std::span<const SampleWork> work);

struct CostColumns {
  bool activation_bytes = false;  // <module>_activation_bytes for every module
};

// Header and rows of the first file of read_cost_table(), one row a sample, its segments added up.
// Seconds are written to the nanosecond: reading gives the same integers, below 10^15 ns.
// Requires  with activation_bytes a table that has them.
void append_cost_header(std::string& out,
                        std::span<const std::string> modules,
                        const CostColumns& columns = {});
void append_cost_rows(std::string& out, const CostTable& table, const CostColumns& columns = {});

// The same of the second file, one row a segment.
void append_segment_header(std::string& out);
void append_segment_rows(std::string& out, const CostTable& table);

}  // namespace entrain
