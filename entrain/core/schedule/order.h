// What an order rule is: groups → the compute operations of every lane in the order they run.
//
// Read first: OrderRule. The rules with a name are at the bottom; schedule.cc holds the registry.
#pragma once

#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/schedule/groups.h"
#include "entrain/core/schedule/unit_table.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain {

// One replica's work.
struct OrderInputs {
  const Plan& plan;
  const StepCosts& costs;
  const std::vector<ModuleGroups>& groups;
  const UnitTable& table;
};

using LaneOrders = std::vector<std::vector<Operation>>;  // [lane][position], compute only

// Ensures  every group runs forward once on every stage and backward once where it takes part in
//          backward, on the stage's lane, linked chunks in order; the lanes' orders together with
//          the dependencies between stages have no cycle; pure function of its inputs.
using OrderRule = LaneOrders (*)(const OrderInputs& inputs);

// All forwards by slot, then all backwards by the LLM slot that releases them.
LaneOrders gpipe_order(const OrderInputs& inputs);

// Strict one-forward-one-backward: a stage warms up with as many slots as stages follow it on the
// way to the loss, then turn t runs the next slot's forward and every backward that LLM slot t
// releases. A single lane runs slot by slot.
LaneOrders one_f_one_b_order(const OrderInputs& inputs);

// Found, not fixed (list_schedule.h): backwards first, forwards as early as the plan's byte limits
// allow; the widest window of eager_rules() that gets stuck nowhere. Strict 1F1B where none does.
LaneOrders one_f_one_b_eager_order(const OrderInputs& inputs);

// Found: the fastest of entrain_rules() by simulated time, the lanes' reductions included, that
// keeps the plan's byte limits. Strict 1F1B, whatever it holds, where none does.
LaneOrders entrain_order(const OrderInputs& inputs);
// The same without split weight gradients.
LaneOrders entrain_fused_order(const OrderInputs& inputs);

}  // namespace entrain
