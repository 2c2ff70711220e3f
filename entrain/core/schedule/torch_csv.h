// The compute-order CSV of torch.distributed.pipelining: what `_load_csv` of its multi-stage
// schedules reads and `_dump_csv` writes with format "compute_only".
//
// A row per rank; a cell is [stage][F|B|I|W][microbatch]: forward, whole backward, its input and
// its weight half; empty cells are time steps without work. Ranks are our lanes, microbatches our
// slots, and stages one chain: the encoder's, then the LLM's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// Sends, receives and step-wide operations are omitted; torch adds them itself.
//
// Throws  InvalidInput for what torch's format cannot express: several replicas or encoders, slots
// with
//         no group or several, deferral, chunks, stages without backward.
// Cost    O(operations).
std::string to_torch_csv(const Program& program);

// Compute orders of one replica for build_program_from_orders(); REDUCE_GRAD, which torch places
// itself, is ignored.
//
// Shapes  result: [lane][position], every unit in group 0.
// Throws  InvalidInput that names row and column: not such a cell, communication, an unknown stage,
//         a stage of another lane; for another number of rows than lanes, a plan with several
//         encoders.
// Cost    O(text).
std::vector<std::vector<Operation>> orders_from_torch_csv(std::string_view text, const Plan& plan);

}  // namespace entrain
