#include "tests/oracle/engine/step_coverage.h"

#include <algorithm>
#include <cstdio>

#include <gtest/gtest.h>

#include "entrain/core/base/text.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain::oracle {
namespace {

const char* yes_or_no(bool value) {
  return value ? "yes" : "no";
}

const char* name_of(StepPolicy policy) {
  switch (policy) {
    case StepPolicy::kRandom:
      return "random";
    case StepPolicy::kRandomChunks:
      return "random with chunks";
    case StepPolicy::kSequential:
      return "sequential";
    case StepPolicy::kEntrain:
      return "entrain";
    case StepPolicy::kEntrainChunks:
      return "entrain with forced chunks";
  }
  return "";
}

// What is frozen of encoders, projectors and LLM.
std::string frozen_of(const ModelSpec& model) {
  const EncoderSpec& encoder = model.encoders.front();
  std::string text;
  text += encoder.frozen ? "e" : "-";
  text += encoder.projector_frozen ? "p" : "-";
  text += model.llm.frozen ? "l" : "-";
  return text;
}

bool splits(const Program& program) {
  for (const ReplicaProgram& replica : program.replicas) {
    for (const std::vector<Operation>& lane : replica.lanes) {
      if (std::any_of(lane.begin(), lane.end(), [](const Operation& operation) {
            return operation.kind == OperationKind::kBackwardWeight;
          })) {
        return true;
      }
    }
  }
  return false;
}

std::string value_of(const std::string& name, const std::string& value) {
  return concat(name, " ", value);
}

// The two others need lanes of several stages of their own kinds.
bool runs_any_plan(const std::string& schedule) {
  return schedule != "interleaved" && schedule != "dip";
}

}  // namespace

bool has_chunks(const StepAssignment& assignment) {
  for (const ReplicaAssignment& replica : assignment.replicas) {
    for (const Slot& slot : replica.modules.back()) {
      if (std::any_of(
              slot.begin(), slot.end(), [](const WorkItem& item) { return item.is_chunk(); })) {
        return true;
      }
    }
  }
  return false;
}

std::map<std::string, std::string> factors_of(const StepConfiguration& configuration) {
  const Plan& plan = configuration.plan;
  const ModelSpec& model = configuration.model;
  return {{"pipeline", std::to_string(plan.modules.back().stages.size())},
          {"tensor",
           concat(plan.modules.front().tensor_parallel, "/", plan.modules.back().tensor_parallel)},
          {"replicas", std::to_string(plan.replicas)},
          {"encoders", std::to_string(model.encoders.size())},
          {"frozen", frozen_of(model)},
          {"recomputed", yes_or_no(recomputes(plan))},
          {"sharded", yes_or_no(plan.shard_optimizer)},
          {"tied", yes_or_no(model.llm.tie_word_embeddings)},
          {"schedule", configuration.schedule},
          {"policy", name_of(configuration.policy)}};
}

std::vector<StepFactor> all_step_factors() {
  std::set<std::string> frozen;
  for (const FrozenPattern pattern : kFrozenPatterns) {
    ModelSpec model;
    model.encoders.resize(1);
    freeze(pattern, model);
    frozen.insert(frozen_of(model));
  }
  std::vector<std::string> policies;
  for (const StepPolicy policy :
       {StepPolicy::kSequential, StepPolicy::kEntrain, StepPolicy::kEntrainChunks}) {
    policies.emplace_back(name_of(policy));
  }
  std::vector<std::string> schedules = schedule_names();
  std::erase_if(schedules, [](const std::string& schedule) { return !runs_any_plan(schedule); });
  return {{"pipeline", {"1", "2", "3", "4"}},
          {"tensor", {"1/1", "1/2", "2/1", "2/2"}},
          {"replicas", {"1", "2", "3"}},
          {"encoders", {"1", "2"}},
          {"frozen", {frozen.begin(), frozen.end()}},
          {"recomputed", {"no", "yes"}},
          {"sharded", {"no", "yes"}},
          {"tied", {"no", "yes"}},
          {"schedule", schedules},
          {"policy", policies}};
}

void StepCoverage::add(const StepConfiguration& configuration) {
  Counts& counts = counts_[configuration.schedule];
  const Program& program = configuration.program;
  const bool shared = std::any_of(program.lanes.begin(),
                                  program.lanes.end(),
                                  [](const auto& stages) { return stages.size() > 1; });
  ++counts.all;
  counts.split += splits(program) ? 1 : 0;
  counts.shared += shared ? 1 : 0;
  counts.recomputed += recomputes(configuration.plan) ? 1 : 0;
  counts.sharded += configuration.plan.shard_optimizer ? 1 : 0;
  counts.cut += has_chunks(configuration.assignment) ? 1 : 0;
  const std::map<std::string, std::string> values = factors_of(configuration);
  for (auto first = values.begin(); first != values.end(); ++first) {
    for (auto second = std::next(first); second != values.end(); ++second) {
      pairs_.emplace(value_of(first->first, first->second),
                     value_of(second->first, second->second));
    }
  }
}

int StepCoverage::expect_schedules(int recomputed_at_least) const {
  int all = 0;
  for (const std::string& schedule : schedule_names()) {
    const auto found = counts_.find(schedule);
    if (found == counts_.end()) {
      ADD_FAILURE() << schedule << " never ran";
      continue;
    }
    const Counts& counts = found->second;
    std::printf(
        "%-13s %4d steps: %4d split backwards, %4d shared lanes, %4d recomputed, %4d sharded, "
        "%4d cut samples\n",
        schedule.c_str(),
        counts.all,
        counts.split,
        counts.shared,
        counts.recomputed,
        counts.sharded,
        counts.cut);
    EXPECT_EQ(counts.split > counts.all / 4, splits_backward(schedule)) << schedule;
    EXPECT_GT(counts.shared, 0) << schedule;
    // Steps of layouts that the schedule cannot run ran under `1f1b`.
    const int least = runs_any_plan(schedule) ? recomputed_at_least : 1;
    EXPECT_GE(counts.recomputed, least) << schedule;
    EXPECT_GE(counts.sharded, least / 5) << schedule;
    all += counts.all;
  }
  return all;
}

void StepCoverage::expect_pairs(const std::vector<StepFactor>& factors) const {
  int expected = 0;
  for (const StepFactor& first : factors) {
    for (const StepFactor& second : factors) {
      if (first.name >= second.name) {
        continue;
      }
      for (const std::string& value : first.values) {
        for (const std::string& other : second.values) {
          const std::pair pair(value_of(first.name, value), value_of(second.name, other));
          if (pair == std::pair<std::string, std::string>("replicas 1", "sharded yes")) {
            continue;
          }
          ++expected;
          EXPECT_TRUE(pairs_.contains(pair)) << pair.first << " never ran with " << pair.second;
        }
      }
    }
  }
  std::printf("%d pairs of values of %zu factors, all covered unless said above\n",
              expected,
              factors.size());
}

}  // namespace entrain::oracle
