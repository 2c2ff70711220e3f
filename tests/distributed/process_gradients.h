// Gradients of ranks that are processes, bitwise those of threads.
#pragma once

#include "entrain/engine/comm/c10d_comm.h"

namespace entrain {

// All ranks of a group of four call it together: every schedule on layouts of four ranks whose
// lanes host several stages. Throws  std::runtime_error naming what differs and where.
void check_lanes_of_several_stages(engine::C10dComm& comm);

// All ranks of a group of kCoverRanks call it together: steps in which every two values of
// oracle::all_step_factors() come together, each on as many ranks as its plan has.
// Throws  std::runtime_error naming what differs and where.
void check_covering_steps(engine::C10dComm& comm);
// {encoder, four LLM stages of two ranks} × 3 replicas.
inline constexpr int kCoverRanks = 30;

}  // namespace entrain
