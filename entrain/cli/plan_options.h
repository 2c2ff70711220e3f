// The options of `entrain plan`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "entrain/core/planner/plan_search.h"

#include "entrain/cli/study_options.h"

namespace entrain::cli {

struct PlanFlags {
  StudyInputs study;
  std::string output;
  int lanes = 0;
  int replicas = 0;
  int num_slots = 8;
  int batches = 0;  // default_batches()
  std::string policy = "entrain";
  std::string schedule;    // empty: what the lanes ask for
  int virtual_stages = 1;  // kAutoVirtualStages
  std::string layout;      // apart, shared; empty: both, as far as the schedule has them
  std::int64_t memory_mib = 0;
  bool chunks = false;
  std::string recompute = "auto";
  std::string shard_optimizer = "auto";
  int evaluations = -1;  // default_evaluations()
  std::string planner = "search";
  int tensor_parallel = 1;   // of baseline planners
  PlanSearchRequest search;  // its counts and its space
  double reserve_gib = 0;
  int regret_batches = 0;
  int check_batches = -1;  // kCheckBatches, on many devices fewer where they take long
  bool for_study = false;  // also what this engine does not run
  bool explain = false;
  std::string report;
  bool force = false;
  bool json = false;
};

// All but --force and --json.
void add_plan_search_options(CLI::App& command, const std::shared_ptr<PlanFlags>& options);

// "search", and how others plan.
std::vector<std::string> planner_names();

// Throws  InvalidInput for an unknown planner and for a given option that the planner does not
// read.
void check_planner(const CLI::App& command, const PlanFlags& options);

}  // namespace entrain::cli
