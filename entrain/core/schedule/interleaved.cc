// Virtual stages. A module *wraps* when it has more stages than lanes, its lanes host nothing else
// and stage i stands on lane i mod n of its n lanes; chunk c of lane r is stage c·n + r. Every
// module either wraps or has one stage a lane, and at least one wraps.
//
// Slots are cut into rounds, max(1, slots / n) of them (rounded down) of near-equal size, longer
// ones first. A lane's forwards go round by round, in a round chunk by chunk, in a chunk slot by
// slot; its backwards likewise, chunks falling. Lane r warms up with (v - 1)·q + 2(n - 1 - r)
// forwards (v chunks, rounds of q slots, the first one's), then each forward is followed by a
// backward. Modules that do not wrap have v = 1 and one forward more a lane, as in `1f1b`; encoders
// warm up with as many more forwards as the LLM's first lane needs before the backward that their
// last stage waits for, plus one. The backward of a slot is that of all groups it releases.
//
// No cycle: a forward waits for one that is a whole round (q >= n - 1, or all of the warm-up)
// earlier on the lane before, and so do backwards; stages that do not exist and empty slots count
// as operations of no length.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/schedule/order.h"

namespace entrain {
namespace {

// A slot's pass through one chunk.
struct Pass {
  int slot = 0;
  int chunk = 0;
};

// A module's stages on its lanes, and each lane's order of slots and chunks.
struct ModuleTurns {
  std::vector<int> lanes;
  int num_chunks = 1;
  int warm_up = 0;  // forwards of the last lane
  int hop = 1;      // more of them per lane towards the input
  std::vector<Pass> forwards;
  std::vector<Pass> backwards;  // the chunk counts from the last one

  [[nodiscard]] int warm_up_of(int lane_index) const {
    const int wanted = warm_up + hop * (static_cast<int>(lanes.size()) - 1 - lane_index);
    return std::min(wanted, static_cast<int>(forwards.size()));
  }
};

// The module's lanes in order of stage; empty when it neither wraps nor has one stage a lane.
std::vector<int> lanes_in_order(const StageGraph& stages, int module) {
  std::vector<int> lanes;
  for (int stage = 0; stage < stages.num_stages(module); ++stage) {
    const int lane = stages.of(module, stage).lane;
    const std::vector<int>& hosted = stages.lanes[at(lane)];
    if (std::any_of(hosted.begin(), hosted.end(), [&](int number) {
          return stages.stages[at(number)].module != module;
        })) {
      return {};
    }
    const bool is_new = std::find(lanes.begin(), lanes.end(), lane) == lanes.end();
    const bool wrapped = static_cast<int>(lanes.size()) < stage;
    if (is_new && !wrapped) {
      lanes.push_back(lane);
    } else if (is_new || lanes[at(stage) % lanes.size()] != lane) {
      return {};
    }
  }
  return lanes;
}

std::vector<int> round_sizes(int num_slots, int num_lanes) {
  const int rounds = std::max(1, num_slots / num_lanes);
  std::vector<int> sizes(at(rounds), num_slots / rounds);
  for (int i = 0; i < num_slots % rounds; ++i) {
    ++sizes[at(i)];
  }
  return sizes;
}

ModuleTurns module_turns(std::vector<int> lanes, int num_stages, int num_slots) {
  ModuleTurns turns;
  const int num_lanes = static_cast<int>(lanes.size());
  turns.lanes = std::move(lanes);
  turns.num_chunks = (num_stages + num_lanes - 1) / num_lanes;
  const std::vector<int> sizes = round_sizes(num_slots, num_lanes);
  int first = 0;
  for (const int size : sizes) {
    for (int chunk = 0; chunk < turns.num_chunks; ++chunk) {
      for (int slot = first; slot < first + size; ++slot) {
        turns.forwards.push_back({slot, chunk});
        turns.backwards.push_back({slot, turns.num_chunks - 1 - chunk});
      }
    }
    first += size;
  }
  turns.hop = turns.num_chunks > 1 ? 2 : 1;
  turns.warm_up = (turns.num_chunks - 1) * sizes[0];
  return turns;
}

// Position of each slot's pass through a chunk. [slot]
std::vector<int> positions(const std::vector<Pass>& passes, int chunk, int num_slots) {
  std::vector<int> result(at(num_slots), 0);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    if (passes[i].chunk == chunk) {
      result[at(passes[i].slot)] = static_cast<int>(i);
    }
  }
  return result;
}

// Raises an encoder's warm-up so that the LLM has its inputs before the backward that the encoder
// waits for.
void warm_up_for(const ModuleTurns& llm, int num_slots, ModuleTurns& encoder) {
  const int last = encoder.num_chunks - 1;
  const std::vector<int> llm_forwards = positions(llm.forwards, 0, num_slots);
  const std::vector<int> llm_backwards = positions(llm.backwards, 0, num_slots);
  const std::vector<int> forwards = positions(encoder.forwards, last, num_slots);
  const std::vector<int> backwards = positions(encoder.backwards, last, num_slots);
  int wanted = 0;
  for (int turn = 0; turn < num_slots; ++turn) {
    const int done = llm.warm_up_of(0) + llm_backwards[at(turn)];
    for (int slot = turn; slot < num_slots && llm_forwards[at(slot)] <= done; ++slot) {
      wanted = std::max(wanted, forwards[at(slot)] - backwards[at(turn)] + 1);
    }
  }
  encoder.warm_up = std::max(encoder.warm_up, wanted);
}

class LaneBuilder {
 public:
  LaneBuilder(const StageGraph& stages,
              const ReplicaGraph& graph,
              int module,
              const ModuleTurns& turns)
      : graph_(graph), num_stages_(stages.num_stages(module)), turns_(turns) {
    int next = graph_.first_group[at(module)];
    int opened = next;
    for (int slot = 0; slot <= graph_.num_slots; ++slot) {
      while (opened < graph_.end_of(module) && graph_.group(opened).slot < slot) {
        ++opened;
      }
      opened_.push_back(opened);
      while (next < graph_.end_of(module) &&
             graph_.group(graph_.backward_order[at(next)]).turn < slot) {
        ++next;
      }
      released_.push_back(next);
    }
  }

  std::vector<Operation> run(int lane_index) {
    std::vector<Operation> lane;
    const std::size_t warm_up = at(turns_.warm_up_of(lane_index));
    for (std::size_t i = 0; i < warm_up; ++i) {
      forward(turns_.forwards[i], lane_index, lane);
    }
    for (std::size_t i = 0; i < turns_.backwards.size(); ++i) {
      if (warm_up + i < turns_.forwards.size()) {
        forward(turns_.forwards[warm_up + i], lane_index, lane);
      }
      backward(turns_.backwards[i], lane_index, lane);
    }
    return lane;
  }

 private:
  // -1 where the lane hosts one chunk less.
  [[nodiscard]] int stage_of(const Pass& pass, int lane_index) const {
    const int stage = pass.chunk * static_cast<int>(turns_.lanes.size()) + lane_index;
    return stage < num_stages_ ? stage : -1;
  }

  void forward(const Pass& pass, int lane_index, std::vector<Operation>& lane) const {
    const int stage = stage_of(pass, lane_index);
    const int end = opened_[at(pass.slot + 1)];
    for (int group = opened_[at(pass.slot)]; stage >= 0 && group < end; ++group) {
      lane.push_back({OperationKind::kForward, graph_.key(group, stage), -1});
    }
  }

  void backward(const Pass& pass, int lane_index, std::vector<Operation>& lane) const {
    const int stage = stage_of(pass, lane_index);
    for (int i = released_[at(pass.slot)]; i < released_[at(pass.slot + 1)]; ++i) {
      const int group = graph_.backward_order[at(i)];
      if (stage >= 0 && stage >= graph_.group(group).first_backward) {
        lane.push_back({OperationKind::kBackward, graph_.key(group, stage), -1});
      }
    }
  }

  const ReplicaGraph& graph_;
  int num_stages_;
  const ModuleTurns& turns_;
  std::vector<int> opened_;    // [slot + 1] the slot's first group
  std::vector<int> released_;  // [slot + 1] into backward_order
};

}  // namespace

std::string interleaved_objection(const Plan& plan) {
  const StageGraph stages = stage_graph(plan, {});
  bool any_wraps = false;
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    const std::vector<int> lanes = lanes_in_order(stages, static_cast<int>(module));
    if (lanes.empty()) {
      return fmt::format(
          "it needs each module on lanes of its own, stage i on lane i mod n of the module's n; "
          "the "
          "plan has module '{}' on others (entrain plan --virtual-stages makes such plans)",
          plan.modules[module].name);
    }
    any_wraps = any_wraps || lanes.size() < plan.modules[module].stages.size();
  }
  return any_wraps
             ? ""
             : "it needs virtual stages, several stages of a module on each of its lanes; the "
               "plan has one a lane (entrain plan --virtual-stages makes such plans)";
}

LaneOrders interleaved_order(const StageGraph& stages, const ReplicaGraph& graph) {
  const int llm = stages.llm;
  const int num_slots = graph.num_slots;
  std::vector<ModuleTurns> modules;
  for (int module = 0; module <= llm; ++module) {
    modules.push_back(
        module_turns(lanes_in_order(stages, module), stages.num_stages(module), num_slots));
  }
  LaneOrders orders(stages.lanes.size());
  for (int module = 0; module <= llm; ++module) {
    ModuleTurns& turns = modules[at(module)];
    if (module != llm) {
      warm_up_for(modules[at(llm)], num_slots, turns);
    }
    for (std::size_t i = 0; i < turns.lanes.size(); ++i) {
      orders[at(turns.lanes[i])] =
          LaneBuilder(stages, graph, module, turns).run(static_cast<int>(i));
    }
  }
  return orders;
}

}  // namespace entrain
