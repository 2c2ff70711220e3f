// What an order rule is: a replica's graph → the compute operations of every lane in the order they
// run.
//
// Read first: OrderRule. schedule.cc holds the registry of schedules.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/schedule/rules.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// One replica's work.
struct OrderInputs {
  const Plan& plan;
  const StepCosts& costs;
  const StageGraph& stages;
  const ReplicaGraph& graph;
};

using LaneOrders = std::vector<std::vector<Operation>>;  // [lane][position], compute only

// Ensures  every group runs forward once on every stage and backward once if it has a
//          backward, whole or both halves (input before weight), on the stage's lane, linked chunks
//          in order; the lanes' orders together with the dependencies between stages have no cycle;
//          pure function of its inputs.
using OrderRule = LaneOrders (*)(const OrderInputs& inputs);

// The order that the list scheduler finds (kFastest, kFirstThatFits) or replays (kOnly).
LaneOrders list_order(const OrderInputs& inputs, const ListSchedule& schedule);

// Megatron's virtual stages, for lanes that host stages i, i + n, i + 2n … of one module with n
// lanes (interleaved_plan() makes such plans): slots in rounds, a round chunk by chunk, so that the
// bubble of equal stages is a v-th of that of `1f1b` with v stages a lane. Any number of slots and
// stages. Modules of one stage a lane may be beside them.
// Requires  interleaved_objection(plan) is empty.
// Source    Narayanan et al. 2021 (arXiv 2104.04473); ours cuts slots that do not divide by lanes
//           into rounds that differ by one, and feeds the LLM from encoders.
LaneOrders interleaved_order(const OrderInputs& inputs);

// Why a plan cannot run under `interleaved`, and under `dip`, whose lanes host one stage of every
// module each: a sentence that names what they need. Empty: it can.
std::string interleaved_objection(const Plan& plan);
std::string dip_objection(const Plan& plan);

}  // namespace entrain
