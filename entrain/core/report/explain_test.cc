// explain() and its texts (explain_text.cc).
#include "entrain/core/report/explain.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

// Three slots; "a" has its image in slot 0 and its LLM work in slot 1; "d" is text-only.
struct Instance {
  Instance() {
    const std::vector<std::vector<int>> text_only(1);  // no segment in the one encoder
    hand = oracle::make_hand_case({1, 1}, 3, {{1, {{0}}}, {1, {{1}}}, {2, {{2}}}, {0, text_only}});
    hand.assignment.policy = "by hand";
    names.modules = {"vision", "llm"};
    names.samples = {"a", "b", "c", "d"};
    names.work = hand.costs.work;
    request.plan = &hand.plan;
    request.costs = &hand.costs;
    request.step = &step;
    request.names = &names;
    simulate();
  }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  void simulate() {
    step = simulate_step(hand.assignment, hand.plan, hand.costs, {.events = true, .bound = true});
  }

  oracle::HandCase hand;
  BatchNames names;
  SimulatedStep step;
  ExplainRequest request;
};

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in:\n" << text;
  }
}

TEST(Explain, AccountsForTheWholeStep) {
  const Instance instance;
  const Explanation explanation = explain(instance.request);
  EXPECT_GT(explanation.step_ns, 0);
  EXPECT_GE(explanation.step_ns, explanation.bound_ns);
  std::int64_t path = 0;
  for (const PathShare& share : explanation.path) {
    path += share.time_ns;
  }
  EXPECT_EQ(path, explanation.step_ns);
  // The LLM's lane has four samples of 30 ns, the encoder's three.
  EXPECT_EQ(explanation.busiest.lane, 1);
  EXPECT_EQ(explanation.shared_ns, 120);
  EXPECT_EQ(explanation.lanes.size(), 2U);
}

TEST(Explain, ListsSlotsAndDeferrals) {
  const Instance instance;
  const Explanation explanation = explain(instance.request);
  ASSERT_EQ(explanation.slots.size(), 3U);
  EXPECT_EQ(explanation.slots[1][1].samples, (std::vector<int>{0, 1}));
  EXPECT_EQ(explanation.slots[1][1].work_ns, 60);
  EXPECT_DOUBLE_EQ(explanation.slots[1][1].of_mean, 1.5);
  EXPECT_EQ(explanation.slots[0][0].num_units, 1);
  EXPECT_EQ(explanation.deferrals, (std::vector<Deferral>{{0, 0, 0, 1}}));
}

TEST(Explain, ReportsTheStoryOfOneSample) {
  Instance instance;
  instance.request.sample = 0;
  const Explanation explanation = explain(instance.request);
  ASSERT_EQ(explanation.stories.size(), 1U);
  const SampleStory& story = explanation.stories[0];
  EXPECT_EQ(story.segment_slots, (std::vector<std::vector<int>>{{0}}));
  EXPECT_EQ(story.llm_slots, (std::vector<int>{1}));
  EXPECT_DOUBLE_EQ(story.of_mean[0], 4.0 / 3) << "three of four samples have an image";
  EXPECT_FALSE(story.alternatives.empty());
  expect_words(
      to_string(explanation, instance.request),
      {"The sample:", "  a (replica 0):", "vision: slot 0", "llm: slot 1", "not deferred"});
}

TEST(Explain, ReportsTheHeaviestSamplesByDefault) {
  Instance instance;
  instance.hand.costs.modules[1].stages[0].units[2].time.forward = std::chrono::nanoseconds{500};
  instance.simulate();
  instance.request.stories = 1;
  const Explanation explanation = explain(instance.request);
  ASSERT_EQ(explanation.stories.size(), 1U);
  EXPECT_EQ(explanation.stories[0].sample, 2);
}

TEST(Explain, RefusesWhatDoesNotExist) {
  Instance instance;
  instance.request.slot = 3;
  expect_words(oracle::error_of<InvalidInput>([&] { explain(instance.request); }), {"slot 3", "3"});
  instance.request.slot = -1;
  instance.request.replica = 1;
  expect_words(oracle::error_of<InvalidInput>([&] { explain(instance.request); }), {"replica 1"});
}

TEST(ExplainText, SaysWhereTheTimeGoes) {
  Instance instance;
  const Explanation explanation = explain(instance.request);
  expect_words(to_string(explanation, instance.request),
               {"by 'by hand' with '1f1b'",
                "The busiest lane of replica 0 is lane 1 (llm 0)",
                "work on this lane, mean over replicas",
                "The critical path",
                "Lanes of replica 0",
                "(1 from slot 0)"});
  instance.request.slot = 1;
  expect_words(to_string(explain(instance.request), instance.request), {"llm: a, b"});
}

TEST(ExplainJson, HoldsTheSame) {
  const Instance instance;
  const Json document = to_json(explain(instance.request), instance.request);
  EXPECT_EQ(document.at("busiest_lane"), 1);
  EXPECT_EQ(document.at("slots").size(), 3U);
  EXPECT_EQ(document.at("slots")[1].at("llm").at("samples"), Json::array({"a", "b"}));
  EXPECT_EQ(document.at("deferred")[0].at("sample"), "a");
  EXPECT_EQ(document.at("samples").size(), 3U);
  EXPECT_EQ(document.at("lanes").size(), 2U);
}

}  // namespace
}  // namespace entrain
