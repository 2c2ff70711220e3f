#include "entrain/core/base/call_log.h"

#include <stdexcept>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace entrain {
namespace {

LoggedCall named(const std::string& what, std::int64_t step = -1) {
  LoggedCall call;
  call.what = what;
  call.step = step;
  return call;
}

TEST(CallLog, KeepsTheLastCallsInOrder) {
  CallLog log(1, 4, "replica 0 lane 1", 3);
  for (int i = 0; i < 5; ++i) {
    log.finish(log.begin(named(std::to_string(i), i)));
  }
  const std::uint64_t open = log.begin(named("open"));
  const RankDump dump = log.dump();
  ASSERT_EQ(dump.calls.size(), 3U);
  EXPECT_EQ(dump.calls[0].what, "3");
  EXPECT_TRUE(dump.calls[1].finished());
  EXPECT_FALSE(dump.calls[2].finished());
  EXPECT_EQ(dump.calls[2].step, 4) << "the step of the call before";
  EXPECT_LE(dump.calls[1].finish_s, dump.calls[2].start_s);
  log.finish(open);
  EXPECT_TRUE(log.dump().calls[2].finished());
}

TEST(CallLog, NamesTheLastFinishedOperations) {
  CallLog log(0, 1, "");
  EXPECT_EQ(log.last_operations(3), "");
  for (const char* what : {"a", "b", "c", "d"}) {
    const LoggedScope operation(&log, named(what, 0));
    LoggedCall message = named("send");
    message.communication = true;
    const LoggedScope sent(&log, message);
  }
  log.begin(named("open"));
  EXPECT_EQ(log.last_operations(3), "b; c; d");
  EXPECT_EQ(log.last_operations(9), "a; b; c; d");
}

TEST(CallLog, FinishesNoCallThatHasLeftTheRing) {
  CallLog log(0, 1, "", 1);
  const std::uint64_t first = log.begin(named("first"));
  log.begin(named("second"));
  log.finish(first);
  EXPECT_FALSE(log.dump().calls[0].finished());
}

TEST(CallLog, LeavesOpenWhatAnExceptionEnds) {
  CallLog log(0, 1, "");
  try {
    const LoggedScope operation(&log, named("operation", 0));
    { const LoggedScope done(&log, named("done")); }
    LoggedCall receive = named("receive");
    receive.communication = true;
    const LoggedScope waiting(&log, receive);
    throw std::runtime_error("stopped");
  } catch (const std::runtime_error&) {
  }
  const RankDump dump = log.dump();
  EXPECT_FALSE(dump.calls[0].finished());
  EXPECT_TRUE(dump.calls[1].finished());
  EXPECT_FALSE(dump.calls[2].finished());
  EXPECT_TRUE(log.in_communication());
}

TEST(CallLog, KeepsItsFirstFailure) {
  CallLog log(0, 1, "");
  log.set_state(RankState::kLost, "a deadline");
  log.set_state(RankState::kStopped, "an echo");
  EXPECT_EQ(log.dump().state, RankState::kLost);
  EXPECT_EQ(log.dump().failure, "a deadline");
  EXPECT_GE(log.dump().failed_s, 0);
}

TEST(RankDump, ReadsBackUnchanged) {
  CallLog log(2, 4, "replica 1 lane 0");
  LoggedCall message = named("receive", 7);
  message.communication = true;
  message.peer = 3;
  message.channel = 5;
  message.tag = 1ULL << 63U;
  message.number = 9;
  log.begin(message);
  LoggedCall collective = named("barrier");
  collective.communication = true;
  collective.group = {0, 2};
  collective.number = 1;
  log.finish(log.begin(collective));
  log.set_state(RankState::kMismatch, "why");
  const Json written = to_json(log.dump());
  const RankDump read = rank_dump_from_json(parse_json(written.dump(), "d.json"), "d.json");
  EXPECT_EQ(to_json(read).dump(), written.dump());
  EXPECT_EQ(read.calls[0].tag, 1ULL << 63U);
}

TEST(RankDump, RefusesWhatIsNone) {
  Json document = to_json(CallLog(0, 2, "").dump());
  document["rank"] = 2;
  EXPECT_THROW(rank_dump_from_json(document, "d.json"), InvalidInput);
  document["rank"] = 1;
  document["state"] = "well";
  EXPECT_THROW(rank_dump_from_json(document, "d.json"), InvalidInput);
}

}  // namespace
}  // namespace entrain
