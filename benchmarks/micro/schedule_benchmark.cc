// Building and validating programs: 8 lanes, 64 slots a replica, 2 samples a slot, a fifth of the
// samples deferred. Counters are per operation of the program, messages included.
#include "entrain/core/schedule/schedule.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/hand_cases.h"

namespace entrain {
namespace {

using oracle::HandCase;

constexpr int kSlots = 64;
constexpr int kSamplesPerSlot = 2;

// One encoder of 3 stages and an LLM of 5; `replicas` copies of one random assignment shape.
HandCase make_case(int replicas) {
  Rng rng(1);
  std::vector<oracle::HandSample> samples;
  for (int slot = 0; slot < kSlots; ++slot) {
    for (int i = 0; i < kSamplesPerSlot; ++i) {
      const bool deferred = slot > 0 && rng.below(5) == 0;
      const int encoder_slot =
          deferred ? slot - 1 -
                         static_cast<int>(rng.below(static_cast<std::uint64_t>(std::min(slot, 3))))
                   : slot;
      samples.push_back({slot, {{encoder_slot}}});
    }
  }
  const HandCase one = make_hand_case({3, 5}, kSlots, samples);
  // The other replicas run the same slots on samples of their own.
  std::vector<oracle::HandSample> all;
  for (int replica = 0; replica < replicas; ++replica) {
    all.insert(all.end(), samples.begin(), samples.end());
  }
  HandCase result = make_hand_case({3, 5}, kSlots, all);
  result.plan.replicas = replicas;
  result.assignment.replicas.assign(static_cast<std::size_t>(replicas), one.assignment.replicas[0]);
  for (int replica = 0; replica < replicas; ++replica) {
    for (ModuleSlots& slots :
         result.assignment.replicas[static_cast<std::size_t>(replica)].modules) {
      for (Slot& slot : slots) {
        for (WorkItem& item : slot) {
          item.sample += replica * static_cast<int>(samples.size());
        }
      }
    }
  }
  return result;
}

std::int64_t num_operations(const Program& program) {
  std::int64_t total = 0;
  for (const ReplicaProgram& replica : program.replicas) {
    for (const std::vector<Operation>& lane : replica.lanes) {
      total += static_cast<std::int64_t>(lane.size());
    }
  }
  return total;
}

void count(benchmark::State& state, const Program& program) {
  state.counters["operations"] = static_cast<double>(num_operations(program));
  state.SetItemsProcessed(state.iterations() * num_operations(program));
}

void run_build(benchmark::State& state, const HandCase& hand_case, const char* schedule) {
  Program program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
  validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  for (auto _ : state) {
    program = build_program(hand_case.plan, hand_case.assignment, hand_case.costs, schedule);
    benchmark::DoNotOptimize(program);
  }
  count(state, program);
}

void build(benchmark::State& state, const char* schedule) {
  run_build(state, make_case(static_cast<int>(state.range(0))), schedule);
}

void build_shared_lanes(benchmark::State& state) {
  HandCase hand_case = make_case(static_cast<int>(state.range(0)));
  hand_case.plan.lanes = {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}, {{0, 2}, {1, 2}}, {{1, 3}}, {{1, 4}}};
  run_build(state, hand_case, "1f1b");
}

void validate(benchmark::State& state) {
  const HandCase hand_case = make_case(static_cast<int>(state.range(0)));
  const Program program =
      build_program(hand_case.plan, hand_case.assignment, hand_case.costs, "1f1b");
  for (auto _ : state) {
    validate_program(program, hand_case.plan, hand_case.assignment, hand_case.costs);
  }
  count(state, program);
}

BENCHMARK_CAPTURE(build, gpipe, "gpipe")->ArgName("replicas")->Arg(1)->Arg(4);
BENCHMARK_CAPTURE(build, 1f1b, "1f1b")->ArgName("replicas")->Arg(1)->Arg(4);
BENCHMARK_CAPTURE(build, entrain, "entrain")->ArgName("replicas")->Arg(1)->Arg(4);
BENCHMARK(build_shared_lanes)->ArgName("replicas")->Arg(1);
BENCHMARK(validate)->ArgName("replicas")->Arg(1)->Arg(4);

}  // namespace
}  // namespace entrain
