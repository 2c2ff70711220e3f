// Random tiny programs of random cases, and the check of a replay against the slow simulator.
//
// Read first: make_random_program(), expect_equal().
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/base/random.h"
#include "entrain/core/simulator/network.h"
#include "entrain/core/spec/program.h"
#include "entrain/core/spec/timeline.h"

#include "tests/oracle/random_cases.h"
#include "tests/oracle/slow_simulator.h"

namespace entrain::oracle {

struct RandomProgram {
  RandomCase random_case;
  Program program;
  std::string text;  // the instance, for the message of a failing test
};

struct RandomProgramOptions {
  RandomCaseOptions cases{};
  bool shuffled = false;  // neighbouring operations swapped: some programs cannot finish then
};

// A program of some schedule for a random case; of half of them some backwards are split, the
// weight half anywhere behind the input half.
RandomProgram make_random_program(std::uint64_t seed,
                                  int index,
                                  const RandomProgramOptions& options = {});

// Lanes on up to three nodes with random links; one in four networks is empty.
Network random_network(Rng& rng, const Program& program);

// Expects every operation's times, the buckets and the lanes' usage to be those of the slow
// simulator. `actual` has events.
void expect_equal(const RandomProgram& instance,
                  const SimulateOptions& options,
                  const SlowTimeline& expected,
                  const Timeline& actual);

// Expects memory_over_time(), memory_timeline() and the peaks to be those of slow_memory().
void expect_slow_memory(const RandomProgram& instance, const Timeline& actual);

}  // namespace entrain::oracle
