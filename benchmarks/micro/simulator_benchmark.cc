// Replay of one step's program: simulate(), with and without events, lane_bound().
//
// A checked answer per program: the slow simulator of the tests has to agree before anything is
// timed.
#include "entrain/core/simulator/simulator.h"

#include <benchmark/benchmark.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/hand_cases.h"
#include "tests/oracle/slow_simulator.h"

namespace entrain {
namespace {

constexpr int kSlots = 32;
constexpr int kSamples = 128;  // of one replica

struct Step {
  StepCosts costs;
  Program program;
  std::int64_t operations = 0;
};

// One replica of 4 + 4 lanes, 32 slots, 128 samples of one to three images; a third of the samples
// is deferred by up to two slots, so that encoder slots have several parts.
Step make_step() {
  Rng rng(11);
  std::vector<oracle::HandSample> samples;
  for (int i = 0; i < kSamples; ++i) {
    const int slot = i * kSlots / kSamples;
    const int deferral = static_cast<int>(rng.below(3) == 0 ? rng.below(3) : 0);
    std::vector<int> images(1 + rng.below(3), slot);
    samples.push_back({std::min(slot + deferral, kSlots - 1), {images}});
  }
  oracle::HandCase hand_case = oracle::make_hand_case({4, 4}, kSlots, samples);
  for (ModuleCosts& module : hand_case.costs.modules) {
    for (StageCosts& stage : module.stages) {
      for (UnitCost& unit : stage.units) {
        unit.time.forward = std::chrono::nanoseconds{static_cast<std::int64_t>(rng.below(1000))};
      }
    }
  }
  Step step;
  step.program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, "1f1b");
  step.costs = std::move(hand_case.costs);
  for (const std::vector<Operation>& lane : step.program.replicas[0].lanes) {
    step.operations += static_cast<std::int64_t>(lane.size());
  }
  const auto expected = oracle::slow_simulate(step.program, step.costs).makespan;
  ENTRAIN_INVARIANT(simulate(step.program, step.costs).makespan == expected,
                    "simulate() and the slow simulator disagree");
  ENTRAIN_INVARIANT(lane_bound(step.program, step.costs) <= expected,
                    "the bound is above the step time");
  return step;
}

const Step& the_step() {
  static const Step kStep = make_step();
  return kStep;
}

void report(benchmark::State& state) {
  state.counters["operations"] = static_cast<double>(the_step().operations);
  state.counters["operations_per_second"] = benchmark::Counter(
      static_cast<double>(the_step().operations), benchmark::Counter::kIsIterationInvariantRate);
}

void simulate_step(benchmark::State& state) {
  const Step& step = the_step();
  SimulateOptions options;
  options.events = state.range(0) != 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(step.program, step.costs, options).makespan);
  }
  report(state);
}
BENCHMARK(simulate_step)->ArgName("events")->Arg(0)->Arg(1);

void bound_step(benchmark::State& state) {
  const Step& step = the_step();
  for (auto _ : state) {
    benchmark::DoNotOptimize(lane_bound(step.program, step.costs));
  }
  report(state);
}
BENCHMARK(bound_step);

}  // namespace
}  // namespace entrain
