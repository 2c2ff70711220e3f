// The rules by which the list scheduler (list_schedule.h) chooses: what makes a named schedule.
//
// Read first: ListRule, then the constants below it.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/graph/step_graph.h"
#include "entrain/core/spec/program.h"

namespace entrain {

using LaneOrders = std::vector<std::vector<Operation>>;  // [lane][position], compute only

// An order by a formula.
//
// Ensures  every group runs forward once on every stage and backward once, whole, if it has one, on
//          the stage's lane; a stage's forwards in the order of groups, its backwards in
//          that of ReplicaGraph::backward_order; the lanes' orders together with the dependencies
//          between stages have no cycle; pure function of its inputs.
using OrderRule = LaneOrders (*)(const StageGraph& stages, const ReplicaGraph& graph);

// What becomes of weight gradients. Apart from kFilling, on stages with has_both_halves() alone,
// and never on a lane that hosts all stages.
enum class WeightHalf : std::uint8_t {
  kWhole,    // computed with the input gradients
  kFilling,  // split off, run where the lane would otherwise wait
  kTurnEnd,  // split off, run at the end of the turn
  kDelayed,  // split off, run at the end of the turn d turns later, see kZbH1Rule
};

struct ListRule {
  // Turns: a stage with warm-up w runs the forwards of slots 0 … w-1, then turn t = 0, 1, … runs
  // the forward of slot t + w and every backward that LLM slot t releases. Byte limits are not
  // watched. false: what can start first, backwards before forwards.
  bool in_order = false;
  WeightHalf weight = WeightHalf::kWhole;
  bool encoder_forward_first = false;  // encoders: forwards before backwards
  int window_percent = 100;            // slots ahead, of the stages that follow; 0: any number
  int window_extra = 0;                // slots more
  bool obey_bytes = true;              // forwards wait where they would break the lane's limit
  // Lanes of several stages choose as if transfers took no time: of their stages' next operations
  // that which can start first; of equals a backward, then the stage nearest to the loss. A lane of
  // all stages runs slot by slot.
  bool ignore_transfers = false;
  bool alternate = false;     // the same, but after a backward a forward goes first
  OrderRule order = nullptr;  // instead of all this; byte limits are not watched
  bool operator==(const ListRule&) const = default;
};

// 1F1B on lanes of one stage. Where lanes host several, its stages' orders meet as they can.
inline constexpr ListRule kStrictRule{.in_order = true, .obey_bytes = false};

// `1f1b`. A stage warms up with as many slots as stages follow it on the way to the loss.
inline constexpr ListRule kOneFOneBRule{
    .in_order = true, .obey_bytes = false, .ignore_transfers = true};
// `gpipe`: all forwards by slot, then all backwards by the LLM slot that releases them.
inline constexpr ListRule kGpipeRule{
    .in_order = true, .window_percent = 0, .obey_bytes = false, .ignore_transfers = true};

// `zb-h1`: the warm-up of `1f1b`; the weight halves of a turn run d turns later, and all that are
// left after the last turn. d is such that a stage holds (to the weight half) as many slots as the
// stage furthest from the loss on a way through it holds under `1f1b`: the pipeline's peak in slots
// stays, lanes near the loss rise to it. Equal stages that take F, I and W: a bubble of
// (p - 1)(F + I - W) on p lanes instead of (p - 1)(F + I + W).
// Source  Qi et al. 2023, schedule H1; turns here are by LLM slot, and so carry deferral and empty
//         slots.
inline constexpr ListRule kZbH1Rule{.in_order = true,
                                    .weight = WeightHalf::kDelayed,
                                    .obey_bytes = false,
                                    .ignore_transfers = true};
// `zb-h2`: warm-up 2r - 1, r = stages from this one to the loss, itself included; in a turn the
// weight halves run directly after the input halves. Up to 2p slots in flight; the bubble of equal
// stages is (p - 1)(F + I), since gradients no longer wait for weight halves on their way.
// Source  Qi et al. 2023, schedule H2. Theirs delays weight halves in H2 too, by hand for equal
//         stages.
inline constexpr ListRule kZbH2Rule{.in_order = true,
                                    .weight = WeightHalf::kTurnEnd,
                                    .window_percent = 200,
                                    .window_extra = 1,
                                    .obey_bytes = false,
                                    .ignore_transfers = true};

// `dip`: encoders on all lanes, a baseline. Every lane hosts one stage of every module and chooses
// between a queue of forwards and one of backwards per stage. Activations are not limited: encoders
// run ahead as far as the lane would otherwise wait.
// Source  DIP (arXiv 2504.14145), the dual queue alone: without its search over segment orders and
//         its choice of what to recompute.
inline constexpr ListRule kDipRule{
    .window_percent = 0, .obey_bytes = false, .ignore_transfers = true, .alternate = true};

// Megatron's virtual stages, for lanes that host stages i, i + n, i + 2n … of one module with n
// lanes: slots in rounds, a round chunk by chunk, so that the bubble of equal stages is a v-th of
// that of `1f1b` with v stages a lane. Any number of slots and stages. Modules of one stage a lane
// may be beside them.
// Requires  interleaved_objection(plan) is empty.
// Source    Narayanan et al. 2021 (arXiv 2104.04473); ours cuts slots that do not divide by lanes
//           into rounds that differ by one, and feeds the LLM from encoders.
LaneOrders interleaved_order(const StageGraph& stages, const ReplicaGraph& graph);
inline constexpr ListRule kInterleavedRule{.obey_bytes = false, .order = interleaved_order};

// What `1f1b-eager`, `entrain` and `entrain-fused` choose from, in this order. To the last two,
// list_schedule() adds the rules of the other schedules.
std::vector<ListRule> eager_rules();
std::vector<ListRule> entrain_rules();
std::vector<ListRule> entrain_fused_rules();

// Which of its rules a schedule runs.
enum class RuleChoice : std::uint8_t {
  kOnly,           // it has one
  kFirstThatFits,  // the first that gets stuck nowhere and keeps the plan's byte limits
  kFastest,        // the fastest such by simulated time, reductions as if at the step's end
};

// How the list scheduler finds a schedule's order. Where no rule fits, kOneFOneBRule, whatever it
// holds.
struct ListSchedule {
  RuleChoice choice = RuleChoice::kOnly;
  std::vector<ListRule> rules;
};

}  // namespace entrain
