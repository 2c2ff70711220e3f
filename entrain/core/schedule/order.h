// What an order rule is: a replica's graph → the compute operations of every lane in the order they
// run.
//
// Read first: OrderRule. The rules with a name are at the bottom; schedule.cc holds the registry.
#pragma once

#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"
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

// Ensures  every group runs forward once on every stage and backward once where it takes part in
//          backward, whole or both halves (input before weight), on the stage's lane, linked chunks
//          in order; the lanes' orders together with the dependencies between stages have no cycle;
//          pure function of its inputs.
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

// Zero bubble, by fixed rules: turns as in `1f1b`, the weight gradient split off where a stage
// has_both_halves() and its lane does not host all stages.
//
// `zb-h1`: the warm-up of `1f1b`; the weight halves of a turn run d turns later, and all that are
// left after the last turn. d is such that a stage holds (to the weight half) as many slots as the
// stage furthest from the loss on a way through it holds under `1f1b`: the pipeline's peak in slots
// stays, lanes near the loss rise to it. Equal stages that take F, I and W: a bubble of
// (p - 1)(F + I - W) on p lanes instead of (p - 1)(F + I + W).
//
// `zb-h2`: warm-up 2r - 1, r = stages from this one to the loss, itself included; in a turn the
// weight halves run directly behind the input halves. Up to 2p slots in flight; the bubble of
// equal stages is (p - 1)(F + I), since gradients no longer wait for weight halves on their way.
//
// Source  Qi et al. 2023, schedules H1 and H2. Theirs delays weight halves in H2 too, by hand for
//         equal stages; turns here are by LLM slot, and so carry deferral and empty slots.
LaneOrders zb_h1_order(const OrderInputs& inputs);
LaneOrders zb_h2_order(const OrderInputs& inputs);

// Megatron's virtual stages, for lanes that host stages i, i + n, i + 2n … of one module with n
// lanes (interleaved_plan() makes such plans): slots in rounds, a round chunk by chunk, so that the
// bubble of equal stages is a v-th of that of `1f1b` with v stages a lane. Any number of slots and
// stages. Modules of one stage a lane may stand beside; other plans run as `1f1b`.
// Source    Narayanan et al. 2021 (arXiv 2104.04473); ours cuts slots that do not divide by lanes
//           into rounds that differ by one, and feeds the LLM from encoders.
LaneOrders interleaved_order(const OrderInputs& inputs);

// Encoders on all lanes, a baseline: where every lane hosts one stage of every module, lanes choose
// greedily on integer costs between a queue of forwards and one of backwards per stage: what can
// start first; of several a backward after a forward and a forward after a backward, then what is
// nearer the loss. Activations are not limited: encoders run ahead as far as the lane would
// otherwise wait. Other plans run as `1f1b`.
// Source    DIP (arXiv 2504.14145), the dual queue alone: without its search over segment orders
//           and its choice of what to recompute.
LaneOrders dip_order(const OrderInputs& inputs);

}  // namespace entrain
