#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::compute_text;
using oracle::HandCase;
using oracle::make_plain_case;

// The encoder shares a lane with the LLM's first stage.
HandCase shared_lane(int num_slots) {
  HandCase hand_case = make_plain_case({1, 2}, num_slots);
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}, {{1, 1}}};
  return hand_case;
}

TEST(LanesOfSomeStages, KeepsEveryStagesOwnOrder) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    const HandCase apart = make_plain_case({1, 2}, 4);
    const HandCase shared = shared_lane(4);
    const Program expected = build_program(apart.plan, apart.assignment, apart.costs, schedule);
    const Program program = build_program(shared.plan, shared.assignment, shared.costs, schedule);
    validate_program(program, shared.plan, shared.assignment, shared.costs);
    for (int module = 0; module < 2; ++module) {
      std::vector<Operation> own;
      std::vector<Operation> wanted;
      for (const Operation& operation : program.replicas[0].lanes[0]) {
        if (operation.unit.module == module && operation.channel < 0) {
          own.push_back(operation);
        }
      }
      for (const Operation& operation :
           expected.replicas[0].lanes[static_cast<std::size_t>(module)]) {
        if (operation.unit.module == module && operation.channel < 0) {
          wanted.push_back(operation);
        }
      }
      EXPECT_EQ(own, wanted) << schedule << " module " << module;
    }
  }
}

// Forward 10 ns, backward 20 ns. At 20 ns the LLM's slot 0 could start on lane 0 along with the
// encoder's slot 1; the higher stage goes first.
TEST(LanesOfSomeStages, PrefersWhatIsNearerTheLoss) {
  const HandCase hand_case = shared_lane(2);
  const Program program =
      build_program(hand_case.plan, hand_case.assignment, hand_case.costs, "1f1b");
  EXPECT_EQ(compute_text(program, 0, 0),
            "vision0:F0 llm0:F0 vision0:F1 llm0:F1 llm0:B0 vision0:B0 llm0:B1 vision0:B1");
}

// Lane 0 hosts the encoder and the LLM's first stage; sample 0 is cut into slots 0 and 1.
TEST(LanesOfSomeStages, KeepsChunksInOrder) {
  HandCase hand_case = shared_lane(2);
  cut_sample(hand_case, 0, {0, 1}, {0, 6});
  for (const char* schedule : {"gpipe", "1f1b"}) {
    const Program program =
        build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
    EXPECT_NO_THROW(
        validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs));
    const std::string text = compute_text(program, 0, 0);
    EXPECT_LT(text.find("llm0:F0"), text.find("llm0:F1")) << text;
    EXPECT_LT(text.find("llm0:B1"), text.find("llm0:B0")) << text;
  }
}

}  // namespace
}  // namespace entrain
