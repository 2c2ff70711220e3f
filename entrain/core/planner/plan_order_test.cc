// What a search of plans looks at first.
#include "entrain/core/planner/plan_order.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

PlanShape shape(int replicas, const std::vector<ModuleShape>& modules) {
  return {.replicas = replicas, .modules = modules};
}

ModuleShape module(int stages, int tensor_parallel) {
  return {.degrees = {.tensor_parallel = tensor_parallel}, .stages = stages};
}

std::vector<PlanEntry> entries_of(const std::vector<PlanShape>& shapes) {
  std::vector<PlanEntry> result;
  for (const PlanShape& config : shapes) {
    const auto number = static_cast<std::int64_t>(result.size());
    result.push_back({.estimate_ns = number, .number = number, .config = config});
  }
  return result;
}

constexpr std::int64_t kDear = 400'000;  // units: two of them are what one part may count

TEST(ChooseGuesses, TakesTheFirstByEstimateAndOneOfEachNumberOfReplicas) {
  const auto chosen = choose_guesses(entries_of({shape(2, {module(3, 1), module(5, 1)}),
                                                 shape(2, {module(4, 1), module(4, 1)}),
                                                 shape(2, {module(5, 1), module(3, 1)}),
                                                 shape(4, {module(2, 1), module(2, 1)}),
                                                 shape(4, {module(1, 1), module(3, 1)}),
                                                 shape(16, {module(1, 1)})}),
                                     [](const PlanShape&) { return kDear; },
                                     {});
  EXPECT_EQ(chosen.first, (std::set<std::int64_t>{0, 1, 3, 5}));
  EXPECT_TRUE(chosen.scouts.empty());
}

TEST(ChooseGuesses, SendsOneScoutOfEachOtherKindThatTakesLittle) {
  const auto units = [](const PlanShape& config) {
    const int tensor = config.modules.front().degrees.tensor_parallel;
    return tensor == 1 ? kDear : tensor == 8 ? std::int64_t{90'000} : std::int64_t{40'000};
  };
  const std::vector<PlanEntry> entries = entries_of({shape(2, {module(3, 1), module(5, 1)}),
                                                     shape(2, {module(4, 1), module(4, 1)}),
                                                     shape(2, {module(2, 2), module(4, 1)}),
                                                     shape(2, {module(1, 2), module(6, 1)}),
                                                     shape(2, {module(1, 8), module(5, 1)}),
                                                     shape(2, {module(2, 2), module(2, 2)}),
                                                     shape(2, {module(5, 1), module(3, 1)})});
  EXPECT_EQ(choose_guesses(entries, units, {}).first, (std::set<std::int64_t>{0, 1}));
  // Of 2 and 3, which differ in lanes alone, the first; 4 takes more than an eighth.
  EXPECT_EQ(choose_guesses(entries, units, {}).scouts, (std::set<std::int64_t>{2, 5}));
  EXPECT_TRUE(choose_guesses(entries, units, {.guided = true}).scouts.empty());
}

// Of 700,000 units cheap kinds count up to two thirds, whatever comes before them by estimate, and
// kinds of up to an eighth the rest.
TEST(ChooseGuesses, SendsCheapScoutsBeforeDearOnes) {
  std::vector<PlanShape> shapes(2, shape(2, {module(4, 1)}));
  for (int kind = 2; kind < 40; ++kind) {
    shapes.push_back(shape(2, {module(4, kind)}));
    shapes.push_back(shape(2, {module(5, kind)}));
  }
  int asked = 0;
  const auto units = [&](const PlanShape& config) {
    const int kind = config.modules.front().degrees.tensor_parallel;
    ++asked;
    return kind == 1 ? kDear : std::int64_t{kind % 2 == 0 ? 40'000 : 80'000};
  };
  const GuessChoice chosen = choose_guesses(entries_of(shapes), units, {});
  // The even kinds up to 24 count 480,000 units, 3, 5 and 7 another 240,000.
  std::set<std::int64_t> expected{4, 8, 12};
  for (int kind = 2; kind <= 24; kind += 2) {
    expected.insert(2 * kind - 2);
  }
  EXPECT_EQ(chosen.scouts, expected);
  EXPECT_EQ(asked, 2 + 23 + 3);  // two first ones, and each kind once a pass
}

TEST(ChooseGuesses, TakesFewWhereGuided) {
  std::vector<PlanShape> shapes(20, shape(2, {module(4, 1), module(4, 1)}));
  const auto cheap = [](const PlanShape&) { return std::int64_t{1}; };
  EXPECT_EQ(choose_guesses(entries_of(shapes), cheap, {.guided = true}).first.size(), 4U);
  EXPECT_EQ(
      choose_guesses(entries_of(shapes), cheap, {.guided = true, .size_scale = 4}).first.size(),
      8U);
  EXPECT_EQ(choose_guesses(entries_of(shapes), cheap, {}).first.size(), shapes.size());
}

TEST(NearPlan, ScalesGoesOnAndChangesOneModule) {
  const PlanShape before = shape(2, {module(3, 1), module(5, 1)});
  const PlanShape best = shape(2, {module(2, 1), module(6, 1)});
  const std::vector<PlanEntry> entries =
      entries_of({before,
                  shape(2, {module(1, 1), module(7, 1)}),  // nearest in lanes, but judged
                  shape(2, {module(4, 2), module(4, 1)}),  // two modules, other degrees
                  shape(4, {module(1, 1), module(3, 1)}),  // scaled
                  shape(2, {module(1, 2), module(6, 1)}),  // one module
                  shape(2, {module(5, 1), module(3, 1)}),  // lanes alone
                  shape(8, {module(1, 1), module(1, 1)}),
                  shape(2, {module(0, 1), module(8, 1)})});  // goes on twice as far
  const std::vector<char> judged{0, 1, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(near_plan(entries, judged, best, before), (std::vector<std::size_t>{3, 7, 4, 0}));
}

}  // namespace
}  // namespace entrain
