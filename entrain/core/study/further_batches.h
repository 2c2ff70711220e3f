// Batches of a run on which a plan's memory is checked, after those used to choose it.
//
// Read first: further_batches().
#pragma once

#include <cstdint>

#include "entrain/core/planner/memory_check.h"
#include "entrain/core/study/study.h"

namespace entrain {

// Steps first … first + in_row - 1 of the study's run, and of nine times as many steps after them
// the most demanding of a module: with the largest unit of all (an encoder's segment, the LLM's
// sequence, in tokens), and with the most tokens in all. The most demanding come first, a batch for
// each module and measure in turn, then the next.
//
// Ensures   a pure function of the study's samples, batch size and seed, and of the numbers given.
// Requires  `study` has sizes (no cost table) and outlives the result; first, in_row >= 0.
// Throws    InvalidInput when a sample's size is impossible.
// Cost      O(samples + 10 · in_row · global batch) time; memory for the chosen batches' rows.
FurtherBatches further_batches(const Study& study, std::int64_t first, int in_row);

}  // namespace entrain
