#include "entrain/core/assigner/assigner.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

AssignRequest request_of(const oracle::HandCase& hand) {
  AssignRequest request;
  request.plan = &hand.plan;
  request.costs = &hand.costs;
  return request;
}

TEST(Assign, NamesThePolicies) {
  EXPECT_EQ(policy_names(),
            (std::vector<std::string>{"sequential",
                                      "random",
                                      "packed",
                                      "encoder-lpt",
                                      "llm-lpt",
                                      "lpt-2d",
                                      "disttrain",
                                      "dflop",
                                      "orchmllm",
                                      "entrain-paper",
                                      "entrain"}));
}

TEST(Assign, RefusesAnUnknownPolicyWithASuggestion) {
  const oracle::HandCase hand = oracle::make_plain_case({1, 1}, 2);
  try {
    assign("entrian", request_of(hand));
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'entrain'"), std::string::npos)
        << error.what();
  }
}

TEST(Assign, RefusesFewerSamplesThanReplicas) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 2);
  hand.plan.replicas = 3;
  for (const std::string& policy : policy_names()) {
    EXPECT_THROW(assign(policy, request_of(hand)), InvalidInput) << policy;
  }
}

TEST(Assign, RefusesCostsOfAnotherPlan) {
  oracle::HandCase hand = oracle::make_plain_case({1, 1}, 2);
  hand.plan.modules.pop_back();
  EXPECT_THROW(assign("sequential", request_of(hand)), InvalidInput);
}

TEST(Assign, SaysByWhichPolicyForWhichStep) {
  const oracle::HandCase hand = oracle::make_plain_case({1, 1}, 4);
  AssignRequest request = request_of(hand);
  request.step = 5;
  request.seed = 9;
  const StepAssignment result = assign("sequential", request);
  EXPECT_EQ(result.policy, "sequential");
  EXPECT_EQ(result.step, 5);
  EXPECT_EQ(result.seed, 9U);
  EXPECT_GT(result.stats.assign_ms, 0.0);
}

}  // namespace
}  // namespace entrain
