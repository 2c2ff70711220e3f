// Random tiny programs under every combination of the simulator's options, on random networks: the
// replay against the slow simulator, and early stops against the full replay.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/simulator/simulator.h"

#include "tests/oracle/case_count.h"
#include "tests/oracle/random_programs.h"
#include "tests/oracle/slow_simulator.h"

namespace entrain {
namespace {

using oracle::make_random_program;
using oracle::RandomProgram;
using std::chrono::nanoseconds;

constexpr std::uint64_t kSeed = 7202;
constexpr int kCases = oracle::case_count(2000);  // per combination

// Small, so that many fit; two replicas more often than one.
RandomProgram small_program(int index, bool shuffled) {
  oracle::RandomProgramOptions options;
  options.cases.max_slots = 4;
  options.cases.max_samples = 7;
  options.shuffled = shuffled;
  if (index % 3 != 0) {
    options.cases.replicas = 2;
  }
  return make_random_program(kSeed, index, options);
}

struct Combination {
  bool blocking_sends = false;
  LinkSharing sharing = LinkSharing::kChannel;
  int reduce_buckets = 0;
};

std::vector<Combination> combinations() {
  std::vector<Combination> result;
  for (const bool blocking : {false, true}) {
    for (const LinkSharing sharing :
         {LinkSharing::kChannel, LinkSharing::kLane, LinkSharing::kNode}) {
      for (const int buckets : {0, 1, 3}) {
        result.push_back({blocking, sharing, buckets});
      }
    }
  }
  return result;
}

SimulateOptions options_of(const Combination& combination, Rng& rng, const Program& program) {
  SimulateOptions options;
  options.events = true;
  options.blocking_sends = combination.blocking_sends;
  options.sharing = combination.sharing;
  options.reduce_buckets = combination.reduce_buckets;
  options.network = oracle::random_network(rng, program);
  return options;
}

std::string text_of(const RandomProgram& instance, const SimulateOptions& options) {
  std::string text = instance.text + "\nblocking " + std::to_string(options.blocking_sends) +
                     " sharing " + std::to_string(static_cast<int>(options.sharing)) + " buckets " +
                     std::to_string(options.reduce_buckets.value_or(-1)) + "\nnodes:";
  for (const std::vector<int>& replica : options.network.nodes) {
    for (const int node : replica) {
      text += " " + std::to_string(node);
    }
    text += ";";
  }
  return text;
}

class SimulateOptionsTest : public testing::TestWithParam<Combination> {};

TEST_P(SimulateOptionsTest, EqualsTheSlowOneOnEveryOperation) {
  int differs = 0;  // from the defaults
  for (int index = 0; index < kCases; ++index) {
    const RandomProgram instance = small_program(index, false);
    const StepCosts& costs = instance.random_case.costs;
    Rng rng(kSeed + 1, static_cast<std::uint64_t>(index));
    const SimulateOptions options = options_of(GetParam(), rng, instance.program);
    const oracle::SlowTimeline expected = oracle::slow_simulate(instance.program, costs, options);
    ASSERT_TRUE(expected.finished) << text_of(instance, options);
    const Timeline actual = simulate(instance.program, costs, options);
    oracle::expect_equal(instance, options, expected, actual);
    SimulateOptions defaults;
    defaults.network = options.network;
    const nanoseconds without = simulate(instance.program, costs, defaults).makespan;
    differs += without != actual.makespan ? 1 : 0;
    if (index % 10 == 0) {
      oracle::expect_slow_memory(instance, actual);
    }
    if (HasFailure()) {
      FAIL() << text_of(instance, options);
    }
  }
  const Combination& combination = GetParam();
  const bool plain = !combination.blocking_sends && combination.sharing == LinkSharing::kChannel &&
                     combination.reduce_buckets == 0;
  EXPECT_GE(differs, plain ? 0 : kCases / 40);
}

TEST_P(SimulateOptionsTest, StopsOnlyWhatTakesTooLong) {
  int stopped = 0;
  for (int index = 0; index < kCases / 2; ++index) {
    const RandomProgram instance = small_program(index, false);
    const StepCosts& costs = instance.random_case.costs;
    Rng rng(kSeed + 1, static_cast<std::uint64_t>(index));
    SimulateOptions options = options_of(GetParam(), rng, instance.program);
    const nanoseconds full = simulate(instance.program, costs, options).makespan;
    const auto most = static_cast<std::uint64_t>(full.count() + full.count() / 4 + 1);
    for (const std::int64_t limit : {full.count() - 1,
                                     full.count(),
                                     static_cast<std::int64_t>(rng.below(most)),
                                     static_cast<std::int64_t>(rng.below(most))}) {
      if (limit <= 0) {
        continue;
      }
      options.stop_after = nanoseconds{limit};
      const Timeline actual = simulate(instance.program, costs, options);
      EXPECT_EQ(actual.makespan.count() > limit, full.count() > limit);
      EXPECT_LE(actual.makespan, full);
      if (actual.stopped) {
        EXPECT_GT(full.count(), limit);
        EXPECT_TRUE(actual.events.empty());
        ++stopped;
      } else {
        EXPECT_EQ(actual.makespan, full);
      }
    }
    if (HasFailure()) {
      FAIL() << text_of(instance, options);
    }
  }
  EXPECT_GT(stopped, kCases / 2);
}

TEST_P(SimulateOptionsTest, RefusesExactlyWhatCannotFinish) {
  int stuck = 0;
  for (int index = 0; index < kCases / 10; ++index) {
    const RandomProgram instance = small_program(index, true);
    const StepCosts& costs = instance.random_case.costs;
    Rng rng(kSeed + 1, static_cast<std::uint64_t>(index));
    const SimulateOptions options = options_of(GetParam(), rng, instance.program);
    const oracle::SlowTimeline expected = oracle::slow_simulate(instance.program, costs, options);
    try {
      const Timeline actual = simulate(instance.program, costs, options);
      EXPECT_TRUE(expected.finished) << text_of(instance, options);
      EXPECT_EQ(actual.makespan, expected.makespan) << text_of(instance, options);
    } catch (const InvalidInput& error) {
      EXPECT_FALSE(expected.finished) << error.what() << "\n" << text_of(instance, options);
      ++stuck;
    }
  }
  EXPECT_GT(stuck, 0);
}

std::string name_of(const testing::TestParamInfo<Combination>& info) {
  constexpr const char* kSharing[] = {"Channel", "Lane", "Node"};
  return std::string(info.param.blocking_sends ? "Blocking" : "Free") +
         kSharing[static_cast<int>(info.param.sharing)] +
         std::to_string(info.param.reduce_buckets) + "Buckets";
}

INSTANTIATE_TEST_SUITE_P(Combinations,
                         SimulateOptionsTest,
                         testing::ValuesIn(combinations()),
                         name_of);

}  // namespace
}  // namespace entrain
