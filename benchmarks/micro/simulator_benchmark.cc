// Replay of one step's program: simulate(), with and without events, on shared links and with early
// stops.
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

// Two lanes a node, messages between nodes slow enough to queue.
SimulateOptions shared_links(LinkSharing sharing) {
  SimulateOptions options;
  options.sharing = sharing;
  options.network.nodes = {{0, 0, 1, 1, 2, 2, 3, 3}};
  options.network.intra_node = {std::chrono::nanoseconds{50}, 1e9};
  options.network.inter_node = {std::chrono::nanoseconds{500}, 1e8};
  return options;
}

void simulate_shared_links(benchmark::State& state) {
  const Step& step = the_step();
  const SimulateOptions options = shared_links(static_cast<LinkSharing>(state.range(0)));
  const auto expected = oracle::slow_simulate(step.program, step.costs, options).makespan;
  ENTRAIN_INVARIANT(simulate(step.program, step.costs, options).makespan == expected,
                    "simulate() and the slow simulator disagree");
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(step.program, step.costs, options).makespan);
  }
  report(state);
}
BENCHMARK(simulate_shared_links)
    ->ArgName("sharing")
    ->Arg(static_cast<int>(LinkSharing::kChannel))
    ->Arg(static_cast<int>(LinkSharing::kLane))
    ->Arg(static_cast<int>(LinkSharing::kNode));

// A limit of so many percent of the step time; at 100 the step is within it.
void simulate_stop_after(benchmark::State& state) {
  const Step& step = the_step();
  const auto full = simulate(step.program, step.costs).makespan;
  SimulateOptions options;
  options.stop_after = full * state.range(0) / 100;
  ENTRAIN_INVARIANT(simulate(step.program, step.costs, options).stopped == (state.range(0) < 100),
                    "simulate() stopped wrongly");
  for (auto _ : state) {
    benchmark::DoNotOptimize(simulate(step.program, step.costs, options).makespan);
  }
  report(state);
}
BENCHMARK(simulate_stop_after)->ArgName("percent")->Arg(100)->Arg(99)->Arg(95)->Arg(90);

}  // namespace
}  // namespace entrain
