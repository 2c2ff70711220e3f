#include "entrain/core/simulator/inputs.h"

#include <gtest/gtest.h>

#include "tests/oracle/two_lanes.h"

namespace entrain::simulation {
namespace {

// LLM slot 1 takes the outputs of encoder slots 0 and 1; the group of encoder slot 0 serves both.
struct InputsFixture {
  InputsFixture()
      : lanes(2),
        graph(step_graph(program(), lanes.costs)),
        state(graph.stages, graph.replicas[0]) {}

  oracle::TwoLanes lanes;
  StepGraph graph;
  ReplayReplica state;
  Inputs inputs{graph.stages};
  ReplayLane vision{.replica = 0, .lane = 0, .clock = &state.clock.lane(0)};
  ReplayLane llm{.replica = 0, .lane = 1, .clock = &state.clock.lane(1)};

 private:
  const Program& program() {
    lanes.add_replica("", "");
    lanes.program.replicas[0].groups[0][0][0].llm_slots = {0, 1};
    return lanes.program;
  }
};

TEST(Inputs, AreLookedAtOnceEach) {
  InputsFixture fixture;
  const UnitRef ref{3, 1, 3};  // LLM slot 1
  EXPECT_FALSE(fixture.inputs.forward_ready(fixture.llm, fixture.state, ref));
  EXPECT_EQ(fixture.llm.waiting_for, &fixture.state.times[0].output_arrival);
  fixture.state.times[0].output_arrival = 30;
  EXPECT_FALSE(fixture.inputs.forward_ready(fixture.llm, fixture.state, ref));
  EXPECT_EQ(fixture.llm.waiting_for, &fixture.state.times[1].output_arrival);
  EXPECT_EQ(fixture.llm.inputs_seen, 1);
  fixture.state.times[1].output_arrival = 20;
  EXPECT_TRUE(fixture.inputs.forward_ready(fixture.llm, fixture.state, ref));
  EXPECT_EQ(fixture.llm.inputs_ready, 30);
}

TEST(Inputs, OfABackwardAreItsForwardAndTheGradient) {
  InputsFixture fixture;
  EXPECT_FALSE(fixture.inputs.gradient_ready(fixture.vision, fixture.state, {0, 0, 0}));
  EXPECT_EQ(fixture.vision.waiting_for, nullptr);
  fixture.state.times[0].forward_finish = 10;
  EXPECT_FALSE(fixture.inputs.gradient_ready(fixture.vision, fixture.state, {0, 0, 0}));
  EXPECT_EQ(fixture.vision.waiting_for, &fixture.state.times[0].gradient_arrival);
  fixture.state.times[0].gradient_arrival = 70;
  EXPECT_TRUE(fixture.inputs.gradient_ready(fixture.vision, fixture.state, {0, 0, 0}));
  EXPECT_EQ(fixture.vision.inputs_ready, 70);
}

TEST(Inputs, OfAGradientsMessageAreAllItsLlmSlots) {
  InputsFixture fixture;
  const auto produced = [&] { return fixture.inputs.produced(fixture.state, true, {0, 0, 0}); };
  fixture.state.times[2].gradient_finish = 50;
  EXPECT_FALSE(produced());
  fixture.state.times[3].gradient_finish = 60;
  EXPECT_TRUE(produced());
}

}  // namespace
}  // namespace entrain::simulation
