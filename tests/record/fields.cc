#include "tests/record/fields.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <exception>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/assigner/lower_bound.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain::record {
namespace {

std::string refusal(std::string_view type, const std::exception& error) {
  std::string numbers;
  bool in_number = false;
  for (const char c : std::string_view(error.what())) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit) {
      numbers += in_number || numbers.empty() ? "" : ",";
      numbers += c;
    }
    in_number = digit;
  }
  return concat(type, ":", numbers);
}

std::string text_of(const StageRef& stage) {
  return concat(" ", stage.module, ".", stage.stage);
}

std::string text_of(const ReplicaProgram& replica, const Operation& operation) {
  const UnitKey& unit = operation.unit;
  std::string text = concat(name_of(operation.kind),
                            text_of(StageRef{unit.module, unit.stage}),
                            " ",
                            unit.slot,
                            ".",
                            unit.group);
  if (operation.channel >= 0) {
    const Channel& channel = replica.channels[static_cast<std::size_t>(operation.channel)];
    text += concat(" ", channel.source_lane, ">", channel.target_lane, " ", channel.gradient);
    text += text_of(channel.producer) + text_of(channel.consumer);
  }
  if (operation.kind == OperationKind::kForward) {
    for (const WorkItem& item : group_of(replica, unit).items) {
      text += concat(
          " ", item.sample, ".", item.segment, "[", item.token_begin, ",", item.token_end, ")");
    }
  }
  return text + "\n";
}

// "yes", or the numbers of what the validator says.
std::string validity(const Program& program,
                     const Plan& plan,
                     const StepCosts& costs,
                     const StepAssignment& assignment) {
  try {
    validate_program(program, plan, assignment, costs);
    return "yes";
  } catch (const InvalidInput& error) {
    return refusal("no", error);
  }
}

}  // namespace

std::string or_refusal(const std::function<std::string()>& run) {
  try {
    return run();
  } catch (const NothingFits& error) {
    return "refused=" + refusal("NothingFits", error);
  } catch (const InvalidInput& error) {
    return "refused=" + refusal("InvalidInput", error);
  }
}

std::string short_digest(std::string_view text, std::size_t digits) {
  return digest_of(text).substr(0, digits);
}

std::string orders_of(const Program& program) {
  constexpr std::size_t kDigits = 6;
  std::string result;
  for (const ReplicaProgram& replica : program.replicas) {
    result += result.empty() ? "" : "/";
    for (std::size_t lane = 0; lane < replica.lanes.size(); ++lane) {
      std::string text;
      for (const Operation& operation : replica.lanes[lane]) {
        text += text_of(replica, operation);
      }
      result += concat(lane > 0 ? "," : "", short_digest(text, kDigits));
    }
  }
  return result;
}

std::string times_of(const Program& program,
                     const StepCosts& costs,
                     const SimulateOptions& options) {
  SimulateOptions with_events = options;
  with_events.events = true;
  const Timeline timeline = simulate(program, costs, with_events);
  std::string events;
  for (const TimelineEvent& event : timeline.events) {
    events += concat(event.replica, " ", event.lane, " ", event.operation, " ");
    events += concat(static_cast<int>(event.category), " ", event.start.count(), " ");
    events += concat(event.finish.count(), "\n");
  }
  std::string peaks;
  for (const std::vector<LaneUsage>& lanes : timeline.lanes) {
    peaks += peaks.empty() ? "" : "/";
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      peaks += concat(lane > 0 ? "," : "", lanes[lane].peak_bytes);
      events += concat(lanes[lane].busy.count(), " ", lanes[lane].finish.count(), "\n");
    }
  }
  return concat("makespan_ns=",
                timeline.makespan.count(),
                " events=",
                short_digest(events),
                " peak_bytes=",
                peaks);
}

std::string fields_of_step(const Plan& plan,
                           const StepCosts& costs,
                           const StepAssignment& assignment,
                           std::string_view schedule) {
  const std::string program = or_refusal([&] {
    const Program built = build_program(plan, assignment, costs, schedule);
    return concat("orders=",
                  orders_of(built),
                  " valid=",
                  validity(built, plan, costs, assignment),
                  " ",
                  times_of(built, costs));
  });
  return concat("assignment=",
                digest(assignment).substr(0, 12),
                " ",
                program,
                " bound_ns=",
                step_lower_bound(plan, costs, schedule).count());
}

std::string fields_of_policy(const std::string& policy, const Plan& plan, const StepCosts& costs) {
  AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  request.seed = 5;
  return fields_of_step(plan, costs, assign(policy, request), plan.schedule);
}

void limit_memory(int eighths, const StepCosts& costs, Plan& plan) {
  AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  const Program program = build_program(plan, assign("lpt-2d", request), costs, "1f1b");
  const Timeline timeline = simulate(program, costs);
  plan.limits.lane_bytes.assign(plan.lanes.size(), 1);
  for (const std::vector<LaneUsage>& lanes : timeline.lanes) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      std::int64_t& limit = plan.limits.lane_bytes[lane];
      limit = std::max(limit, lanes[lane].peak_bytes * eighths / 8);
    }
  }
}

}  // namespace entrain::record
