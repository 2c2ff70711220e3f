// The pieces of validate_program(). They share nothing with the builders: everything is worked out
// anew from plan, assignment and costs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/graph/step_graph.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/program.h"

namespace entrain::validation {

struct Subject {
  const Program& program;
  const Plan& plan;
  const StepAssignment& assignment;
  const StepCosts& costs;
};

// Lane and position of an operation; lane -1: none.
struct Place {
  int lane = -1;
  int position = -1;
  [[nodiscard]] bool exists() const { return lane >= 0; }
};

// Positions of the compute operations of one unit.
struct UnitPlaces {
  Place forward;
  Place backward;  // kBackward
  Place backward_input;
  Place backward_weight;
  // The operation that computes the input gradient, and first needs the output's gradient.
  [[nodiscard]] const Place& gradient() const {
    return backward.exists() ? backward : backward_input;
  }
};
using PlacesOfUnits = std::map<UnitKey, UnitPlaces>;

// Messages of one channel in the order of their sends (equal to that of their receives).
struct Passage {
  UnitKey unit;
  Place send;
  Place receive;
};
using PassagesOfChannels = std::vector<std::vector<Passage>>;

// "replica 0 lane 1 operation 7 (forward llm 0 slot 2 group 0)"
std::string where(const Subject& subject, int replica, Place place);

// Every item is in exactly one group, grouped by the LLM group it serves in rising order, an LLM
// slot's by the slots in which samples end; takes_backward matches autograd, links are those
// of the chunks.
void check_groups(const Subject& subject, int replica);

// Every operation is of a known unit on its stage's lane, exactly once, at its place, after
// those of linked chunks that it needs; the step-wide ones end the lane.
PlacesOfUnits check_operations(const Subject& subject, int replica);

// Every input that crosses lanes is sent once, behind its producers, and received once, before its
// consumers, on the channel of its edge, in the sender's order.
PassagesOfChannels check_messages(const Subject& subject, int replica, const PlacesOfUnits& places);

// The lanes' orders, the dependencies and the messages have no cycle, even if a send ends only when
// its receive is posted.
void check_acyclic(const Subject& subject,
                   int replica,
                   const PlacesOfUnits& places,
                   const PassagesOfChannels& passages);

// Activation bytes stay within plan.limits.bytes_of(lane).
void check_memory(const Subject& subject, const StepGraph& graph, int replica);

}  // namespace entrain::validation
