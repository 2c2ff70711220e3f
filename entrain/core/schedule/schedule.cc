#include "entrain/core/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/graph/groups.h"
#include "entrain/core/schedule/communication.h"
#include "entrain/core/schedule/order.h"

namespace entrain {
namespace {

struct RegisteredSchedule {
  std::string_view name;
  ListSchedule list;  // how the list scheduler makes its order
  std::string (*objection)(const Plan& plan) = nullptr;
};

const std::vector<RegisteredSchedule>& schedules() {
  static const std::vector<RegisteredSchedule> kSchedules = {
      {"gpipe", {RuleChoice::kOnly, {kGpipeRule}}},
      {"1f1b", {RuleChoice::kOnly, {kOneFOneBRule}}},
      {"1f1b-eager", {RuleChoice::kFirstThatFits, eager_rules()}},
      {"zb-h1", {RuleChoice::kOnly, {kZbH1Rule}}},
      {"zb-h2", {RuleChoice::kOnly, {kZbH2Rule}}},
      {"interleaved", {RuleChoice::kOnly, {kInterleavedRule}}, interleaved_objection},
      {"dip", {RuleChoice::kOnly, {kDipRule}}, dip_objection},
      {"entrain", {RuleChoice::kFastest, entrain_rules()}},
      {"entrain-fused", {RuleChoice::kFastest, entrain_fused_rules()}},
  };
  return kSchedules;
}

const RegisteredSchedule& find_schedule(std::string_view name) {
  for (const RegisteredSchedule& schedule : schedules()) {
    if (schedule.name == name) {
      return schedule;
    }
  }
  const std::vector<std::string> names = schedule_names();
  throw InvalidInput(fmt::format("unknown schedule '{}'{}", name, suggestion(name, names)));
}

bool splits(const ListSchedule& list) {
  return std::any_of(list.rules.begin(), list.rules.end(), [](const ListRule& rule) {
    return rule.weight != WeightHalf::kWhole;
  });
}

std::vector<int> stages_of(const Plan& plan) {
  std::vector<int> result;
  for (const ModulePlan& module : plan.modules) {
    result.push_back(static_cast<int>(module.stages.size()));
  }
  return result;
}

// The caller's Requires, as far as it is cheap: what array indices rely on.
void check_shapes(const Plan& plan, const StepAssignment& assignment, const StepCosts& costs) {
  ENTRAIN_INVARIANT(
      costs.modules.size() == plan.modules.size(),
      fmt::format(
          "costs of {} modules under a plan of {}", costs.modules.size(), plan.modules.size()));
  ENTRAIN_INVARIANT(assignment.replicas.size() == static_cast<std::size_t>(plan.replicas),
                    fmt::format("an assignment of {} replicas under a plan of {}",
                                assignment.replicas.size(),
                                plan.replicas));
  for (const ReplicaAssignment& replica : assignment.replicas) {
    ENTRAIN_INVARIANT(replica.modules.size() == plan.modules.size(),
                      "an assignment with another number of modules than its plan");
    for (const ModuleSlots& slots : replica.modules) {
      ENTRAIN_INVARIANT(slots.size() == static_cast<std::size_t>(replica.num_slots),
                        "modules of one replica with different numbers of slots");
    }
  }
}

std::vector<Operation> step_end(const std::vector<StageRef>& lane,
                                const Plan& plan,
                                const StepCosts& costs) {
  bool trainable = false;
  for (const StageRef& ref : lane) {
    trainable = trainable || costs.modules[static_cast<std::size_t>(ref.module)]
                                 .stages[static_cast<std::size_t>(ref.stage)]
                                 .trainable;
  }
  std::vector<Operation> result;
  if (plan.replicas > 1 && trainable) {
    result.push_back({OperationKind::kReduceGradients, {}, -1});
  }
  result.push_back({OperationKind::kClipNorm, {}, -1});
  result.push_back({OperationKind::kOptimizerStep, {}, -1});
  if (plan.shard_optimizer && plan.replicas > 1 && trainable) {
    result.push_back({OperationKind::kGatherParameters, {}, -1});
  }
  return result;
}

// Assembles the program; `order` gives the compute order of every lane of a replica.
template <class Order>
BuiltStep assemble(const Plan& plan,
                   const StepAssignment& assignment,
                   const StepCosts& costs,
                   std::string_view name,
                   const Order& order) {
  check_shapes(plan, assignment, costs);
  BuiltStep built;
  built.graph.stages = stage_graph(plan, costs.link);
  built.graph.stages.set_halves(costs);
  Program& program = built.program;
  program.schedule = name;
  program.lanes = plan.lanes;
  program.num_stages = stages_of(plan);
  for (const ModulePlan& module : plan.modules) {
    program.module_names.push_back(module.name);
  }
  const ChannelTable channels = channel_table(built.graph.stages);
  std::vector<std::vector<Operation>> ends;
  for (const std::vector<StageRef>& lane : plan.lanes) {
    ends.push_back(step_end(lane, plan, costs));
  }
  program.replicas.reserve(assignment.replicas.size());
  built.graph.replicas.reserve(assignment.replicas.size());
  for (std::size_t r = 0; r < assignment.replicas.size(); ++r) {
    ReplicaProgram& replica = program.replicas.emplace_back();
    replica.groups = build_groups(assignment.replicas[r], costs);
    replica.channels = channels.channels;
    const ReplicaGraph& graph =
        built.graph.replicas.emplace_back(replica_graph(built.graph.stages, costs, replica.groups));
    const OrderInputs inputs{plan, costs, built.graph.stages, graph};
    replica.lanes = add_communication(inputs, channels, order(inputs, r));
    for (std::size_t lane = 0; lane < ends.size(); ++lane) {
      replica.lanes[lane].insert(replica.lanes[lane].end(), ends[lane].begin(), ends[lane].end());
    }
  }
  return built;
}

bool is_compute(OperationKind kind) {
  return kind == OperationKind::kForward || kind == OperationKind::kBackward ||
         kind == OperationKind::kBackwardInput || kind == OperationKind::kBackwardWeight;
}

// What placing sends and receives relies on; the rest is for validate_program().
void check_orders(const OrderInputs& inputs, const LaneOrders& orders, std::size_t replica) {
  if (orders.size() != inputs.plan.lanes.size()) {
    throw InvalidInput(fmt::format("replica {}: orders for {} lanes, the plan has {}",
                                   replica,
                                   orders.size(),
                                   inputs.plan.lanes.size()));
  }
  for (std::size_t lane = 0; lane < orders.size(); ++lane) {
    for (std::size_t i = 0; i < orders[lane].size(); ++i) {
      const auto& [kind, unit, channel] = orders[lane][i];
      if (!is_compute(kind) || channel != -1 || !inputs.graph.has(inputs.stages, unit)) {
        throw InvalidInput(fmt::format(
            "replica {} lane {} operation {}: no {} of module {}, stage {}, slot {}, group {} in "
            "this step",
            replica,
            lane,
            i,
            name_of(kind),
            unit.module,
            unit.stage,
            unit.slot,
            unit.group));
      }
    }
  }
}

}  // namespace

std::string dip_objection(const Plan& plan) {
  const bool colocated =
      plan.modules.size() > 1 &&
      std::all_of(plan.lanes.begin(), plan.lanes.end(), [&](const std::vector<StageRef>& lane) {
        std::vector<int> of_module(plan.modules.size(), 0);
        for (const StageRef& ref : lane) {
          ++of_module[static_cast<std::size_t>(ref.module)];
        }
        return std::count(of_module.begin(), of_module.end(), 1) ==
               static_cast<std::ptrdiff_t>(of_module.size());
      });
  return colocated ? ""
                   : "it needs lanes that host one stage of every module each, an encoder's among "
                     "them (entrain plan --layout shared makes such plans)";
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const RegisteredSchedule& schedule : schedules()) {
    names.emplace_back(schedule.name);
  }
  return names;
}

bool splits_backward(std::string_view schedule) {
  return splits(find_schedule(schedule).list);
}

ListSchedule list_schedule(std::string_view schedule, const Plan& plan) {
  ListSchedule list = find_schedule(schedule).list;
  if (list.choice != RuleChoice::kFastest) {
    return list;
  }
  const bool any_weight = splits(list);
  for (const RegisteredSchedule& other : schedules()) {
    if (other.objection != nullptr && !other.objection(plan).empty()) {
      continue;
    }
    for (const ListRule& rule : other.list.rules) {
      if (any_weight || rule.weight == WeightHalf::kWhole) {
        list.rules.push_back(rule);
      }
    }
  }
  return list;
}

std::string schedule_objection(std::string_view schedule, const Plan& plan) {
  const RegisteredSchedule& of = find_schedule(schedule);
  return of.objection == nullptr ? "" : of.objection(plan);
}

BuiltStep build_step(const Plan& plan,
                     const StepAssignment& assignment,
                     const StepCosts& costs,
                     std::string_view schedule) {
  if (const std::string objection = schedule_objection(schedule, plan); !objection.empty()) {
    throw InvalidInput(fmt::format("schedule '{}' cannot run this plan: {}", schedule, objection));
  }
  const ListSchedule list = list_schedule(schedule, plan);
  const auto order = [&](const OrderInputs& inputs, std::size_t /*replica*/) {
    return list_order(inputs, list);
  };
  return assemble(plan, assignment, costs, schedule, order);
}

Program build_program(const Plan& plan,
                      const StepAssignment& assignment,
                      const StepCosts& costs,
                      std::string_view schedule) {
  return build_step(plan, assignment, costs, schedule).program;
}

Program build_program_from_orders(const Plan& plan,
                                  const StepAssignment& assignment,
                                  const StepCosts& costs,
                                  const std::vector<std::vector<std::vector<Operation>>>& orders,
                                  std::string_view name) {
  if (orders.size() != assignment.replicas.size()) {
    throw InvalidInput(fmt::format("orders for {} replicas; the assignment has {}",
                                   orders.size(),
                                   assignment.replicas.size()));
  }
  Program program =
      assemble(plan, assignment, costs, name, [&](const OrderInputs& inputs, std::size_t replica) {
        check_orders(inputs, orders[replica], replica);
        return orders[replica];
      }).program;
  validate_program(program, plan, assignment, costs);
  return program;
}

}  // namespace entrain
