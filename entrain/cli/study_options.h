// Options shared by the commands that study samples under a plan, without training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/spec/assignment.h"
#include "entrain/core/spec/limits.h"
#include "entrain/core/study/memory_rule.h"
#include "entrain/core/study/study.h"

#include "entrain/cli/command.h"

namespace entrain::cli {

// The most that a number on the command line may be.
inline constexpr std::int64_t kMostSamples = 1'000'000;  // of a batch
inline constexpr std::int64_t kMostSteps = 1'000'000'000;
inline constexpr std::int64_t kMostEvaluations = 1'000'000;
inline constexpr std::int64_t kMostMebibytes = 1'000'000'000;

// --ignore-modality.
void add_ignore_modality(CLI::App& command, std::vector<std::string>& ignored);

// Where samples and their costs come from: --index, --model, --profile, --freeze,
// --ignore-modality.
void add_sample_options(CLI::App& command, StudyInputs& inputs);

// These and --cluster, --costs, --segment-costs, --global-batch, --seed.
void add_study_options(CLI::App& command, StudyInputs& inputs);

// --hold.
void add_hold(CLI::App& command, StudyInputs& inputs);

// --batch, --no-repeat: given batches instead of drawn ones, so that --global-batch may be absent.
// Requires  add_study_options() of the same command before.
void add_given_batches(CLI::App& command, StudyInputs& inputs);

// load_study(). What of the samples is ignored is said on standard error, what the profile does not
// say of itself, which samples no given batch holds, and where the command `draws` batches, how
// often samples repeat in them.
Study open_study(const StudyInputs& inputs, bool draws = true);

// Where a plan comes from, and what of it the command line overrides.
struct PlanOptions {
  std::string file;             // plan JSON, or:
  int lanes = 0;                // the best split of so many lanes, by simulation
  int replicas = 0;             // 0: the plan file's, or 1
  int num_slots = 0;            // 0: the plan file's, or 8
  int evaluations = -1;         // -1: the plan file's
  std::string memory = "plan";  // a memory rule
  bool chunks = false;          // allow chunks, whatever the plan says
  std::string search_schedule;  // that the search for a plan simulates; empty: the layout's
  int search_batches = 3;       // likewise
  std::string layout;           // as lanes_of_layout() reads
};

// Of a command with a plan: where the inputs name neither profile nor cluster, the analytic profile
// that the plan file was made with; a warning where the costs assumed are others than that file's.
Study open_study(StudyInputs inputs, const PlanOptions& plan);

// The step that an assignment's file says it is of; 0 where it says none.
std::int64_t step_of_assignment(const Json& document, const std::string& file);

// What the command reads, for Outputs.
std::vector<std::filesystem::path> input_files(const StudyInputs& inputs,
                                               const PlanOptions& plan = {});

// --layout: apart, shared, or both where it is empty, which is the default.
void add_layout(CLI::App& command, std::string& layout);
SharedLanes lanes_of_layout(const std::string& layout);

// --plan, --lanes, --replicas, --num-slots, --evaluations, --memory, --chunks, --plan-schedule,
// --plan-batches, --layout.
void add_plan_options(CLI::App& command, PlanOptions& options);

// Reads or searches the plan. What searching found is said on standard error, and where the
// profile is used beyond what it was measured on.
// Throws  InvalidInput for options that contradict each other; NothingFits.
Plan make_plan(const PlanOptions& options, const Study& study);

// Says on standard error where the plan has more slots than samples, and where the study's first
// batch leaves the range in which the profile was measured; nothing of that for cost tables and
// analytic profiles.
void warn_beyond_range(const Study& study, const Plan& plan);

// Says on standard error where `batches` are fewer than a window of --hold, whose steps differ;
// `option` gives their number.
void warn_of_window(const Study& study, std::int64_t batches, const std::string& option);

// What the `entrain` policy is asked for.
struct PolicyOptions {
  std::string without;                  // comma-separated parts of EntrainOptions
  std::string objective = "step-time";  // or "balance"
  int threads = 1;                      // of an assignment
};

// --without, --objective, --assign-threads.
void add_policy_options(CLI::App& command, PolicyOptions& options);
// Sets the request's options, objective and threads.
// Throws  InvalidInput for an unknown name.
void apply(const PolicyOptions& options, AssignRequest& request);

// `step` and `study` must outlive it.
AssignRequest assign_request(const StudyStep& step,
                             const Study& study,
                             std::int64_t step_index,
                             const PolicyOptions& options = {});

// "all" → `allowed`; "a,b" → {"a", "b"}, checked.
std::vector<std::string> parse_selection(const std::string& text,
                                         const std::vector<std::string>& allowed,
                                         const std::string& option);

}  // namespace entrain::cli
