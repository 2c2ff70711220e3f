#include "entrain/engine/train/prepared_step.h"

#include <functional>
#include <set>

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

PreparedStep small_step() {
  PreparedStep step;
  step.step = 3;
  step.sample_ids = {"a", "b"};
  step.target_tokens = 7;
  step.assignment.replicas.resize(1);
  step.assignment.replicas[0].num_slots = 1;
  step.assignment.replicas[0].modules = {{{{.sample = 0, .segment = 0}}}, {{{.sample = 0}}}};
  step.program.replicas.resize(2);
  for (ReplicaProgram& replica : step.program.replicas) {
    replica.lanes = {{{OperationKind::kForward, {0, 0, 0, 0}, -1},
                      {OperationKind::kSend, {0, 0, 0, 0}, 2},
                      {OperationKind::kBackward, {0, 0, 0, 0}, -1}},
                     {{OperationKind::kReceive, {0, 0, 0, 0}, 2}}};
  }
  return step;
}

// Ranks compare digests to learn whether they would run the same step.
TEST(StepDigest, DistinguishesWhateverRanksMustAgreeOn) {
  using Change = std::function<void(PreparedStep&)>;
  const auto operation = [](PreparedStep& step) -> Operation& {
    return step.program.replicas[1].lanes[0][1];
  };
  const std::vector<Change> changes = {
      [](PreparedStep& step) { step.step = 4; },
      [](PreparedStep& step) { step.target_tokens = 8; },
      [](PreparedStep& step) {
        step.sample_ids = {"b", "a"};
      },
      [](PreparedStep& step) {
        step.sample_ids = {"ab", ""};
      },
      [](PreparedStep& step) { step.assignment.replicas[0].modules[1][0][0].sample = 1; },
      [&](PreparedStep& step) { operation(step).kind = OperationKind::kReceive; },
      [&](PreparedStep& step) { operation(step).unit.module = 1; },
      [&](PreparedStep& step) { operation(step).unit.stage = 1; },
      [&](PreparedStep& step) { operation(step).unit.slot = 1; },
      [&](PreparedStep& step) { operation(step).unit.group = 1; },
      [&](PreparedStep& step) { operation(step).channel = 3; },
      [](PreparedStep& step) {
        std::swap(step.program.replicas[0].lanes[0][0], step.program.replicas[0].lanes[0][2]);
      },
      [](PreparedStep& step) {  // the same operations, one of them on the other lane
        auto& lanes = step.program.replicas[0].lanes;
        lanes[1].insert(lanes[1].begin(), lanes[0].back());
        lanes[0].pop_back();
      },
  };
  std::set<std::string> seen = {digest(small_step())};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    PreparedStep changed = small_step();
    changes[i](changed);
    EXPECT_TRUE(seen.insert(digest(changed)).second) << "change " << i;
  }
}

TEST(StepDigest, LeavesOutWhatEveryRankPredictsForItself) {
  PreparedStep step = small_step();
  step.predicted.makespan = std::chrono::seconds(1);
  step.assignment.stats.assign_ms = 12;
  step.batch = {5, 6};
  EXPECT_EQ(digest(step), digest(small_step()));
  EXPECT_EQ(digest(step).size(), 32U);  // as step_barrier.cc exchanges it
}

}  // namespace
}  // namespace entrain::engine
