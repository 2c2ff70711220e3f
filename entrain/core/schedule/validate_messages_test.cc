// check_messages() on channels and messages that validate_test.cc does not break.
#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/schedule/validate.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::HandCase;
using oracle::make_plain_case;

class CheckMessages : public testing::Test {
 protected:
  CheckMessages() : program_(build_program(case_.plan, case_.assignment, case_.costs, "gpipe")) {}

  ReplicaProgram& replica() { return program_.replicas[0]; }

  // The first send of slot 0's activation on a lane.
  Operation& send_of(std::size_t lane) {
    auto& operations = replica().lanes[lane];
    return *std::find_if(operations.begin(), operations.end(), [](const Operation& operation) {
      return operation.kind == OperationKind::kSend && operation.unit.slot == 0;
    });
  }

  validation::PassagesOfChannels check() const {
    const validation::Subject subject{program_, case_.plan, case_.assignment, case_.costs};
    return validation::check_messages(subject, 0, validation::check_operations(subject, 0));
  }

  void expect_refused(const std::string& part_of_message) const {
    const std::string message = oracle::error_of<InvalidInput>([&] { check(); });
    EXPECT_NE(message.find(part_of_message), std::string::npos) << message;
  }

  HandCase case_ = make_plain_case({1, 2}, 2);  // lanes: vision, llm 0, llm 1
  Program program_;
};

TEST_F(CheckMessages, PairsSendsWithReceives) {
  const validation::PassagesOfChannels passages = check();
  ASSERT_EQ(passages.size(), replica().channels.size());
  for (std::size_t channel = 0; channel < passages.size(); ++channel) {
    ASSERT_EQ(passages[channel].size(), 2U);
    for (const validation::Passage& passage : passages[channel]) {
      EXPECT_EQ(passage.send.lane, replica().channels[channel].source_lane);
      EXPECT_EQ(passage.receive.lane, replica().channels[channel].target_lane);
    }
  }
}

TEST_F(CheckMessages, RefusesUnknownChannels) {
  for (const int channel : {-1, 4}) {
    send_of(0).channel = channel;
    expect_refused("unknown channel");
  }
}

TEST_F(CheckMessages, RefusesAnotherStagesMessageOnAChannel) {
  send_of(0).unit = {1, 0, 0, 0};  // on the channel of vision's outputs
  expect_refused("the channel carries another stage's messages");
}

TEST_F(CheckMessages, RefusesAMissingChannelOfOutputs) {
  const auto& channels = replica().channels;
  const auto outputs = std::find_if(channels.begin(), channels.end(), [](const Channel& channel) {
    return !channel.gradient && channel.producer == StageRef{1, 0};
  });
  ASSERT_NE(outputs, channels.end());
  const int lost = static_cast<int>(outputs - channels.begin());
  replica().channels.erase(replica().channels.begin() + lost);
  for (auto& operations : replica().lanes) {
    std::erase_if(operations,
                  [&](const Operation& operation) { return operation.channel == lost; });
    for (Operation& operation : operations) {
      operation.channel -= operation.channel > lost ? 1 : 0;
    }
  }
  expect_refused("replica 0: no channel for the outputs of llm stage 0");
}

TEST_F(CheckMessages, NeedsNoChannelForGradientsThatNobodyWants) {
  set_trainable(case_, 0, false);
  program_ = build_program(case_.plan, case_.assignment, case_.costs, "gpipe");
  EXPECT_NO_THROW(check());
  auto& channels = replica().channels;
  const auto gradients = std::find_if(channels.begin(), channels.end(), [](const Channel& channel) {
    return channel.gradient && channel.producer == StageRef{0, 0};
  });
  if (gradients != channels.end()) {
    EXPECT_TRUE(check()[static_cast<std::size_t>(gradients - channels.begin())].empty());
  }
}

}  // namespace
}  // namespace entrain
