#include "entrain/core/schedule/dependencies.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

// Against the definition in program.h, unit by unit.
TEST(UnitDependencies, AreTheInputsOfEveryUnit) {
  constexpr std::uint64_t kSeed = 88;
  int links = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    Rng rng(kSeed, i);
    oracle::RandomCaseOptions options;
    options.chunks = i % 2 == 0;
    const oracle::RandomCase drawn = oracle::make_random_case(rng, options);
    const Program program = build_program(drawn.plan, drawn.assignment, drawn.costs, "gpipe");
    const auto& groups = program.replicas[0].groups;
    const UnitTable table(groups, program.num_stages);
    const UnitDependencies dependencies(groups, table);
    for (int number = 0; number < static_cast<int>(table.groups().size()); ++number) {
      const GroupEntry& entry = table.entry(number);
      for (int stage = 0; stage < table.num_stages(entry.module); ++stage) {
        const UnitKey key = table.key(number, stage);
        const int unit = table.unit_number(number, stage);
        const auto numbers = [&](const std::vector<UnitKey>& keys) {
          std::vector<int> result;
          for (const UnitKey& input : keys) {
            result.push_back(table.unit_number(table.group_number(input), input.stage));
          }
          return result;
        };
        const auto forward = dependencies.before_forward(unit);
        ASSERT_EQ(std::vector<int>(forward.begin(), forward.end()),
                  numbers(forward_inputs(program, 0, key)))
            << "seed " << kSeed << " case " << i;
        const auto backward = dependencies.before_backward(unit);
        const bool takes_backward = stage >= entry.first_backward_stage;
        ASSERT_EQ(std::vector<int>(backward.begin(), backward.end()),
                  takes_backward ? numbers(backward_inputs(program, 0, key)) : std::vector<int>())
            << "seed " << kSeed << " case " << i;
        links += static_cast<int>(group_of(program.replicas[0], key).earlier.size());
      }
    }
  }
  EXPECT_GT(links, 300);
}

}  // namespace
}  // namespace entrain
