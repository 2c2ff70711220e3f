#include "tests/oracle/hand_cases.h"

#include <chrono>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain::oracle {
namespace {

using std::chrono::nanoseconds;

ModuleCosts module_costs(const std::vector<int>& units_of_samples, int num_stages) {
  ModuleCosts result;
  result.first_unit.push_back(0);
  for (const int units : units_of_samples) {
    result.first_unit.push_back(result.first_unit.back() + units);
  }
  const UnitCost unit{{nanoseconds{10}, nanoseconds{10}, nanoseconds{10}}, 100, 10};
  result.tokens.assign(at(result.first_unit.back()), 4);
  result.stages.resize(at(num_stages));
  for (StageCosts& stage : result.stages) {
    stage.trainable = true;
    stage.trainable_parameters = 1;
    stage.parameter_bytes = 4;
    stage.units.own().assign(at(result.first_unit.back()), unit);
  }
  return result;
}

constexpr std::int64_t kTokens = 12;

SampleWork work_of(const HandSample& sample, int encoders) {
  SampleWork result;
  result.llm_tokens = kTokens;
  result.llm_attention_pairs = kTokens * kTokens / 2;
  result.target_tokens = 4;
  for (int encoder = 0; encoder < encoders; ++encoder) {
    result.segments.emplace_back(sample.encoder_slots[at(encoder)].size(),
                                 SegmentWork{.tokens = 8, .attention_pairs = 64, .llm_tokens = 2});
  }
  return result;
}

std::string unit_text(const Program& program, int replica, int lane, const Operation& operation) {
  const UnitKey& unit = operation.unit;
  std::string text;
  switch (operation.kind) {
    case OperationKind::kBackward:
      text = "B";
      break;
    case OperationKind::kBackwardInput:
      text = "I";
      break;
    case OperationKind::kBackwardWeight:
      text = "W";
      break;
    case OperationKind::kSend:
    case OperationKind::kReceive: {
      const bool gradient = program.replicas[at(replica)].channels[at(operation.channel)].gradient;
      text =
          std::string(operation.kind == OperationKind::kSend ? ">" : "<") + (gradient ? "B" : "F");
      break;
    }
    default:
      text = "F";
  }
  text += std::to_string(unit.slot);
  if (program.replicas[at(replica)].groups[at(unit.module)][at(unit.slot)].size() > 1) {
    text += "." + std::to_string(unit.group);
  }
  if (program.lanes[at(lane)].size() > 1) {
    text = program.module_names[at(unit.module)] + std::to_string(unit.stage) + ":" + text;
  }
  return text;
}

enum class Shown : std::uint8_t { kCompute, kAll };

std::string text_of(const Program& program, int replica, int lane, Shown shown) {
  std::string text;
  for (const Operation& operation : program.replicas[at(replica)].lanes[at(lane)]) {
    const bool message =
        operation.kind == OperationKind::kSend || operation.kind == OperationKind::kReceive;
    const bool step_wide = operation.unit.module < 0;
    if (shown == Shown::kCompute && (message || step_wide)) {
      continue;
    }
    text += text.empty() ? "" : " ";
    if (!step_wide) {
      text += unit_text(program, replica, lane, operation);
    } else if (operation.kind == OperationKind::kReduceGradients) {
      text += "reduce";
    } else if (operation.kind == OperationKind::kGatherParameters) {
      text += "gather";
    } else {
      text += operation.kind == OperationKind::kClipNorm ? "clip" : "step";
    }
  }
  return text;
}

}  // namespace

HandCase make_hand_case(const std::vector<int>& num_stages,
                        int num_slots,
                        const std::vector<HandSample>& samples) {
  const std::vector<std::string> names = {"vision", "audio", "video"};
  const auto num_modules = static_cast<int>(num_stages.size());
  const int llm = num_modules - 1;
  ENTRAIN_INVARIANT(llm <= static_cast<int>(names.size()), "at most three encoders");
  HandCase result;
  result.costs.num_samples = static_cast<int>(samples.size());
  for (const HandSample& sample : samples) {
    result.costs.work.own().push_back(work_of(sample, llm));
  }
  result.plan.num_slots = num_slots;
  ReplicaAssignment& replica = result.assignment.replicas.emplace_back();
  replica.num_slots = num_slots;
  replica.modules.assign(at(num_modules), ModuleSlots(at(num_slots)));
  for (int module = 0; module < num_modules; ++module) {
    ModulePlan& plan = result.plan.modules.emplace_back();
    plan.name = module == llm ? "llm" : names[at(module)];
    for (int stage = 0; stage < num_stages[at(module)]; ++stage) {
      plan.stages.push_back({stage, stage + 1});
      result.plan.lanes.push_back({{module, stage}});
    }
    std::vector<int> units;
    for (int i = 0; i < result.costs.num_samples; ++i) {
      const HandSample& sample = samples[at(i)];
      if (module == llm) {
        units.push_back(1);
        replica.modules[at(llm)][at(sample.llm_slot)].push_back({.sample = i});
        continue;
      }
      const std::vector<int>& slots = sample.encoder_slots[at(module)];
      units.push_back(static_cast<int>(slots.size()));
      for (std::size_t segment = 0; segment < slots.size(); ++segment) {
        replica.modules[at(module)][at(slots[segment])].push_back(
            {.sample = i, .segment = static_cast<int>(segment)});
      }
    }
    result.costs.modules.push_back(module_costs(units, num_stages[at(module)]));
  }
  return result;
}

HandCase make_plain_case(const std::vector<int>& num_stages, int num_slots) {
  std::vector<HandSample> samples;
  for (int slot = 0; slot < num_slots; ++slot) {
    samples.push_back({slot, std::vector<std::vector<int>>(num_stages.size() - 1, {slot})});
  }
  return make_hand_case(num_stages, num_slots, samples);
}

void cut_sample(HandCase& hand_case,
                int sample,
                const std::vector<int>& slots,
                const std::vector<std::int64_t>& begins) {
  hand_case.plan.limits.chunks = true;
  ModuleSlots& llm = hand_case.assignment.replicas[0].modules.back();
  for (Slot& slot : llm) {
    std::erase(slot, WorkItem{.sample = sample});
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::int64_t end = i + 1 < begins.size() ? begins[i + 1] : kTokens;
    llm[at(slots[i])].push_back({.sample = sample, .token_begin = begins[i], .token_end = end});
  }
}

void set_trainable(HandCase& hand_case, int module, bool trainable) {
  for (StageCosts& stage : hand_case.costs.modules[at(module)].stages) {
    stage.trainable = trainable;
    for (UnitCost& unit : stage.units) {
      unit.time.backward_weight = nanoseconds{trainable ? 10 : 0};
    }
  }
}

std::string repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) {
    result += text;
  }
  return result;
}

std::string compute_text(const Program& program, int replica, int lane) {
  return text_of(program, replica, lane, Shown::kCompute);
}

std::string lane_text(const Program& program, int replica, int lane) {
  return text_of(program, replica, lane, Shown::kAll);
}

}  // namespace entrain::oracle
