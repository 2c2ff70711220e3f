#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// Two replicas, one encoder "vision". Sample 0: two images; 1: one image; 2: text; 3: one image.
class ValidateAssignment : public testing::Test {
 protected:
  ValidateAssignment() {
    plan_.replicas = 2;
    plan_.num_slots = 3;
    plan_.modules = {{.name = "vision", .stages = {{0, 1}}}, {.name = "llm", .stages = {{0, 1}}}};
    plan_.lanes = {{{0, 0}}, {{1, 0}}};
    costs_.num_samples = 4;
    for (const int images : {2, 1, 0, 1}) {
      SampleWork work;
      work.segments = {std::vector<SegmentWork>(static_cast<std::size_t>(images), {16, 256, 4})};
      work.llm_tokens = 4 * images + 10;
      costs_.work.own().push_back(work);
    }
    costs_.modules.resize(2);
    costs_.modules[0].first_unit = {0, 2, 3, 3, 4};
    costs_.modules[1].first_unit = {0, 1, 2, 3, 4};
    ReplicaAssignment first;
    first.num_slots = 3;
    first.modules = {{{{.sample = 0, .segment = 0}}, {{.sample = 0, .segment = 1}}, {}},
                     {{}, {{.sample = 2}}, {{.sample = 0}}}};
    ReplicaAssignment second;
    second.num_slots = 1;
    second.modules = {{{{.sample = 3, .segment = 0}, {.sample = 1, .segment = 0}}},
                      {{{.sample = 1}, {.sample = 3}}}};
    assignment_.replicas = {first, second};
  }

  ModuleSlots& vision(int replica) {
    return assignment_.replicas[static_cast<std::size_t>(replica)].modules[0];
  }
  ModuleSlots& llm(int replica) {
    return assignment_.replicas[static_cast<std::size_t>(replica)].modules[1];
  }

  void expect_refused(const std::string& part) {
    try {
      validate_assignment(assignment_, plan_, costs_);
      FAIL() << "accepted; expected a refusal with: " << part;
    } catch (const InvalidInput& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  // Sample 0 (18 tokens, images at tokens 0 and 4) as chunks in slots 1 and 2.
  void cut_sample_0() {
    plan_.limits.chunks = true;
    llm(0)[1] = {{.sample = 2}, {.sample = 0, .token_begin = 0, .token_end = 6}};
    llm(0)[2] = {{.sample = 0, .token_begin = 6, .token_end = 18}};
  }

  Plan plan_;
  StepCosts costs_;
  StepAssignment assignment_;
};

TEST_F(ValidateAssignment, AcceptsDeferralAndSpreadSegments) {
  EXPECT_NO_THROW(validate_assignment(assignment_, plan_, costs_));
}

TEST_F(ValidateAssignment, RefusesAnotherNumberOfReplicas) {
  assignment_.replicas.pop_back();
  expect_refused("1 replicas under a plan of 2");
}

TEST_F(ValidateAssignment, RefusesNoSlots) {
  assignment_.replicas[1].num_slots = 0;
  expect_refused("replica 1 has num_slots 0");
}

TEST_F(ValidateAssignment, RefusesAMissingModule) {
  assignment_.replicas[0].modules.pop_back();
  expect_refused("replica 0 has 1 modules");
}

TEST_F(ValidateAssignment, RefusesListsThatAreNotNumSlots) {
  vision(0).pop_back();
  expect_refused("replica 0, vision: 2 slots, but num_slots is 3");
}

TEST_F(ValidateAssignment, RefusesCostsOfOtherModules) {
  costs_.modules.pop_back();
  expect_refused("the plan has 2 modules");
}

TEST_F(ValidateAssignment, RefusesASampleOutsideTheBatch) {
  llm(0)[0].push_back({.sample = 4});
  expect_refused("replica 0, llm, slot 0: sample 4 is not among the 4");
}

TEST_F(ValidateAssignment, RefusesASampleOutsideTheBatchInAnEncoder) {
  vision(0)[0].push_back({.sample = -1, .segment = 0});
  expect_refused("replica 0, vision, slot 0: sample -1");
}

TEST_F(ValidateAssignment, RefusesASampleWithoutLlmWork) {
  llm(0)[1].clear();
  expect_refused("sample 2 is in no slot of the LLM");
}

TEST_F(ValidateAssignment, RefusesASampleTwiceInTheLlm) {
  llm(1)[0].push_back({.sample = 2});
  expect_refused("replica 1, llm, slot 0: sample 2 is in the LLM twice");
}

TEST_F(ValidateAssignment, RefusesASegmentInTheLlm) {
  llm(0)[1][0].segment = 0;
  expect_refused("sample 2 comes with segment 0");
}

TEST_F(ValidateAssignment, RefusesAMissingSegment) {
  vision(0)[1].clear();
  expect_refused("vision: segment 1 of sample 0 is in no slot");
}

TEST_F(ValidateAssignment, RefusesASegmentTwice) {
  vision(0)[1].push_back({.sample = 0, .segment = 0});
  expect_refused("replica 0, vision, slot 1: segment 0 of sample 0 is here twice");
}

TEST_F(ValidateAssignment, RefusesASegmentThatTheSampleDoesNotHave) {
  vision(1)[0].push_back({.sample = 1, .segment = 1});
  expect_refused("sample 1 has segments 0 to 0, given 1");
}

TEST_F(ValidateAssignment, RefusesAWholeSampleInAnEncoder) {
  vision(1)[0][1].segment = -1;
  expect_refused("sample 1 has segments 0 to 0, given -1");
}

TEST_F(ValidateAssignment, RefusesATokenRangeInAnEncoder) {
  vision(1)[0][1].token_end = 4;
  expect_refused("with a token range");
}

TEST_F(ValidateAssignment, RefusesATextOnlySampleInAnEncoder) {
  vision(0)[0].push_back({.sample = 2, .segment = 0});
  expect_refused("replica 0, vision, slot 0: sample 2 has no work in this encoder");
}

TEST_F(ValidateAssignment, RefusesASegmentInAnotherReplica) {
  vision(1)[0].pop_back();
  vision(0)[0].push_back({.sample = 1, .segment = 0});
  expect_refused("segment 0 of sample 1, whose LLM work is in replica 1");
}

TEST_F(ValidateAssignment, RefusesAnLlmSlotBeforeTheEncoders) {
  std::swap(llm(0)[0], llm(0)[2]);
  expect_refused("replica 0, vision, slot 1: segment 1 of sample 0 comes after its LLM slot 0");
}

TEST_F(ValidateAssignment, RefusesADeferralBeyondTheLimit) {
  plan_.limits.max_deferral = 2;
  EXPECT_NO_THROW(validate_assignment(assignment_, plan_, costs_));
  plan_.limits.max_deferral = 1;
  expect_refused(
      "replica 0, vision, slot 0: sample 0 waits 2 slots for its LLM slot 2, allowed: 1");
}

TEST_F(ValidateAssignment, RefusesChunksWithoutLeave) {
  cut_sample_0();
  plan_.limits.chunks = false;
  expect_refused("sample 0 is cut into chunks");
}

TEST_F(ValidateAssignment, AcceptsChunksInRisingSlots) {
  cut_sample_0();
  EXPECT_NO_THROW(validate_assignment(assignment_, plan_, costs_));
}

TEST_F(ValidateAssignment, RefusesAGapBetweenChunks) {
  cut_sample_0();
  llm(0)[2][0].token_begin = 7;
  expect_refused("expected one from 6 on");
}

TEST_F(ValidateAssignment, RefusesAnEmptyChunk) {
  cut_sample_0();
  llm(0)[2][0] = {.sample = 0, .token_begin = 6, .token_end = 6};
  expect_refused("tokens [6, 6)");
}

TEST_F(ValidateAssignment, RefusesChunksThatEndEarly) {
  cut_sample_0();
  llm(0)[2][0].token_end = 17;
  expect_refused("end at token 17 of 18");
}

TEST_F(ValidateAssignment, RefusesChunksInFallingSlots) {
  cut_sample_0();
  std::swap(llm(0)[1], llm(0)[2]);
  expect_refused("not in a later slot");
}

TEST_F(ValidateAssignment, RefusesTwoChunksOfASampleInOneSlot) {
  cut_sample_0();
  llm(0)[1].push_back(llm(0)[2][0]);
  llm(0)[2].clear();
  expect_refused("not in a later slot");
}

TEST_F(ValidateAssignment, RefusesAChunkBesideTheWholeSample) {
  cut_sample_0();
  llm(0)[2][0] = {.sample = 0};
  expect_refused("sample 0 is in the LLM twice");
}

TEST_F(ValidateAssignment, RefusesASegmentAfterTheChunkThatHoldsIt) {
  cut_sample_0();
  std::swap(vision(0)[1], vision(0)[2]);
  expect_refused("replica 0, vision, slot 2: segment 1 of sample 0 comes after its LLM slot 1");
}

}  // namespace
}  // namespace entrain
