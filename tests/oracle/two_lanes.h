// Programs of one encoder lane and one LLM lane, written as short texts.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/program.h"

namespace entrain::oracle {

// A group of one stage that takes part in backward, one item a part.
Group group_of_items(std::vector<WorkItem> items, std::vector<int> llm_slots);

// One encoder stage and one LLM stage, each on a lane; slot i holds sample i, all taking 10 ns
// forward, 10 + 10 ns backward, 100 bytes kept, 10 bytes sent; a free link.
struct TwoLanes {
  explicit TwoLanes(int num_slots);

  // Lists of both lanes in words. F0, B0, I0, W0: forward, backward, input and weight half of slot
  // 0; >F0 and <F0: its activation's send and receive, >B0 and <B0: its gradient's; reduce, clip,
  // step.
  void add_replica(const std::string& vision, const std::string& llm);

  StepCosts costs;
  Program program;
};

// Two slots in 1F1B order, messages of 3 + 10 ns: 116 ns in all.
TwoLanes two_slots_with_link();

// What simulate() says when it refuses; "finished" when it does not.
std::string failure_of(const TwoLanes& lanes);

}  // namespace entrain::oracle
