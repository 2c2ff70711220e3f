#include "entrain/core/report/doctor.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

LoggedCall operation(const std::string& what, bool finished = false) {
  LoggedCall call;
  call.step = 4;
  call.what = what;
  call.finish_s = finished ? 1 : -1;
  return call;
}
LoggedCall receive_from(int peer) {
  LoggedCall call = operation("receive");
  call.communication = true;
  call.peer = peer;
  call.channel = 2;
  call.number = 0;
  return call;
}
LoggedCall barrier(std::vector<int> group, std::int64_t number, bool finished = false) {
  LoggedCall call = operation("barrier", finished);
  call.communication = true;
  call.group = std::move(group);
  call.number = number;
  return call;
}

RankDump dump(int rank, RankState state, std::vector<LoggedCall> calls, double failed_s = -1) {
  RankDump result;
  result.rank = rank;
  result.num_ranks = 3;
  result.state = state;
  result.failure = failed_s < 0 ? "" : "why " + std::to_string(rank);
  result.failed_s = failed_s;
  result.taken_s = 9;
  result.calls = std::move(calls);
  return result;
}

const auto kRunning = RankState::kRunning;

TEST(Doctor, NamesTheFirstOfThoseThatFailedByThemselves) {
  std::vector<RankDump> dumps = {dump(0, RankState::kStopped, {operation("a"), receive_from(1)}, 3),
                                 dump(1, RankState::kFailed, {operation("b")}, 2),
                                 dump(2, RankState::kFailed, {operation("c")}, 1)};
  EXPECT_EQ(diagnose(dumps).culprits, std::vector<int>{2});
  dumps[2].origin_unix_s = 10;  // that host's log began later
  const Diagnosis diagnosis = diagnose(dumps);
  EXPECT_EQ(diagnosis.verdict, Verdict::kFailed);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{1});
  EXPECT_EQ(diagnosis.summary, "rank 1 failed first, in step 4, b: why 1");
}

TEST(Doctor, FollowsWaitingRanksToTheOneThatDoesNotWait) {
  const Diagnosis diagnosis =
      diagnose({dump(0, RankState::kLost, {operation("a"), receive_from(1)}, 5),
                dump(1, kRunning, {operation("b"), receive_from(2)}),
                dump(2, kRunning, {operation("done", true), operation("c")})});
  EXPECT_EQ(diagnosis.verdict, Verdict::kStuck);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{2});
  EXPECT_EQ(diagnosis.ranks[0].waits_for, std::vector<int>{1});
  EXPECT_NE(diagnosis.summary.find("made no progress for 9.0 s in step 4, c"), std::string::npos)
      << diagnosis.summary;
}

// Rank 1 left no dump. What the others say of their wait tells one that hangs from one that ended.
TEST(Doctor, DistinguishesAHangingRankFromAKilledOne) {
  std::vector<RankDump> dumps = {
      dump(0, RankState::kLost, {operation("a"), receive_from(1)}, 5),
      dump(2, RankState::kStopped, {operation("b"), receive_from(0)}, 5)};
  dumps[0].process = 100;
  dumps[1].process = 102;
  dumps[0].failure = "rank 0: no message number 4 within 8 s; rank 1 is not known to wait";
  Diagnosis diagnosis = diagnose(dumps);
  EXPECT_EQ(diagnosis.verdict, Verdict::kStuck);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{1});
  EXPECT_NE(diagnosis.summary.find("SIGSTOP"), std::string::npos) << diagnosis.summary;
  dumps[1].failure = "stopped because another rank failed: rank 2: lost rank 1 at message number 4";
  EXPECT_EQ(diagnose(dumps).verdict, Verdict::kDied);
  dumps[1].failure = "stopped because another rank failed: rank 2: lost rank 12 at message 4";
  EXPECT_EQ(diagnose(dumps).verdict, Verdict::kStuck);
  dumps[0].process = dumps[1].process;  // threads: one that hangs would have been dumped
  EXPECT_EQ(diagnose(dumps).verdict, Verdict::kDied);
}

TEST(Doctor, ReportsWhoHasNotComeToACollective) {
  // Rank 1 is in it, rank 2 is at the one before.
  const Diagnosis diagnosis =
      diagnose({dump(0, RankState::kLost, {operation("a"), barrier({0, 1, 2}, 7)}, 5),
                dump(1, kRunning, {operation("b"), barrier({0, 1, 2}, 7)}),
                dump(2, kRunning, {operation("b"), barrier({0, 1, 2}, 6, true)})});
  EXPECT_EQ(diagnosis.ranks[0].waits_for, std::vector<int>{2});
  EXPECT_EQ(diagnosis.verdict, Verdict::kStuck);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{2});
}

TEST(Doctor, TakesARankWithoutDumpForDead) {
  const Diagnosis diagnosis =
      diagnose({dump(0, RankState::kLost, {operation("a"), receive_from(2)}, 5),
                dump(1, kRunning, {operation("b"), receive_from(0)})});
  EXPECT_EQ(diagnosis.verdict, Verdict::kDied);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{2});
}

TEST(Doctor, BlamesTheSenderOfAWrongMessage) {
  const Diagnosis diagnosis =
      diagnose({dump(0, RankState::kMismatch, {operation("a"), receive_from(1)}, 5),
                dump(1, kRunning, {operation("b"), receive_from(0)}),
                dump(2, kRunning, {operation("b"), receive_from(0)})});
  EXPECT_EQ(diagnosis.verdict, Verdict::kMismatch);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{1});
}

TEST(Doctor, FindsRanksThatWaitForEachOther) {
  const Diagnosis diagnosis =
      diagnose({dump(0, RankState::kLost, {operation("a"), receive_from(1)}, 5),
                dump(1, kRunning, {operation("b"), receive_from(2)}),
                dump(2, kRunning, {operation("c"), receive_from(1)})});
  EXPECT_EQ(diagnosis.verdict, Verdict::kCycle);
  EXPECT_EQ(diagnosis.culprits, (std::vector<int>{1, 2}));
}

TEST(Doctor, DistinguishesAHangThatEndedTooLateFromACycle) {
  LoggedCall late = receive_from(1);
  late.start_s = 15;
  std::vector<RankDump> dumps = {dump(0, RankState::kLost, {operation("a"), receive_from(1)}, 5),
                                 dump(1, RankState::kLost, {operation("b"), receive_from(2)}, 5),
                                 dump(2, RankState::kLost, {operation("c"), late}, 16)};
  const Diagnosis diagnosis = diagnose(dumps);
  EXPECT_EQ(diagnosis.verdict, Verdict::kStuck);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{2});
  EXPECT_NE(diagnosis.summary.find("only after a rank that waited for it had given up"),
            std::string::npos)
      << diagnosis.summary;
  dumps[2].origin_unix_s = -11;  // by its host's clock it waited before rank 1 gave up
  EXPECT_EQ(diagnose(dumps).verdict, Verdict::kCycle);
}

TEST(Doctor, NamesARankThatHadEndedTooEarly) {
  const Diagnosis diagnosis =
      diagnose({dump(0, RankState::kLost, {operation("a"), receive_from(1)}, 5),
                dump(1, RankState::kFinished, {operation("b", true)}),
                dump(2, kRunning, {operation("c"), receive_from(0)})});
  EXPECT_EQ(diagnosis.verdict, Verdict::kLeft);
  EXPECT_EQ(diagnosis.culprits, std::vector<int>{1});
}

TEST(Doctor, NamesNoCulpritInARunningRun) {
  const Diagnosis diagnosis = diagnose({dump(0, kRunning, {operation("a"), receive_from(1)}),
                                        dump(1, kRunning, {operation("b")}),
                                        dump(2, kRunning, {operation("c"), receive_from(1)})});
  EXPECT_EQ(diagnosis.verdict, Verdict::kNone);
  EXPECT_EQ(diagnosis.summary,
            "no rank has failed; others wait for rank 1, which has been 9.0 s in step 4, b");
}

TEST(Doctor, ReportsWhenThereIsNoCulprit) {
  const Diagnosis diagnosis = diagnose({dump(0, kRunning, {operation("a")}),
                                        dump(1, kRunning, {operation("b")}),
                                        dump(2, kRunning, {})});
  EXPECT_EQ(diagnosis.verdict, Verdict::kNone);
  EXPECT_TRUE(diagnosis.culprits.empty());
  EXPECT_NE(to_text(diagnosis).find("no rank failed"), std::string::npos);
}

}  // namespace
}  // namespace entrain
