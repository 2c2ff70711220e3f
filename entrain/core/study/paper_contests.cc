#include "entrain/core/study/paper_contests.h"

#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "entrain/core/study/memory_rule.h"
#include "entrain/core/study/one_sample.h"
#include "entrain/core/study/summary.h"

namespace entrain {
namespace {

// Of the first step: [module][replica] standard deviation of forward times over slots, in seconds.
Json replica_spread(const CaseStep& step) {
  Json modules = Json::array();
  for (const ModuleBalance& balance : step.balance) {
    Json replicas = Json::array();
    for (const ReplicaBalance& replica : balance.replicas) {
      replicas.push_back(replica.std_s);
    }
    modules.push_back(std::move(replicas));
  }
  return modules;
}

// The memory that all contestants have: without end, again with other batches and a second seed of
// all policies; what `lpt-2d` needs or half of the batch, whichever is more; what a device has
// left, with every layer recomputed.
struct MemoryCase {
  const char* name;
  const char* rule;
  bool recompute;
  int seed;
};
constexpr std::array<MemoryCase, 4> kMemory = {{{"free", "free", false, 0},
                                                {"free, second seed", "free", false, 1},
                                                {"equal", "equal", false, 0},
                                                {"device", "40GiB", true, 0}}};

}  // namespace

void add_rows(const CasesRequest& request,
              const std::vector<CaseResult>& cases,
              const std::string& planner,
              const std::string& memory,
              Json& rows) {
  const std::vector<CaseSummary> summaries = summarise(cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Json row = to_json(summaries[i], request.study->module_names());
    row["planner"] = planner;
    row["memory"] = memory;
    if (const CaseStep& first = cases[i].steps.front(); first.refused.empty()) {
      row["replicas"] = {{"num_slots", first.num_slots}, {"std_s", replica_spread(first)}};
      row["lane_peak_bytes"] = first.lane_peak_bytes;
    }
    rows.push_back(std::move(row));
  }
}

Json contest_rows(bool quick,
                  int threads,
                  const Study& first,
                  const Study& second,
                  const std::vector<Contest>& contests) {
  Json rows = Json::array();
  for (const MemoryCase& memory : kMemory) {
    const Study& study = memory.seed == 0 ? first : second;
    for (const Contest& contest : contests) {
      CasesRequest request;
      request.study = &study;
      request.plan = contest.plan;
      if (memory.recompute) {
        recompute_all(request.plan);
      }
      request.policies = contest.policies;
      request.schedules = contest.schedules;
      if (memory.seed != 0 && contest.schedules.size() > 1) {
        request.schedules = {"1f1b", "entrain"};
      }
      request.steps = quick ? 3 : memory.seed == 0 ? 10 : 5;
      // Plans of all devices know what their state leaves.
      const bool own_limits = memory.recompute && !contest.plan.limits.lane_bytes.empty();
      request.memory = parse_memory_rule(own_limits ? "plan" : memory.rule);
      request.threads = threads;
      if (contest.tries_slots) {
        request.slots = slot_candidates(contest.plan, study.inputs.global_batch);
      }
      if (contest.planner == "one-sample") {
        std::vector<CaseResult> cases = run_one_sample_cases(request, kOneSampleDraws);
        for (CaseResult& one : cases) {
          one.policy = one.policy.substr(0, one.policy.find(' '));
        }
        add_rows(request, cases, contest.planner, memory.name, rows);
      } else {
        add_rows(request, run_cases(request), contest.planner, memory.name, rows);
      }
    }
  }
  return rows;
}

}  // namespace entrain
