#include "entrain/core/spec/program.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace entrain {
namespace {

Group group(std::vector<WorkItem> items, std::vector<int> llm_slots, std::vector<int> part_sizes) {
  Group result;
  result.items = std::move(items);
  result.llm_slots = std::move(llm_slots);
  result.part_sizes = std::move(part_sizes);
  return result;
}

// Two stages of vision, one of audio, two of the LLM; three slots. Vision slot 0 has two groups:
// one serves LLM slot 0, the other both groups of slot 1 and slot 2. Audio slot 1 serves slot 2.
// Vision slot 1 is empty. LLM slot 1 has two groups: the second holds a chunk that goes on in
// slot 2.
Program small_program() {
  Program program;
  program.schedule = "1f1b";
  program.num_stages = {2, 1, 2};
  program.module_names = {"vision", "audio", "llm"};
  program.lanes = {{{0, 0}}, {{0, 1}, {1, 0}}, {{2, 0}}, {{2, 1}}};
  ReplicaProgram replica;
  replica.groups = {
      {{group({{0, 0}}, {0}, {1}), group({{4, 0}, {1, 0}, {2, 0}}, {1, 1, 2}, {1, 1, 1})},
       {},
       {group({{3, 0}}, {2}, {1})}},
      {{}, {group({{3, 0}}, {2}, {1})}, {}},
      {{group({{0}}, {0}, {1})},
       {group({{4}}, {1}, {1}), group({{1, -1, 0, 5}}, {1}, {1})},
       {group({{2}, {3}, {1, -1, 5, 9}}, {2}, {3})}},
  };
  replica.groups[0][0][1].llm_groups = {0, 1, 0};
  replica.groups[2][1][1].later = {{2, 0}};
  replica.groups[2][2][0].earlier = {{1, 1}};
  replica.channels = {{0, 1, {0, 0}, {0, 1}, false}, {1, 0, {0, 0}, {0, 1}, true}};
  replica.lanes = {{{OperationKind::kForward, {0, 0, 0, 0}},
                    {OperationKind::kSend, {0, 0, 0, 0}, 0},
                    {OperationKind::kClipNorm, {}}}};
  program.replicas = {replica};
  return program;
}

using Keys = std::vector<UnitKey>;

TEST(ForwardInputs, AreTheStageBefore) {
  const Program program = small_program();
  EXPECT_EQ(forward_inputs(program, 0, {0, 1, 0, 1}), (Keys{{0, 0, 0, 1}}));
  EXPECT_EQ(forward_inputs(program, 0, {2, 1, 1, 1}), (Keys{{2, 0, 1, 1}}));
}

TEST(ForwardInputs, AreNoneForAnEncodersFirstStage) {
  const Program program = small_program();
  EXPECT_TRUE(forward_inputs(program, 0, {0, 0, 0, 0}).empty());
  EXPECT_TRUE(forward_inputs(program, 0, {1, 0, 1, 0}).empty());
}

TEST(ForwardInputs, HoldTheChunkBeforeOnTheSameStage) {
  const Program program = small_program();
  EXPECT_EQ(forward_inputs(program, 0, {2, 1, 2, 0}), (Keys{{2, 0, 2, 0}, {2, 1, 1, 1}}));
}

TEST(ForwardInputs, AreAllEncoderGroupsThatServeTheLlmGroup) {
  const Program program = small_program();
  EXPECT_EQ(forward_inputs(program, 0, {2, 0, 1, 1}), (Keys{{0, 1, 0, 1}}));
  EXPECT_EQ(forward_inputs(program, 0, {2, 0, 0, 0}), (Keys{{0, 1, 0, 0}}));
  EXPECT_EQ(forward_inputs(program, 0, {2, 0, 1, 0}), (Keys{{0, 1, 0, 1}}));
  EXPECT_EQ(forward_inputs(program, 0, {2, 0, 2, 0}),
            (Keys{{0, 1, 0, 1}, {0, 1, 2, 0}, {1, 0, 1, 0}, {2, 0, 1, 1}}));
}

TEST(BackwardInputs, AreTheStageAfter) {
  const Program program = small_program();
  EXPECT_EQ(backward_inputs(program, 0, {0, 0, 0, 1}), (Keys{{0, 1, 0, 1}}));
  EXPECT_EQ(backward_inputs(program, 0, {2, 0, 1, 0}), (Keys{{2, 1, 1, 0}}));
  EXPECT_TRUE(backward_inputs(program, 0, {2, 1, 1, 0}).empty());
  EXPECT_TRUE(backward_inputs(program, 0, {2, 1, 2, 0}).empty());
}

TEST(BackwardInputs, HoldTheChunkAfterOnTheSameStage) {
  const Program program = small_program();
  EXPECT_EQ(backward_inputs(program, 0, {2, 0, 1, 1}), (Keys{{2, 1, 1, 1}, {2, 0, 2, 0}}));
  EXPECT_EQ(backward_inputs(program, 0, {2, 1, 1, 1}), (Keys{{2, 1, 2, 0}}));
}

TEST(BackwardInputs, AreEveryLlmGroupServed) {
  const Program program = small_program();
  EXPECT_EQ(backward_inputs(program, 0, {0, 1, 0, 0}), (Keys{{2, 0, 0, 0}}));
  EXPECT_EQ(backward_inputs(program, 0, {0, 1, 0, 1}),
            (Keys{{2, 0, 1, 0}, {2, 0, 1, 1}, {2, 0, 2, 0}}));
  EXPECT_EQ(backward_inputs(program, 0, {1, 0, 1, 0}), (Keys{{2, 0, 2, 0}}));
}

// What flows forward along an edge has its gradient flow back along it.
TEST(BackwardInputs, MirrorForwardInputs) {
  const Program program = small_program();
  std::set<std::pair<UnitKey, UnitKey>> forward;
  std::set<std::pair<UnitKey, UnitKey>> backward;
  const auto& groups = program.replicas[0].groups;
  for (int module = 0; module < 3; ++module) {
    for (int stage = 0; stage < program.num_stages[static_cast<std::size_t>(module)]; ++stage) {
      for (int slot = 0; slot < 3; ++slot) {
        const auto& list = groups[static_cast<std::size_t>(module)][static_cast<std::size_t>(slot)];
        for (int index = 0; index < static_cast<int>(list.size()); ++index) {
          const UnitKey unit{module, stage, slot, index};
          for (const UnitKey& input : forward_inputs(program, 0, unit)) {
            forward.emplace(input, unit);
          }
          for (const UnitKey& input : backward_inputs(program, 0, unit)) {
            backward.emplace(unit, input);
          }
        }
      }
    }
  }
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(forward.size(), 3U + 4U + 6U + 2U) << "vision, LLM, encoder to LLM, chunks";
}

TEST(GroupOf, FindsTheItems) {
  const Program program = small_program();
  EXPECT_EQ(group_of(program.replicas[0], {0, 1, 0, 1}).items.size(), 3U);
  EXPECT_EQ(group_of(program.replicas[0], {2, 0, 1, 1}).items[0].token_end, 5);
}

TEST(GroupOf, RefusesAGroupThatDoesNotExist) {
  const Program program = small_program();
  EXPECT_THROW(group_of(program.replicas[0], {0, 0, 1, 0}), InternalError);
  EXPECT_THROW(group_of(program.replicas[0], {0, 0, 3, 0}), InternalError);
  EXPECT_THROW(group_of(program.replicas[0], {3, 0, 0, 0}), InternalError);
  EXPECT_THROW(group_of(program.replicas[0], {-1, -1, -1, -1}), InternalError);
}

TEST(OperationText, NamesKindAndUnit) {
  Program program = small_program();
  EXPECT_EQ(to_string(program, {OperationKind::kForward, {0, 1, 3, 0}}),
            "forward vision 1 slot 3 group 0");
  EXPECT_EQ(to_string(program, {OperationKind::kReceive, {2, 0, 1, 1}, 4}),
            "receive llm 0 slot 1 group 1 channel 4");
  EXPECT_EQ(to_string(program, {OperationKind::kReduceGradients, {}}), "reduce_gradients");
  program.module_names.clear();
  EXPECT_EQ(to_string(program, {OperationKind::kBackwardInput, {1, 0, 0, 0}}),
            "backward_input encoder1 0 slot 0 group 0");
  EXPECT_EQ(to_string(program, {OperationKind::kBackwardWeight, {2, 0, 0, 0}}),
            "backward_weight llm 0 slot 0 group 0");
}

TEST(OperationText, SpellsEveryKindOnce) {
  std::set<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(OperationKind::kSyncTied); ++kind) {
    names.emplace(name_of(static_cast<OperationKind>(kind)));
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"forward",
                                   "backward",
                                   "backward_input",
                                   "backward_weight",
                                   "send",
                                   "receive",
                                   "reduce_gradients",
                                   "clip_norm",
                                   "optimizer_step",
                                   "gather_parameters",
                                   "sync_tied"}));
}

}  // namespace
}  // namespace entrain
