#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/schedule/validate.h"

namespace entrain::validation {
namespace {

bool is_step_wide(OperationKind kind) {
  switch (kind) {
    case OperationKind::kReduceGradients:
    case OperationKind::kClipNorm:
    case OperationKind::kOptimizerStep:
    case OperationKind::kGatherParameters:
    case OperationKind::kSyncTied:
      return true;
    default:
      return false;
  }
}

std::vector<OperationKind> expected_end(const Subject& subject, int lane) {
  const auto& stages = subject.plan.lanes[at(lane)];
  const bool trainable = std::any_of(stages.begin(), stages.end(), [&](const StageRef& ref) {
    return subject.costs.modules[at(ref.module)].stages[at(ref.stage)].trainable;
  });
  std::vector<OperationKind> kinds;
  if (subject.plan.replicas > 1 && trainable) {
    kinds.push_back(OperationKind::kReduceGradients);
  }
  kinds.push_back(OperationKind::kClipNorm);
  kinds.push_back(OperationKind::kOptimizerStep);
  if (subject.plan.shard_optimizer && subject.plan.replicas > 1 && trainable) {
    kinds.push_back(OperationKind::kGatherParameters);
  }
  return kinds;
}

void check_end(const Subject& subject, int replica, int lane) {
  const std::vector<Operation>& operations = subject.program.replicas[at(replica)].lanes[at(lane)];
  const std::vector<OperationKind> expected = expected_end(subject, lane);
  const auto size = static_cast<int>(operations.size());
  const int first = size - static_cast<int>(expected.size());
  for (int i = 0; i < size; ++i) {
    const Operation& operation = operations[at(i)];
    const Place place{lane, i};
    if (i < first) {
      if (is_step_wide(operation.kind)) {
        throw InvalidInput(where(subject, replica, place) +
                           ": step-wide operations stand once, at the lane's end");
      }
    } else if (first < 0 || operation != Operation{expected[at(i - first)], {}, -1}) {
      throw InvalidInput(fmt::format("{}: the lane must end with {} here",
                                     where(subject, replica, place),
                                     name_of(expected[at(std::max(0, i - first))])));
    }
  }
  if (size == 0 || first < 0) {
    throw InvalidInput(
        fmt::format("replica {} lane {}: the step-wide operations are missing", replica, lane));
  }
}

const Group* find_group(const ReplicaProgram& replica, const UnitKey& unit) {
  const auto holds = [](const auto& list, int index) {
    return index >= 0 && at(index) < list.size();
  };
  if (!holds(replica.groups, unit.module) || !holds(replica.groups[at(unit.module)], unit.slot) ||
      !holds(replica.groups[at(unit.module)][at(unit.slot)], unit.group)) {
    return nullptr;
  }
  return &replica.groups[at(unit.module)][at(unit.slot)][at(unit.group)];
}

// Checks that the unit exists; for compute operations also that its stage runs on this lane.
void check_unit(const Subject& subject, int replica, Place place, const Operation& operation) {
  const UnitKey& unit = operation.unit;
  const Group* group = find_group(subject.program.replicas[at(replica)], unit);
  if (group == nullptr || unit.stage < 0 ||
      unit.stage >= subject.program.num_stages[at(unit.module)]) {
    throw InvalidInput(fmt::format(
        "replica {} lane {} operation {}: {} of an unknown unit (module {}, stage {}, slot {}, "
        "group {})",
        replica,
        place.lane,
        place.position,
        name_of(operation.kind),
        unit.module,
        unit.stage,
        unit.slot,
        unit.group));
  }
  if (operation.kind == OperationKind::kSend || operation.kind == OperationKind::kReceive) {
    return;
  }
  if (operation.channel != -1) {
    throw InvalidInput(where(subject, replica, place) + ": a compute operation with a channel");
  }
  const auto& stages = subject.plan.lanes[at(place.lane)];
  if (std::find(stages.begin(), stages.end(), StageRef{unit.module, unit.stage}) == stages.end()) {
    throw InvalidInput(fmt::format("{}: this stage runs on lane {}",
                                   where(subject, replica, place),
                                   subject.plan.lane_of(unit.module, unit.stage)));
  }
  if (operation.kind != OperationKind::kForward && group->takes_backward[at(unit.stage)] == 0) {
    throw InvalidInput(where(subject, replica, place) +
                       ": nothing at this stage or nearer the input takes gradients");
  }
}

Place& place_of(UnitPlaces& places, OperationKind kind) {
  switch (kind) {
    case OperationKind::kForward:
      return places.forward;
    case OperationKind::kBackward:
      return places.backward;
    case OperationKind::kBackwardInput:
      return places.backward_input;
    default:
      return places.backward_weight;
  }
}

PlacesOfUnits find_places(const Subject& subject, int replica) {
  PlacesOfUnits result;
  const ReplicaProgram& program = subject.program.replicas[at(replica)];
  for (int lane = 0; lane < subject.program.num_lanes(); ++lane) {
    const std::vector<Operation>& operations = program.lanes[at(lane)];
    for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
      const Operation& operation = operations[at(i)];
      if (is_step_wide(operation.kind)) {
        continue;
      }
      check_unit(subject, replica, {lane, i}, operation);
      if (operation.kind == OperationKind::kSend || operation.kind == OperationKind::kReceive) {
        continue;
      }
      Place& place = place_of(result[operation.unit], operation.kind);
      if (place.exists()) {
        throw InvalidInput(fmt::format("{}: it ran already as operation {}",
                                       where(subject, replica, {lane, i}),
                                       place.position));
      }
      place = {lane, i};
    }
  }
  return result;
}

void check_unit_places(const Subject& subject,
                       int replica,
                       const UnitKey& unit,
                       bool takes_backward,
                       const UnitPlaces& places) {
  const auto fail = [&](const std::string& what) {
    throw InvalidInput(fmt::format("replica {} lane {}: {} of {} stage {} slot {} group {}",
                                   replica,
                                   subject.plan.lane_of(unit.module, unit.stage),
                                   what,
                                   subject.plan.modules[at(unit.module)].name,
                                   unit.stage,
                                   unit.slot,
                                   unit.group));
  };
  if (!places.forward.exists()) {
    fail("no forward");
  }
  if (!takes_backward) {
    return;  // check_unit refused any backward
  }
  const bool input = places.backward_input.exists();
  const bool weight = places.backward_weight.exists();
  if (places.backward.exists() && (input || weight)) {
    fail("a whole backward beside a half");
  }
  if (!places.backward.exists() && !input) {
    fail("no backward");
  }
  if (input && !weight) {
    fail("no weight half of the backward");
  }
  if (places.gradient().position < places.forward.position) {
    throw InvalidInput(where(subject, replica, places.gradient()) +
                       ": backward stands before its forward");
  }
  if (input && places.backward_weight.position < places.backward_input.position) {
    throw InvalidInput(where(subject, replica, places.backward_weight) +
                       ": the weight half stands before the input half");
  }
}

// Linked groups are on one lane, so positions decide.
void check_links(const Subject& subject,
                 int replica,
                 const UnitKey& unit,
                 const Group& group,
                 const PlacesOfUnits& places) {
  const UnitPlaces& own = places.at(unit);
  for (const LlmGroupRef& ref : group.later) {
    const UnitPlaces& later = places.at({unit.module, unit.stage, ref.slot, ref.group});
    if (later.forward.position < own.forward.position) {
      throw InvalidInput(
          fmt::format("{}: stands before the forward of the chunks before its own, {}",
                      where(subject, replica, later.forward),
                      where(subject, replica, own.forward)));
    }
    if (own.gradient().exists() && own.gradient().position < later.gradient().position) {
      throw InvalidInput(
          fmt::format("{}: stands before the backward of the chunks after its own, {}",
                      where(subject, replica, own.gradient()),
                      where(subject, replica, later.gradient())));
    }
  }
}

// Calls visit(unit, group) for every unit of a replica.
template <class Visit>
void for_each_unit(const Subject& subject, int replica, const Visit& visit) {
  const auto& modules = subject.program.replicas[at(replica)].groups;
  for (std::size_t module = 0; module < modules.size(); ++module) {
    for (std::size_t slot = 0; slot < modules[module].size(); ++slot) {
      for (std::size_t group = 0; group < modules[module][slot].size(); ++group) {
        for (int stage = 0; stage < subject.program.num_stages[module]; ++stage) {
          visit(
              UnitKey{
                  static_cast<int>(module), stage, static_cast<int>(slot), static_cast<int>(group)},
              modules[module][slot][group]);
        }
      }
    }
  }
}

}  // namespace

std::string where(const Subject& subject, int replica, Place place) {
  const Operation& operation =
      subject.program.replicas[at(replica)].lanes[at(place.lane)][at(place.position)];
  return fmt::format("replica {} lane {} operation {} ({})",
                     replica,
                     place.lane,
                     place.position,
                     to_string(subject.program, operation));
}

PlacesOfUnits check_operations(const Subject& subject, int replica) {
  for (int lane = 0; lane < subject.program.num_lanes(); ++lane) {
    check_end(subject, replica, lane);
  }
  PlacesOfUnits places = find_places(subject, replica);
  for_each_unit(subject, replica, [&](const UnitKey& unit, const Group& group) {
    check_unit_places(
        subject, replica, unit, group.takes_backward[at(unit.stage)] != 0, places[unit]);
  });
  for_each_unit(subject, replica, [&](const UnitKey& unit, const Group& group) {
    check_links(subject, replica, unit, group, places);
  });
  return places;
}

}  // namespace entrain::validation
