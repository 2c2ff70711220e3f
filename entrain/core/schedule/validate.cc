#include "entrain/core/schedule/validate.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) {
    throw InvalidInput(message);
  }
}

// Counts and stages agree, so that the checks may index by them.
void check_outline(const validation::Subject& subject) {
  const Program& program = subject.program;
  const Plan& plan = subject.plan;
  require(program.lanes == plan.lanes, "the program's lanes are not those of the plan");
  require(program.num_stages.size() == plan.modules.size() &&
              subject.costs.modules.size() == plan.modules.size(),
          fmt::format("a program of {} modules, a plan of {}, costs of {}",
                      program.num_stages.size(),
                      plan.modules.size(),
                      subject.costs.modules.size()));
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    require(
        static_cast<std::size_t>(program.num_stages[module]) == plan.modules[module].stages.size(),
        fmt::format("the program has {} stages of {}, the plan {}",
                    program.num_stages[module],
                    plan.modules[module].name,
                    plan.modules[module].stages.size()));
  }
  const auto replicas = static_cast<std::size_t>(plan.replicas);
  require(program.replicas.size() == replicas && subject.assignment.replicas.size() == replicas,
          fmt::format("a program of {} replicas, an assignment of {}, a plan of {}",
                      program.replicas.size(),
                      subject.assignment.replicas.size(),
                      plan.replicas));
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    require(program.replicas[replica].lanes.size() == plan.lanes.size(),
            fmt::format("replica {}: operations for {} lanes, the plan has {}",
                        replica,
                        program.replicas[replica].lanes.size(),
                        plan.lanes.size()));
    require(program.replicas[replica].channels == program.replicas[0].channels,
            fmt::format("replica {}: its channels differ from those of replica 0", replica));
  }
}

}  // namespace

void validate_program(const Program& program,
                      const Plan& plan,
                      const StepAssignment& assignment,
                      const StepCosts& costs) {
  const validation::Subject subject{program, plan, assignment, costs};
  check_outline(subject);
  for (int replica = 0; replica < plan.replicas; ++replica) {
    validation::check_groups(subject, replica);
    const validation::PlacesOfUnits places = validation::check_operations(subject, replica);
    const validation::PassagesOfChannels passages =
        validation::check_messages(subject, replica, places);
    validation::check_acyclic(subject, replica, places, passages);
  }
  bool has_limits = false;
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    has_limits = has_limits || plan.limits.bytes_of(lane) > 0;
  }
  if (has_limits) {
    const StepGraph graph = step_graph(program, costs);
    for (int replica = 0; replica < plan.replicas; ++replica) {
      validation::check_memory(subject, graph, replica);
    }
  }
}

}  // namespace entrain
