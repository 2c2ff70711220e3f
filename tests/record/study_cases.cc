// What the study commands show: policies × schedules under a memory rule, and the plans of others.
#include <memory>
#include <string>
#include <vector>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/schedule/schedule.h"
#include "entrain/core/study/baselines.h"
#include "entrain/core/study/cases.h"
#include "entrain/core/study/study.h"

#include "tests/oracle/study_files.h"
#include "tests/record/fields.h"
#include "tests/record/record.h"

namespace entrain::record {
namespace {

struct Tables {
  oracle::StudyFiles files;
  Study table = load_study(files.table_inputs());
  Study index = load_study(files.index_inputs());
  Study on_cluster = load_study(cluster_inputs());

  // The index on four devices of one node.
  [[nodiscard]] StudyInputs cluster_inputs() const {
    StudyInputs inputs = files.index_inputs();
    inputs.cluster = (files.folder() / "cluster.toml").string();
    write_file(inputs.cluster, "name = \"tiny\"\ndevices_per_node = 4\ndevice = \"cpu-2core\"\n");
    return inputs;
  }
};

std::string fields_of(const CaseStep& step) {
  if (!step.refused.empty()) {
    return or_refusal([&]() -> std::string { throw NothingFits(step.refused); });
  }
  std::string slots;
  for (const int count : step.num_slots) {
    slots += concat(slots.empty() ? "" : ",", count);
  }
  std::string causes;
  if (step.causes.has_value()) {
    causes = concat(step.causes->replica, ",", step.causes->lane);
    for (const auto time : step.causes->time) {
      causes += concat(",", time.count());
    }
  }
  return concat("step_ns=",
                step.step_ns,
                " bound_ns=",
                step.bound_ns,
                " slots=",
                slots,
                " deferred=",
                step.deferred,
                " peak_bytes=",
                step.peak_bytes,
                " over_bytes=",
                step.over_bytes,
                " causes_ns=",
                causes);
}

std::string run_case(const Study& study,
                     const std::string& policy,
                     const std::string& schedule,
                     MemoryKind memory) {
  CasesRequest request;
  request.study = &study;
  request.plan = even_plan(study.model, {1, 2}, 2, 3);
  request.plan.limits.evaluations = 100;
  request.policies = {policy};
  request.schedules = {schedule};
  request.memory.kind = memory;
  request.slots = {1, 2, 4};
  return fields_of(run_cases(request).front().steps.front());
}

std::string run_baseline(const Study& study, const std::string& planner) {
  BaselineRequest request;
  request.planner = planner;
  request.search.policy = "lpt-2d";
  complete_request(study, 2, request.search);
  request.lanes = 3;
  request.replicas = 2;
  request.num_slots = 2;
  return concat("plan=", digest(baseline_plan(study, request)));
}

}  // namespace

std::vector<Case> study_cases() {
  const auto tables = std::make_shared<const Tables>();
  std::vector<Case> cases;
  for (const std::string& policy : policy_names()) {
    for (const std::string& schedule : schedule_names()) {
      cases.push_back({concat("study/", policy, "/", schedule), [=] {
                         return run_case(tables->index, policy, schedule, MemoryKind::kEqual);
                       }});
    }
    cases.push_back({concat("study/costs/", policy), [=] {
                       return run_case(tables->table, policy, "entrain", MemoryKind::kFree);
                     }});
  }
  for (const std::string& planner : baseline_planner_names()) {
    cases.push_back({concat("study/plan/", planner),
                     [=] { return run_baseline(tables->on_cluster, planner); }});
  }
  return cases;
}

}  // namespace entrain::record
