// What the steps of a gradient test were: counts of each schedule's, and which values of what sets
// steps apart came together.
//
// Read first: StepCoverage.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/engine/gradient_step.h"

namespace entrain::oracle {

// A thing that steps differ in, and every value that a test means it to have.
struct StepFactor {
  std::string name;
  std::vector<std::string> values;
};

// Values of one step by factor: "pipeline" (LLM stages), "tensor" (degrees of encoders and LLM),
// "replicas", "encoders", "frozen", "recomputed", "sharded", "tied", "schedule", "policy".
std::map<std::string, std::string> factors_of(const StepConfiguration& configuration);

// All values of all factors. Requires  names of `tensor` as "encoders/llm".
std::vector<StepFactor> all_step_factors();

class StepCoverage {
 public:
  void add(const StepConfiguration& configuration);

  // Every schedule that runs any plan ran, with shared lanes too, those with split backwards did
  // split, and at least so many steps of each recomputed layers, a fifth of it with sharded
  // optimizers; prints the counts and returns the number of steps. `interleaved` and `dip`: as far
  // as the layouts allow.
  int expect_schedules(int recomputed_at_least) const;

  // Every value of a factor ran with every value of every other, but sharded optimizers, which need
  // several replicas, with one; prints how many pairs these are.
  void expect_pairs(const std::vector<StepFactor>& factors) const;

 private:
  struct Counts {
    int all = 0;
    int split = 0;
    int shared = 0;
    int recomputed = 0;
    int sharded = 0;
    int cut = 0;
  };
  std::map<std::string, Counts> counts_;                 // by schedule
  std::set<std::pair<std::string, std::string>> pairs_;  // "name value", names in rising order
};

// Whether a sample of the assignment is cut.
bool has_chunks(const StepAssignment& assignment);

}  // namespace entrain::oracle
