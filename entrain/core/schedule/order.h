// A replica's graph → the compute operations of every lane in the order they run.
//
// Read first: list_order(). schedule.cc holds the registry of schedules.
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

// The order that the list scheduler finds (kFastest, kFirstThatFits) or replays (kOnly).
LaneOrders list_order(const OrderInputs& inputs, const ListSchedule& schedule);

// Why a plan cannot run under `interleaved`, and under `dip`, whose lanes host one stage of every
// module each: a sentence that names what they need. Empty: it can.
std::string interleaved_objection(const Plan& plan);
std::string dip_objection(const Plan& plan);

}  // namespace entrain
