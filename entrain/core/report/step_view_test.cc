#include "entrain/core/report/step_view.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/report/critical_path.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"
#include "entrain/core/step/step.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/random_cases.h"

namespace entrain {
namespace {

std::vector<std::string> names_of_samples(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back("s" + std::to_string(i));
  }
  return names;
}

struct Drawn {
  explicit Drawn(std::uint64_t number, const char* schedule = "1f1b") {
    Rng rng(20261127, number);
    given = oracle::make_random_case(rng);
    program = build_program(given.plan, given.assignment, given.costs, schedule);
    timeline = simulate(program, given.costs, {.events = true});
    ids = names_of_samples(given.costs.num_samples);
    request.plan = &given.plan;
    request.costs = &given.costs;
    request.program = &program;
    request.predicted = &timeline;
    request.sample_ids = &ids;
  }
  Drawn(const Drawn&) = delete;
  Drawn& operator=(const Drawn&) = delete;

  oracle::RandomCase given;
  Program program;
  Timeline timeline;
  std::vector<std::string> ids;
  StepViewRequest request;
};

std::int64_t sum_of(const Json& list) {
  return std::accumulate(
      list.begin(), list.end(), std::int64_t{0}, [](std::int64_t sum, const Json& value) {
        return sum + value.get<std::int64_t>();
      });
}

// In a measured step all starts 100 ns late; `waited` of them, where it is known, for samples.
TEST(StepView, NamesWaitsForSamples) {
  using std::chrono::nanoseconds;
  Drawn drawn(0);
  const auto first_wait = [&](nanoseconds waited) {
    Timeline measured = drawn.timeline;
    for (TimelineEvent& event : measured.events) {
      event.start += nanoseconds(100);
      event.finish += nanoseconds(100);
    }
    const TimelineEvent first = *std::min_element(
        measured.events.begin(), measured.events.end(), [](const auto& a, const auto& b) {
          return std::pair(a.category, a.start) < std::pair(b.category, b.start);
        });
    const Operation& operation =
        drawn.program.replicas[0]
            .lanes[static_cast<std::size_t>(first.lane)][static_cast<std::size_t>(first.operation)];
    EXPECT_EQ(std::pair(operation.unit.module, operation.unit.stage), std::pair(0, 0));
    if (waited.count() > 0) {
      TimelineEvent wait = first;
      wait.category = EventCategory::kWait;
      wait.start = first.start - waited;
      wait.finish = first.start;
      measured.events.push_back(wait);
    }
    drawn.request.measured = &measured;
    const Json view = step_view(drawn.request);
    for (const Json& lane : view["timelines"].at(1)["lanes"]) {
      if (lane["replica"] == first.replica && lane["lane"] == first.lane) {
        return lane["events"]["wait"].at(0).get<int>();
      }
    }
    return -1;
  };
  EXPECT_EQ(first_wait(nanoseconds(90)), 7);
  EXPECT_EQ(first_wait(nanoseconds(40)), 5);  // mostly something else
  EXPECT_EQ(first_wait(nanoseconds(0)), 5);
}

// Every compute event is there with its time, its unit and its samples; what lanes do sums up to
// the step; balances are the work.
TEST(StepView, HoldsTheTimelineOfRandomCases) {
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Drawn drawn(i, i % 2 == 0 ? "1f1b" : "zb-h1");
    const Json view = step_view(drawn.request);
    const Json& timeline = view["timelines"].at(0);
    ASSERT_EQ(timeline["makespan_ns"], drawn.timeline.makespan.count());
    EXPECT_TRUE(timeline["thinned"].is_null());
    std::int64_t computes = 0;
    for (const Json& lane : timeline["lanes"]) {
      const Json& events = lane["events"];
      std::int64_t end = 0;
      std::vector<const TimelineEvent*> own;
      for (const TimelineEvent& event : drawn.timeline.events) {
        if (event.category == EventCategory::kCompute && lane["replica"] == event.replica &&
            lane["lane"] == event.lane) {
          own.push_back(&event);
        }
      }
      std::stable_sort(
          own.begin(), own.end(), [](const auto* a, const auto* b) { return a->start < b->start; });
      ASSERT_EQ(events["kind"].size(), own.size());
      for (std::size_t k = 0; k < own.size(); ++k) {
        const std::int64_t start = end + events["gap_ns"][k].get<std::int64_t>();
        end = start + events["dur_ns"][k].get<std::int64_t>();
        ASSERT_EQ(start, own[k]->start.count());
        ASSERT_EQ(end, own[k]->finish.count());
        ASSERT_EQ(events["wait"][k] == 0, events["gap_ns"][k] == 0);
        const Operation& operation =
            drawn.program.replicas[static_cast<std::size_t>(own[k]->replica)]
                .lanes[static_cast<std::size_t>(own[k]->lane)]
                      [static_cast<std::size_t>(own[k]->operation)];
        const int unit = events["unit"][k].get<int>();
        ASSERT_EQ(unit < 0, operation.unit.module < 0);
        if (unit >= 0) {
          const auto at = static_cast<std::size_t>(unit);
          ASSERT_EQ(timeline["units"]["module"][at], operation.unit.module);
          ASSERT_EQ(timeline["units"]["stage"][at], operation.unit.stage);
          ASSERT_EQ(timeline["units"]["slot"][at], operation.unit.slot);
        }
      }
      computes += std::ssize(own);
    }
    EXPECT_GT(computes, 0);
    std::int64_t working = 0;
    for (const Json& lane : view["lanes"]) {
      working += lane["forward_ns"].get<std::int64_t>() + lane["backward_ns"].get<std::int64_t>();
      std::int64_t sum = 0;
      for (const auto& [key, value] : lane.items()) {
        sum += key.ends_with("_ns") ? value.get<std::int64_t>() : 0;
      }
      ASSERT_EQ(sum, drawn.timeline.makespan.count());
    }
    const auto whole = static_cast<double>(drawn.timeline.makespan.count()) *
                       static_cast<double>(view["lanes"].size());
    ASSERT_NEAR(1 - static_cast<double>(working) / whole, bubble_fraction(drawn.timeline), 1e-9)
        << "what the page calls the bubble";
    for (std::size_t replica = 0; replica < drawn.program.replicas.size(); ++replica) {
      Json of_slots = std::vector<std::int64_t>(drawn.program.num_stages.size());
      for (const Json& slot : view["balance"]["slots"][replica]) {
        for (std::size_t module = 0; module < of_slots.size(); ++module) {
          of_slots[module] =
              of_slots[module].get<std::int64_t>() + slot[module].get<std::int64_t>();
        }
      }
      ASSERT_EQ(of_slots, view["balance"]["replicas"][replica]);
      std::int64_t busy = 0;
      for (const LaneUsage& lane : drawn.timeline.lanes[replica]) {
        busy += lane.busy.count();
      }
      ASSERT_EQ(sum_of(of_slots), busy);
    }
  }
}

TEST(StepView, PathIsTheCriticalPathsOperations) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Drawn drawn(i);
    const Json timeline = step_view(drawn.request)["timelines"].at(0);
    std::size_t computes = 0;
    for (const TimelineEvent& event : critical_path(drawn.program, drawn.timeline)) {
      computes += event.category == EventCategory::kCompute && event.finish > event.start ? 1 : 0;
    }
    EXPECT_GE(timeline["path"].size(), std::min<std::size_t>(computes, 1));
    for (const Json& place : timeline["path"]) {
      const Json& lane = timeline["lanes"].at(place.at(0).get<std::size_t>());
      ASSERT_LT(place.at(1).get<std::size_t>(), lane["events"]["kind"].size());
    }
  }
}

// Thinned, every lane still ends when it ends and is as busy as it is; the page says so.
TEST(StepView, ThinsLongTimelinesAndSaysSo) {
  const Drawn drawn(7);
  const Json whole = step_view(drawn.request)["timelines"].at(0);
  const Json thin = step_view(drawn.request, /*most_operations=*/1)["timelines"].at(0);
  EXPECT_NE(thin["thinned"].get<std::string>().find("operations"), std::string::npos);
  for (std::size_t lane = 0; lane < whole["lanes"].size(); ++lane) {
    const Json& a = whole["lanes"][lane]["events"];
    const Json& b = thin["lanes"][lane]["events"];
    EXPECT_LE(b["kind"].size(), a["kind"].size());
    EXPECT_EQ(sum_of(a["gap_ns"]) + sum_of(a["dur_ns"]), sum_of(b["gap_ns"]) + sum_of(b["dur_ns"]));
  }
}

TEST(StepView, SaysInWordsWhereTheTimeWent) {
  const std::vector<std::vector<int>> text_only(1);
  oracle::HandCase hand =
      oracle::make_hand_case({1, 1}, 3, {{1, {{0}}}, {1, {{1}}}, {2, {{2}}}, {0, text_only}});
  const SimulatedStep step =
      simulate_step(hand.assignment, hand.plan, hand.costs, {.events = true, .bound = true});
  const std::vector<std::string> ids = {"a", "b", "c", "d"};
  StepViewRequest request;
  request.plan = &hand.plan;
  request.costs = &hand.costs;
  request.program = &step.program;
  request.predicted = &step.timeline;
  request.measured = &step.timeline;
  request.sample_ids = &ids;
  request.bound = step.bound;
  const Json view = step_view(request);
  ASSERT_EQ(view["headline"].size(), 3U);
  EXPECT_EQ(view["headline"][2].get<std::string>().find("Measured it took "), 0U);
  EXPECT_NE(view["headline"][2].get<std::string>().find(", 1.00 times the prediction"),
            std::string::npos);
  EXPECT_NE(view["headline"][0].get<std::string>().find("% of the lanes' time is arithmetic"),
            std::string::npos);
  const auto bound = view["headline"][1].get<std::string>();
  EXPECT_NE(bound.find("times its lower bound"), std::string::npos);
  EXPECT_NE(bound.find("with whole backwards"), std::string::npos) << bound;
  Program halves = step.program;
  halves.schedule = "zb-h1";
  request.program = &halves;
  EXPECT_EQ(headline_of(request).at(1).find("whole backwards"), std::string::npos);
  EXPECT_EQ(view["timelines"].size(), 2U);
  EXPECT_EQ(view["timelines"][1]["label"], "measured");
  EXPECT_EQ(view["timelines"][0]["lanes"], view["timelines"][1]["lanes"]);
  std::int64_t causes = 0;
  for (const Json& cause : view["gap"]["causes"]) {
    causes += cause["ns"].get<std::int64_t>();
  }
  EXPECT_EQ(causes - view["gap"]["in_bound_ns"].get<std::int64_t>(),
            step.timeline.makespan.count() - step.bound.count());
  request.bound = std::chrono::nanoseconds(0);
  EXPECT_TRUE(step_view(request)["gap"].is_null());
  EXPECT_EQ(step_view(request)["headline"].size(), 2U);
  EXPECT_EQ(step_view(request)["headline"][0].get<std::string>().find("Predicted: "), 0U);
  request.measured = nullptr;
  EXPECT_EQ(step_view(request)["headline"].size(), 1U);
}

}  // namespace
}  // namespace entrain
