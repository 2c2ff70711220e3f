// Tiny random searches for plans, and every configuration of their clusters by the obvious loops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/base/random.h"
#include "entrain/core/planner/plan_search.h"

namespace entrain::oracle {

// What a request points to.
struct PlanCase {
  ModelSpec model;
  Profile profile;
  ClusterSpec cluster;
  PlanSearchRequest request;  // its pointers are set by request_of()

  [[nodiscard]] PlanSearchRequest request_of() const;
};

// One to three modules of 3 to 5 layers, costs that shrink less than the degrees grow, 1 to
// `most_devices` devices on one or two nodes, one to three batches of up to 12 samples, any policy
// that is quick, any schedule, sometimes frozen modules, memory and idle devices.
PlanCase make_plan_case(Rng& rng, int most_devices);

// The same with activations of several times what layers hold all the time, and with memory for one
// to a few units: what fits hangs on activations.
PlanCase make_full_case(Rng& rng, int most_devices);

// make_plan_case() with virtual stages, two of every module or any numbers; sometimes plans without
// have another schedule.
PlanCase make_virtual_case(Rng& rng, int most_devices);

// Every configuration that plan_space.h allows, by trying all numbers.
std::vector<PlanShape> all_configs(const PlanCase& plan_case,
                                   const std::vector<std::vector<Degrees>>& degrees);

std::string describe(const PlanCase& plan_case);

}  // namespace entrain::oracle
