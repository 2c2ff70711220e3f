#include "tests/oracle/two_lanes.h"

#include <sstream>

#include "entrain/core/base/errors.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain::oracle {
namespace {

using std::chrono::nanoseconds;

constexpr int kActivations = 0;
constexpr int kGradients = 1;

// One word of a lane's list. F0, B0, I0, W0: forward, backward, input and weight half of slot 0;
// >F0 and <F0: its activation's send and receive, >B0 and <B0: its gradient's; reduce, clip, step.
Operation operation_of(const std::string& word, int module) {
  if (word == "reduce") {
    return {OperationKind::kReduceGradients, {}, -1};
  }
  if (word == "clip") {
    return {OperationKind::kClipNorm, {}, -1};
  }
  if (word == "step") {
    return {OperationKind::kOptimizerStep, {}, -1};
  }
  const int slot = word.back() - '0';
  if (word.front() == '>' || word.front() == '<') {
    return {word.front() == '>' ? OperationKind::kSend : OperationKind::kReceive,
            {0, 0, slot, 0},
            word[1] == 'F' ? kActivations : kGradients};
  }
  const OperationKind kind = word.front() == 'F'   ? OperationKind::kForward
                             : word.front() == 'B' ? OperationKind::kBackward
                             : word.front() == 'I' ? OperationKind::kBackwardInput
                                                   : OperationKind::kBackwardWeight;
  return {kind, {module, 0, slot, 0}, -1};
}

std::vector<Operation> list_of(const std::string& text, int module) {
  std::istringstream words(text);
  std::vector<Operation> result;
  for (std::string word; words >> word;) {
    result.push_back(operation_of(word, module));
  }
  return result;
}

}  // namespace

Group group_of_items(std::vector<WorkItem> items, std::vector<int> llm_slots) {
  Group group;
  group.items = std::move(items);
  group.llm_slots = std::move(llm_slots);
  group.part_sizes.assign(group.llm_slots.size(), 1);
  group.takes_backward = {1};
  return group;
}

TwoLanes::TwoLanes(int num_slots) : costs(make_plain_case({1, 1}, num_slots).costs) {
  program.lanes = {{{0, 0}}, {{1, 0}}};
  program.num_stages = {1, 1};
  program.module_names = {"vision", "llm"};
}

void TwoLanes::add_replica(const std::string& vision, const std::string& llm) {
  ReplicaProgram replica;
  const int num_slots = costs.num_samples;
  replica.groups.resize(2);
  for (int slot = 0; slot < num_slots; ++slot) {
    replica.groups[0].push_back({group_of_items({{.sample = slot, .segment = 0}}, {slot})});
    replica.groups[1].push_back({group_of_items({{.sample = slot}}, {slot})});
  }
  replica.channels = {{0, 1, {0, 0}, {1, 0}, false}, {1, 0, {0, 0}, {1, 0}, true}};
  replica.lanes = {list_of(vision, 0), list_of(llm, 1)};
  program.replicas.push_back(std::move(replica));
}

TwoLanes two_slots_with_link() {
  TwoLanes lanes(2);
  lanes.costs.link = {nanoseconds{3}, 1e9};
  lanes.add_replica("F0 >F0 F1 >F1 <B0 B0 <B1 B1", "<F0 F0 B0 >B0 <F1 F1 B1 >B1");
  return lanes;
}

std::string failure_of(const TwoLanes& lanes) {
  try {
    simulate(lanes.program, lanes.costs);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "finished";
}

}  // namespace entrain::oracle
