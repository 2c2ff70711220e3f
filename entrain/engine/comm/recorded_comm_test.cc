#include "entrain/engine/comm/recorded_comm.h"

#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/engine/comm/thread_comm.h"

#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

class RecordedCommTest : public testing::Test {
 protected:
  ThreadCommGroup group_{2};
  CallLog first_log_{0, 2, ""};
  CallLog second_log_{1, 2, ""};
  RecordedComm first_{group_.comm(0), first_log_};
  RecordedComm second_{group_.comm(1), second_log_};
};

TEST_F(RecordedCommTest, PassesMessagesOnAndNumbersThem) {
  const ChannelKey channel{0, 1, 3};
  for (int i = 0; i < 2; ++i) {
    first_.send(channel, 70 + static_cast<std::uint64_t>(i), at::full({2}, i));
  }
  auto early = second_.post_receive(channel, 70, {2}, at::kLong);
  auto late = second_.post_receive(channel, 71, {2}, at::kLong);
  EXPECT_EQ(late->wait()[0].item<std::int64_t>(), 1);
  EXPECT_EQ(early->wait()[0].item<std::int64_t>(), 0);
  const std::vector<LoggedCall> sent = first_log_.dump().calls;
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[1].what, "send");
  EXPECT_EQ(sent[1].peer, 1);
  EXPECT_EQ(sent[1].number, 1);
  const std::vector<LoggedCall> received = second_log_.dump().calls;
  ASSERT_EQ(received.size(), 2U) << "in the order of waiting";
  EXPECT_EQ(received[0].what, "receive");
  EXPECT_EQ(received[0].peer, 0);
  EXPECT_EQ(received[0].channel, 3);
  EXPECT_EQ(received[0].tag, 71U);
  EXPECT_EQ(received[0].number, 1) << "the same number as its send";
  EXPECT_TRUE(received[1].finished());
}

TEST_F(RecordedCommTest, PassesCollectivesOnAndNumbersThemByGroup) {
  const std::vector<int> both = {0, 1};
  at::Tensor sum = at::ones({1});
  at::Tensor other_sum = at::ones({1});
  const auto body = [&](Comm& comm, at::Tensor& tensor) {
    comm.barrier({comm.rank()});
    comm.barrier(both);
    comm.all_reduce_sum(tensor, both);
    EXPECT_EQ(comm.all_gather(at::full({1}, comm.rank()), both).sum().item<std::int64_t>(), 1);
    EXPECT_EQ(comm.reduce_scatter_sum(at::ones({2}), both)[0].item<float>(), 2);
    at::Tensor told = at::full({1}, comm.rank() + 5);
    comm.broadcast(told, 1, both);
    EXPECT_EQ(told[0].item<std::int64_t>(), 6);
  };
  std::thread other([&] { body(second_, other_sum); });
  body(first_, sum);
  other.join();
  EXPECT_EQ(sum[0].item<float>(), 2);
  const std::vector<LoggedCall> calls = first_log_.dump().calls;
  ASSERT_EQ(calls.size(), 6U);
  EXPECT_EQ(calls[0].group, std::vector<int>{0});
  EXPECT_EQ(calls[0].number, 0);
  EXPECT_EQ(calls[1].group, both);
  EXPECT_EQ(calls[1].number, 0);
  EXPECT_EQ(calls[5].what, "broadcast");
  EXPECT_EQ(calls[5].number, 4);
}

TEST_F(RecordedCommTest, LeavesOpenWhatRanIntoTheDeadline) {
  ThreadCommGroup hasty(2, std::chrono::milliseconds(1));
  RecordedComm waiting(hasty.comm(1), second_log_);
  auto receive = waiting.post_receive({0, 1, 0}, 1, {1}, at::kFloat);
  const std::string message = error_of<SystemFailure>([&] { receive->wait(); });
  EXPECT_FALSE(second_log_.dump().calls.back().finished());
  note_failure(second_log_, SystemFailure(message), message);
  EXPECT_EQ(second_log_.dump().state, RankState::kLost);
}

TEST_F(RecordedCommTest, DistinguishesHowRanksEnd) {
  note_failure(first_log_, CommAborted("echo"), "echo");
  EXPECT_EQ(first_log_.dump().state, RankState::kStopped);
  const ChannelKey channel{0, 1, 0};
  first_.send(channel, 1, at::ones({2}));
  auto receive = second_.post_receive(channel, 1, {1}, at::kFloat);
  const std::string message = error_of<InternalError>([&] { receive->wait(); });
  note_failure(second_log_, InternalError(message), message);
  EXPECT_EQ(second_log_.dump().state, RankState::kMismatch);
  CallLog posting(0, 2, "");
  RecordedComm wrong(group_.comm(0), posting);
  const std::string posted =
      error_of<InternalError>([&] { wrong.post_receive(channel, 2, {1}, at::kFloat); });
  EXPECT_FALSE(posting.dump().calls.back().finished()) << "posting is communication too";
  note_failure(posting, InternalError(posted), posted);
  EXPECT_EQ(posting.dump().state, RankState::kMismatch);
  CallLog computing(0, 1, "");
  note_failure(computing, SystemFailure("disk"), "disk");
  EXPECT_EQ(computing.dump().state, RankState::kFailed);
}

}  // namespace
}  // namespace entrain::engine
