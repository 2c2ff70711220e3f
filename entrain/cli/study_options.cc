#include "entrain/cli/study_options.h"

#include <algorithm>
#include <iostream>

#include <nlohmann/json.hpp>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/cost/consistency.h"
#include "entrain/core/cost/profile_range.h"
#include "entrain/core/planner/lane_split.h"
#include "entrain/core/spec/cost_origin.h"
#include "entrain/core/spec/media.h"

#include "entrain/cli/checked_options.h"

namespace entrain::cli {

void add_ignore_modality(CLI::App& command, std::vector<std::string>& ignored) {
  const std::vector<std::string> names(kMediaNames.begin(), kMediaNames.end());
  command
      .add_option("--ignore-modality",
                  ignored,
                  "ignore media that the model has no encoder for: audio, image (video too); "
                  "without it such samples are refused")
      ->delimiter(',')
      ->allow_extra_args(false)  // otherwise it would consume the following positional arguments
      ->check(CLI::IsMember(names));
}

void add_sample_options(CLI::App& command, StudyInputs& inputs) {
  command.add_option("--index,-i", inputs.index, "index or manifest (CSV, gzip accepted)");
  command.add_option("--model,-m", inputs.model, "model file (TOML), or a Hugging Face folder");
  command.add_option(
      "--profile,-p",
      inputs.profile,
      "profile JSON of `entrain profile`, or analytic:DEVICE (cpu-2core, a40, a40-nvlink, h100); "
      "default: analytic, of the cluster's device, as the plan's or of an a40 (a run without "
      "plan.profile: of a "
      "cpu-2core)");
  command
      .add_option("--freeze",
                  inputs.freeze,
                  "modules to freeze, as a run file's `freeze`: NAME (leaves an encoder's "
                  "projector trainable), NAME.projector, projector (of all encoders), llm, or a "
                  "pattern over parameter names (docs/lora.md)")
      ->delimiter(',');
  command.add_option("--lora",
                     inputs.lora,
                     "adapters instead of full training, RANK:TARGET,TARGET: 8:q_proj,v_proj");
  add_ignore_modality(command, inputs.ignore_modality);
}

Study open_study(const StudyInputs& inputs, bool draws) {
  Study study = load_study(inputs);
  print_notes(study.ignored);
  if (!study.table.has_value()) {
    print_warnings(profile_warnings(study.profile, study.inputs.profile));
  }
  if (!study.left_out().empty()) {
    print_notes({study.left_out()});
  }
  print_warnings({draws ? repetition_warning(study) : ""});
  return study;
}

Study open_study(StudyInputs inputs, const PlanOptions& plan) {
  const std::optional<CostOrigin> origin =
      plan.file.empty() ? std::nullopt : plan_origin(plan.file);
  if (origin.has_value() && !origin->links.empty() && inputs.cluster.empty()) {
    print_warnings({concat("--plan '",
                           plan.file,
                           "' was made for the links of ",
                           origin->links,
                           ", times here are for the profile's: give --cluster")});
  }
  if (!origin.has_value() || !inputs.costs.empty() || !inputs.profile.empty()) {
    return open_study(inputs);
  }
  for (const std::string& device : device_model_names()) {
    if (inputs.cluster.empty() && origin->profile == "analytic:" + device) {
      inputs.profile = origin->profile;
    }
  }
  Study study = open_study(inputs);
  study.assumed = true;
  if (origin->profile != study.origin.profile) {
    print_warnings({concat("--plan '",
                           plan.file,
                           "' was made with other costs (",
                           to_string(*origin),
                           ") than the assumed ",
                           study.origin.profile,
                           ", of which all times are: give ",
                           origin->device.empty() ? "--costs" : "--profile")});
  }
  return study;
}

void add_study_options(CLI::App& command, StudyInputs& inputs) {
  add_sample_options(command, inputs);
  command.add_option("--cluster", inputs.cluster, "cluster file (TOML) whose links are used");
  command.add_option("--costs",
                     inputs.costs,
                     "costs per sample (CSV; your own, or of `entrain cost`) instead of index, "
                     "model and profile: "
                     "sample_id, <module>_tokens, <module>_forward_s, <module>_backward_s, …");
  command.add_option("--segment-costs",
                     inputs.segment_costs,
                     "beside --costs, per image or audio window: sample_id, module, segment, "
                     "tokens, forward_s, backward_s");
  command.add_option("--global-batch,-b", inputs.global_batch, "samples per step")
      ->required()
      ->transform(whole(1, kMostSamples));
  command.add_option("--seed", inputs.seed, "seed of the drawn batches, and of policies that draw")
      ->transform(seed_number())
      ->capture_default_str();
}

void add_hold(CLI::App& command, StudyInputs& inputs) {
  command
      .add_option("--mixture",
                  inputs.mixture,
                  "TOML file with the shares of drawn samples by their ids, as a run file's table "
                  "[data.mixture] (docs/data.md)")
      ->check(CLI::ExistingFile);
  command
      .add_option("--hold",
                  inputs.hold,
                  "steps within which oversized samples are gathered in few steps, as a run "
                  "file's data.hold: another order of samples (docs/data.md); 0 or 1: off")
      ->transform(whole(0, kMostHeldSteps))
      ->capture_default_str();
}

void add_given_batches(CLI::App& command, StudyInputs& inputs) {
  CLI::Option* size = command.get_option("--global-batch")->required(false);
  CLI::Option* batch =
      command.add_option("--batch",
                         inputs.batch,
                         "instead of drawn batches, the batch of the only step: a file with a "
                         "sample id a line (blank lines and lines that begin with # are skipped)");
  batch->excludes(size);
  command
      .add_flag("--no-repeat",
                inputs.no_repeat,
                "instead of drawn batches, every sample once in the order of the file: one batch, "
                "or with --global-batch consecutive ones, the last left out if it is not full")
      ->excludes(batch);
}

std::int64_t step_of_assignment(const Json& document, const std::string& file) {
  return document.is_object() && document.contains("step")
             ? value_as<std::int64_t>(document["step"], file + ": step")
             : 0;
}

std::vector<std::filesystem::path> input_files(const StudyInputs& inputs, const PlanOptions& plan) {
  return {inputs.index,
          inputs.model,
          inputs.profile,
          inputs.cluster,
          inputs.costs,
          inputs.segment_costs,
          inputs.batch,
          plan.file};
}

void add_layout(CLI::App& command, std::string& layout) {
  command
      .add_option("--layout",
                  layout,
                  "apart: modules have lanes of their own, unless there is one lane; shared: every "
                  "lane hosts one stage of "
                  "every module (default: the faster of both; shared for the schedule dip)")
      ->check(CLI::IsMember({"apart", "shared"}));
}

SharedLanes lanes_of_layout(const std::string& layout) {
  return layout == "shared"  ? SharedLanes::kOnly
         : layout == "apart" ? SharedLanes::kNever
                             : SharedLanes::kToo;
}

void add_plan_options(CLI::App& command, PlanOptions& options) {
  CLI::Option* file = command.add_option("--plan", options.file, "plan JSON of `entrain plan`");
  command
      .add_option("--lanes",
                  options.lanes,
                  "instead of --plan: the best split of so many lanes, by simulation")
      ->transform(whole(1, 8, "; more: --plan, of `entrain plan --cluster`"))
      ->excludes(file);
  command
      .add_option("--replicas", options.replicas, "full model copies (default: the plan's, or 1)")
      ->transform(whole(1, kMostReplicas));
  command
      .add_option("--num-slots",
                  options.num_slots,
                  "microbatches per replica of policies that do not choose them (default: the "
                  "plan's, or 8)")
      ->transform(whole(1, kMostSlots));
  command
      .add_option("--evaluations",
                  options.evaluations,
                  "simulated replicas the `entrain` policy may spend on a step (default: the "
                  "plan's)")
      ->transform(whole(0, kMostEvaluations));
  command
      .add_option("--memory",
                  options.memory,
                  "activation memory per lane: plan, free, equal (the same for every policy: see "
                  "docs/simulate.md), or bytes such as 2000000 or 1.5GiB")
      ->capture_default_str();
  command.add_option(
      "--plan-schedule",
      options.search_schedule,
      "schedule that the search of --lanes simulates, with the policy entrain (default: "
      "1f1b; dip for --layout shared)");
  command
      .add_option("--plan-batches",
                  options.search_batches,
                  "global batches that the search of --lanes simulates")
      ->transform(whole(1, 1000))
      ->capture_default_str();
  add_layout(command, options.layout);
  command.get_option("--layout")->excludes(file);
  command.add_flag("--chunks", options.chunks, "allow LLM work in token ranges (chunks)");
}

void add_policy_options(CLI::App& command, PolicyOptions& options) {
  command.add_option(
      "--without",
      options.without,
      "parts that the policy entrain omits, comma-separated: joint, replicas, "
      "shape, order, slots, deferral, segments, chunks, search, rivals, tuning, bytes");
  command
      .add_option("--objective",
                  options.objective,
                  "of the policy entrain: step-time, or balance (even slots, the plan's number)")
      ->capture_default_str();
  command
      .add_option("--assign-threads",
                  options.threads,
                  "threads on which the policy entrain assigns a step: at most one for every two "
                  "replicas, and at most 8, are used; the assignment does not depend on it")
      ->transform(whole(1, 1024))
      ->capture_default_str();
}

void apply(const PolicyOptions& options, AssignRequest& request) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin < options.without.size()) {
    const std::size_t end = std::min(options.without.find(',', begin), options.without.size());
    parts.push_back(options.without.substr(begin, end - begin));
    begin = end + 1;
  }
  request.options = entrain_options_without(parts, "--without");
  request.threads = options.threads;
  const std::vector<std::string> objectives = {"step-time", "balance"};
  if (std::find(objectives.begin(), objectives.end(), options.objective) == objectives.end()) {
    throw InvalidInput(concat("--objective: '",
                              options.objective,
                              "' is neither step-time nor balance",
                              suggestion(options.objective, objectives)));
  }
  request.objective = options.objective == "balance" ? Objective::kBalance : Objective::kStepTime;
}

Plan make_plan(const PlanOptions& options, const Study& study) {
  const MemoryRule memory = parse_memory_rule(options.memory);
  if (options.file.empty() && options.lanes == 0) {
    throw InvalidInput("give --plan plan.json, or --lanes N to search for a plan");
  }
  Plan plan;
  if (!options.file.empty()) {
    plan = read_study_plan(study, options.file);
    plan.replicas = options.replicas > 0 ? options.replicas : plan.replicas;
    plan.num_slots = options.num_slots > 0 ? options.num_slots : plan.num_slots;
  } else {
    LaneSplitRequest request;
    request.lanes = options.lanes;
    request.replicas = options.replicas > 0 ? options.replicas : request.replicas;
    request.num_slots = options.num_slots > 0 ? options.num_slots : request.num_slots;
    request.limits.bytes_per_lane = memory.bytes;
    request.limits.chunks = options.chunks;
    request.shared_lanes = lanes_of_layout(options.layout);
    if (!options.search_schedule.empty()) {
      request.schedule = options.search_schedule;
    } else if (request.shared_lanes == SharedLanes::kOnly) {
      request.schedule = "dip";
    }
    if (request.schedule == "dip" && request.shared_lanes == SharedLanes::kNever) {
      throw InvalidInput("--layout apart: schedule 'dip' needs lanes that all modules share");
    }
    if (options.evaluations >= 0) {
      request.limits.evaluations = options.evaluations;
    }
    warn_of_window(study, options.search_batches, "--plan-batches");
    const LaneSplitResult result = search_split(study, request, options.search_batches);
    if (!result.fits()) {
      throw NothingFits(concat("no plan fits: ", result.reason));
    }
    std::cerr << to_string(result, study.model);
    plan = result.best();
    plan.limits.evaluations = default_evaluations(plan.replicas);
  }
  if (options.evaluations >= 0) {
    plan.limits.evaluations = options.evaluations;
  }
  plan.limits.chunks = plan.limits.chunks || options.chunks;
  warn_beyond_range(study, plan);
  return plan;
}

void warn_beyond_range(const Study& study, const Plan& plan) {
  print_warnings(slot_warnings(plan, study.inputs.global_batch));
  if (study.table.has_value()) {
    return;
  }
  const StudyBatch batch = draw_batch(study, 0);
  print_warnings(range_warnings(study.model, plan, study.profile, batch.work));
}

void warn_of_window(const Study& study, std::int64_t batches, const std::string& option) {
  const int hold = study.inputs.hold;
  if (hold > 1 && batches < hold) {
    print_warnings({concat("--hold ",
                           hold,
                           " makes the steps of a window differ, and ",
                           batches,
                           " of them are looked at: give ",
                           option,
                           " ",
                           hold)});
  }
}

AssignRequest assign_request(const StudyStep& step,
                             const Study& study,
                             std::int64_t step_index,
                             const PolicyOptions& options) {
  AssignRequest request;
  request.plan = &step.plan;
  request.costs = &step.costs;
  request.step = step_index;
  request.seed = study.inputs.seed;
  apply(options, request);
  return request;
}

std::vector<std::string> parse_selection(const std::string& text,
                                         const std::vector<std::string>& allowed,
                                         const std::string& option) {
  return text == "all" ? allowed : parse_names(text, allowed, option);
}

}  // namespace entrain::cli
