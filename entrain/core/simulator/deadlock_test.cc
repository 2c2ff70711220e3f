#include "entrain/core/simulator/deadlock.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/oracle/two_lanes.h"

namespace entrain {
namespace {

using oracle::failure_of;
using oracle::TwoLanes;

TEST(Deadlock, NamesTheOperationsThatWaitForEachOther) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 <B0 B0 F1 >F1 <B1 B1", "<F0 <F1 F1 B1 >B1 F0 B0 >B0");
  const std::string message = failure_of(lanes);
  EXPECT_NE(message.find("wait for each other"), std::string::npos) << message;
  EXPECT_NE(message.find("replica 0 lane 0 operation 3 (backward vision 0 slot 0 group 0)"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("replica 0 lane 1 operation 2 (forward llm 0 slot 1 group 0)"),
            std::string::npos)
      << message;
}

TEST(Deadlock, NamesAnOperationWhoseInputNobodyMakes) {
  TwoLanes lanes(1);
  lanes.add_replica("F0 <B0 B0", "<F0 F0 B0 >B0");
  std::string message = failure_of(lanes);
  EXPECT_NE(message.find("replica 0 lane 0 operation 2"), std::string::npos) << message;

  TwoLanes missing(1);
  missing.add_replica("F0", "<F0 F0 B0 >B0");
  message = failure_of(missing);
  EXPECT_NE(message.find("replica 0 lane 1 operation 1 (forward llm 0 slot 0 group 0) waits for "
                         "what no operation of replica 0 lane 0 makes"),
            std::string::npos)
      << message;

  TwoLanes reversed(1);
  reversed.add_replica("F0 >F0 <B0 B0", "<F0 B0 F0 >B0");
  message = failure_of(reversed);
  EXPECT_NE(message.find("replica 0 lane 1 operation 1 (backward llm 0 slot 0 group 0) waits for "
                         "an operation that stands behind it"),
            std::string::npos)
      << message;
}

TEST(Deadlock, NamesLanesThatABarrierMisses) {
  TwoLanes lanes(1);
  lanes.add_replica("F0 >F0 <B0 B0 clip", "<F0 F0 B0 >B0");
  const std::string message = failure_of(lanes);
  EXPECT_NE(message.find("replica 0 lane 0 operation 4 (clip_norm) waits for what no operation of "
                         "replica 0 lane 1 makes"),
            std::string::npos)
      << message;
}

// Slot 1 holds the second half of slot 0's sample.
TEST(Deadlock, NamesAChunkThatStandsBeforeTheOneItNeeds) {
  TwoLanes lanes(2);
  lanes.add_replica("F0 >F0 F1 >F1 <B1 B1 <B0 B0", "<F0 <F1 F1 F0 B1 >B1 B0 >B0");
  EXPECT_EQ(failure_of(lanes), "finished");
  auto& groups = lanes.program.replicas[0].groups[1];
  groups[0][0].later = {{1, 0}};
  groups[1][0].earlier = {{0, 0}};
  const std::string message = failure_of(lanes);
  EXPECT_NE(message.find("operation 2 (forward llm 0 slot 1 group 0) waits for an operation that "
                         "stands behind it"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace entrain
