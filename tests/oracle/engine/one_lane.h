// All stages of the tiny step on one lane of one rank, so that a lane needs nobody else.
#pragma once

#include <functional>
#include <memory>

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/pipeline/lane_run.h"
#include "entrain/engine/pipeline/real_compute.h"

#include "tests/oracle/engine/tiny_step.h"

namespace entrain::engine::tiny {

inline Step one_lane_step() {
  return make_step({{1, 2}, 1, true, "1f1b", FrozenPattern::kNone});
}

struct OneLane {
  // Requires  the step outlives it.
  explicit OneLane(const Step& given, const ExecutorOptions& given_options = seeded_options())
      : step(given),
        options(given_options),
        stages(step.model, step.plan, 0, options.stage),
        weights(stages.parameters(), options.stage.dtype),
        gradients(stages.parameters()),
        places(step.plan),
        ranks{&group.comm(0), {0}, 0},
        data(step.costs.work),
        inputs(inputs_of(step, &data)) {}

  const Step& step;
  ExecutorOptions options;
  ThreadCommGroup group{1, seconds(5)};
  LaneStages stages;
  LaneWeights weights;
  LaneGradients gradients;
  RankPlaces places;
  TensorGroup ranks;
  SyntheticData data;
  StepInputs inputs;
  LaneContext context{step.model, step.plan, options, group.comm(0), places, {}};
  std::unique_ptr<LaneCompute> compute =
      std::make_unique<RealCompute>(context, stages, weights, gradients, ranks);

  StepOutcome run(const std::function<void()>& optimizer_step = {},
                  RunMode mode = RunMode::kTrain) {
    return LaneRun(context, *compute, inputs, mode).run(optimizer_step);
  }
};

}  // namespace entrain::engine::tiny
