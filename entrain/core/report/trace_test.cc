#include "entrain/core/report/trace.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

struct Traced {
  oracle::HandCase hand_case;
  Program program;
  Timeline timeline;
  std::vector<std::string> ids;

  [[nodiscard]] Json trace() const {
    std::ostringstream out;
    write_trace(out, program, timeline, hand_case.costs, ids, "predicted");
    return parse_json(out.str(), "trace");
  }
};

// Three samples in three slots, the second with two images, the first deferred by a slot; a link.
Traced make_traced(const std::string& schedule) {
  Traced traced;
  traced.hand_case = oracle::make_hand_case({2, 1}, 3, {{1, {{0}}}, {1, {{0, 1}}}, {2, {{2}}}});
  traced.hand_case.costs.link = {std::chrono::nanoseconds{1234}, 1e9};
  traced.hand_case.costs.modules[1].stages[0].optimizer = std::chrono::nanoseconds{77};
  traced.program = build_program(
      traced.hand_case.plan, traced.hand_case.assignment, traced.hand_case.costs, schedule);
  traced.timeline = simulate(traced.program, traced.hand_case.costs, {.events = true});
  traced.ids = {"one", "two \"quoted\"\n", "drei µ"};
  return traced;
}

std::int64_t nanoseconds_of(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

const Operation& operation_of(const Traced& traced, const TimelineEvent& event) {
  return traced.program.replicas[static_cast<std::size_t>(event.replica)]
      .lanes[static_cast<std::size_t>(event.lane)][static_cast<std::size_t>(event.operation)];
}

TEST(WriteTrace, HoldsEveryEventOfTheTimeline) {
  for (const char* schedule : {"gpipe", "1f1b", "1f1b-eager", "zb-h1", "entrain"}) {
    const Traced traced = make_traced(schedule);
    using Key = std::tuple<std::string, std::int64_t, int, std::int64_t, std::int64_t>;
    std::multiset<Key> expected;
    for (const TimelineEvent& event : traced.timeline.events) {
      const bool wait = event.category == EventCategory::kWait;
      const int thread = event.category == EventCategory::kSend      ? 1
                         : event.category == EventCategory::kReceive ? 2
                                                                     : 0;
      expected.insert({wait ? "wait" : std::string(name_of(operation_of(traced, event).kind)),
                       event.replica * traced.program.num_lanes() + event.lane,
                       thread,
                       event.start.count(),
                       (event.finish - event.start).count()});
    }
    std::multiset<Key> actual;
    const Json trace = traced.trace();
    for (const Json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") {
        actual.insert({event.at("name"),
                       event.at("pid"),
                       event.at("tid"),
                       nanoseconds_of(event.at("ts")),
                       nanoseconds_of(event.at("dur"))});
      }
    }
    EXPECT_EQ(actual, expected);
    EXPECT_GT(actual.size(), 20U);
  }
}

TEST(WriteTrace, SaysWhatRan) {
  const Traced traced = make_traced("1f1b");
  const std::map<std::string, std::string> categories = {{"forward", "compute"},
                                                         {"backward", "compute"},
                                                         {"optimizer_step", "compute"},
                                                         {"send", "communication"},
                                                         {"receive", "communication"},
                                                         {"wait", "wait"}};
  const Json trace = traced.trace();
  EXPECT_EQ(trace.at("otherData").at("label"), "predicted");
  EXPECT_EQ(trace.at("otherData").at("schedule"), "1f1b");
  int encoder_forwards = 0;
  int llm_forwards = 0;
  std::set<std::string> names;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") {
      continue;
    }
    const std::string name = event.at("name");
    names.insert(name);
    EXPECT_EQ(event.at("cat"), categories.at(name));
    const Json& args = event.at("args");
    EXPECT_EQ(args.at("replica").get<int>() * 3 + args.at("lane").get<int>(), event.at("pid"));
    if (name == "optimizer_step") {
      EXPECT_FALSE(args.contains("module"));
    }
    if (name == "forward" && args.at("module") == "vision" && args.at("slot") == 0) {
      // Slot 0 holds an image of each of the first two samples, both for LLM slot 1.
      EXPECT_EQ(args.at("part"), Json::array({1}));
      EXPECT_EQ(args.at("samples"), Json::array({traced.ids[0], traced.ids[1]}));
      EXPECT_EQ(args.at("tokens"), 8);
      encoder_forwards += 1;
    }
    if (name == "forward" && args.at("module") == "llm" && args.at("slot") == 2) {
      EXPECT_EQ(args.at("stage"), 0);
      EXPECT_EQ(args.at("samples"), Json::array({traced.ids[2]}));
      llm_forwards += 1;
    }
  }
  EXPECT_EQ(encoder_forwards, 2);
  EXPECT_EQ(llm_forwards, 1);
  EXPECT_EQ(names.size(), categories.size());
}

TEST(WriteTrace, NamesProcessesAndThreads) {
  const Traced traced = make_traced("1f1b");
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  const Json trace = traced.trace();
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") {
      processes[event.at("pid")] = event.at("args").at("name");
    } else if (event.at("name") == "thread_name") {
      threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
  }
  EXPECT_EQ(processes,
            (std::map<int, std::string>{{0, "replica 0 lane 0: vision 0"},
                                        {1, "replica 0 lane 1: vision 1"},
                                        {2, "replica 0 lane 2: llm 0"}}));
  EXPECT_EQ(threads.size(), 9U);
  EXPECT_EQ((threads[{1, 0}]), "compute");
  EXPECT_EQ((threads[{1, 1}]), "send");
  EXPECT_EQ((threads[{1, 2}]), "receive");
}

TEST(WriteTrace, CountsTheBytesThatLanesHold) {
  const Traced traced = make_traced("1f1b");
  const auto expected = memory_timeline(traced.program, traced.hand_case.costs, traced.timeline);
  const Json trace = traced.trace();
  std::map<int, std::vector<MemoryStep>> actual;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "C") {
      EXPECT_EQ(event.at("name"), "activation bytes");
      actual[event.at("pid")].push_back(
          {std::chrono::nanoseconds{nanoseconds_of(event.at("ts"))}, event.at("args").at("bytes")});
    }
  }
  ASSERT_EQ(actual.size(), 3U);
  for (int lane = 0; lane < 3; ++lane) {
    EXPECT_EQ(actual[lane], expected[0][static_cast<std::size_t>(lane)]);
    EXPECT_GT(actual[lane].size(), 4U);
    EXPECT_EQ(actual[lane].back().bytes, 0);
  }
}

TEST(WriteTrace, LeavesOutTheBytesOfLanesMeasuredElsewhere) {
  Traced traced = make_traced("1f1b");
  std::erase_if(traced.timeline.events, [](const TimelineEvent& event) { return event.lane == 1; });
  std::set<int> counted;
  const Json trace = traced.trace();
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "C") {
      counted.insert(event.at("pid").get<int>());
    }
  }
  EXPECT_EQ(counted, (std::set<int>{0, 2}));
}

TEST(WriteTrace, NamesAllStagesOfALane) {
  Traced traced;
  traced.hand_case = oracle::make_plain_case({1, 1}, 1);
  traced.hand_case.plan.lanes = {{{0, 0}, {1, 0}}};
  traced.program = build_program(
      traced.hand_case.plan, traced.hand_case.assignment, traced.hand_case.costs, "1f1b");
  traced.timeline = simulate(traced.program, traced.hand_case.costs, {.events = true});
  traced.ids = {"\xff"};
  const Json trace = traced.trace();
  EXPECT_EQ(trace.at("traceEvents").at(0).at("args").at("name"),
            "replica 0 lane 0: vision 0, llm 0");
}

TEST(WriteTrace, WritesAFileOrNone) {
  const Traced traced = make_traced("gpipe");
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("entrain-trace-" + std::to_string(getpid()));
  const std::filesystem::path path = folder / "trace.json";
  write_trace(
      path, traced.program, traced.timeline, traced.hand_case.costs, traced.ids, "predicted");
  EXPECT_EQ(read_json_file(path), traced.trace());
  std::filesystem::remove(path);
  EXPECT_THROW(
      write_trace(path, traced.program, Timeline{}, traced.hand_case.costs, traced.ids, "empty"),
      InvalidInput);
  EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace entrain
