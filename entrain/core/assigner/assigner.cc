#include "entrain/core/assigner/assigner.h"

#include <array>
#include <chrono>

#include <fmt/format.h>

#include "entrain/core/assigner/entrain.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/baselines/policies.h"
#include "entrain/core/graph/placement.h"

namespace entrain {
namespace {

struct RegisteredPolicy {
  std::string_view name;
  Policy policy;
};

constexpr std::array kPolicies = {
    RegisteredPolicy{"sequential", sequential_policy},
    RegisteredPolicy{"random", random_policy},
    RegisteredPolicy{"packed", packed_policy},
    RegisteredPolicy{"encoder-lpt", encoder_lpt_policy},
    RegisteredPolicy{"llm-lpt", llm_lpt_policy},
    RegisteredPolicy{"lpt-2d", lpt_2d_policy},
    RegisteredPolicy{"disttrain", disttrain_policy},
    RegisteredPolicy{"dflop", dflop_policy},
    RegisteredPolicy{"orchmllm", orchmllm_policy},
    RegisteredPolicy{"entrain-paper", entrain_paper_policy},
    RegisteredPolicy{"entrain", entrain_policy},
};

Policy find_policy(std::string_view name) {
  for (const RegisteredPolicy& policy : kPolicies) {
    if (policy.name == name) {
      return policy.policy;
    }
  }
  throw InvalidInput(fmt::format("unknown policy '{}'{}", name, suggestion(name, policy_names())));
}

void check(const AssignRequest& request) {
  ENTRAIN_INVARIANT(request.plan != nullptr && request.costs != nullptr,
                    "an assignment needs a plan and costs");
  if (request.costs->modules.size() != request.plan->modules.size()) {
    throw InvalidInput(fmt::format("assign: costs of {} modules under a plan of {}",
                                   request.costs->modules.size(),
                                   request.plan->modules.size()));
  }
  if (request.costs->num_samples < request.plan->replicas) {
    throw InvalidInput(fmt::format("assign: a global batch of {} for {}, each needs at least one",
                                   counted(request.costs->num_samples, "sample"),
                                   counted(request.plan->replicas, "replica")));
  }
}

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const RegisteredPolicy& policy : kPolicies) {
    names.emplace_back(policy.name);
  }
  return names;
}

StepAssignment assign(std::string_view policy, const AssignRequest& request) {
  const auto started = std::chrono::steady_clock::now();
  const Policy place = find_policy(policy);
  check(request);
  StepAssignment result = to_assignment(*request.costs, place(request));
  result.policy = policy;
  result.step = request.step;
  result.seed = request.seed;
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - started;
  result.stats.assign_ms = elapsed.count();
  return result;
}

}  // namespace entrain
