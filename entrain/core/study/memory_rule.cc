#include "entrain/core/study/memory_rule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/step/step.h"

namespace entrain {
namespace {

std::int64_t parse_bytes(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kUnits = {{{"KiB", 0x1p10},
                                                                          {"MiB", 0x1p20},
                                                                          {"GiB", 0x1p30},
                                                                          {"TiB", 0x1p40},
                                                                          {"kB", 1e3},
                                                                          {"MB", 1e6},
                                                                          {"GB", 1e9},
                                                                          {"TB", 1e12},
                                                                          {"B", 1.0}}};
  std::string_view number = text;
  double scale = 1;
  for (const auto& [unit, size] : kUnits) {
    if (number.ends_with(unit)) {
      number.remove_suffix(unit.size());
      scale = size;
      break;
    }
  }
  while (number.ends_with(' ')) {
    number.remove_suffix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{} || end != number.data() + number.size() || !(value * scale >= 1) ||
      !(value * scale <= 0x1p60)) {
    throw InvalidInput(fmt::format(
        "--memory: '{}' given; allowed: plan, free, equal, or at least one byte, such as 2000000, "
        "1.5GiB or 24GB (units: kB, MB, GB, TB, KiB, MiB, GiB, TiB)",
        text));
  }
  return std::llround(value * scale);
}

}  // namespace

MemoryRule parse_memory_rule(std::string_view text) {
  if (text == "plan") {
    return {MemoryKind::kPlan, 0};
  }
  if (text == "free") {
    return {MemoryKind::kFree, 0};
  }
  if (text == "equal") {
    return {MemoryKind::kEqual, 0};
  }
  return {MemoryKind::kBytes, parse_bytes(text)};
}

std::vector<std::int64_t> equal_memory(const Plan& plan,
                                       const StepCosts& costs,
                                       std::int64_t step,
                                       std::uint64_t seed) {
  Plan reference = plan;
  reference.schedule = "1f1b";
  reference.limits.bytes_per_lane = 0;
  reference.limits.lane_bytes.clear();
  AssignRequest request;
  request.plan = &reference;
  request.costs = &costs;
  request.step = step;
  request.seed = seed;
  const SimulatedStep simulated = simulate_step("lpt-2d", request, {.prove = false});
  std::vector<std::int64_t> result;
  for (int lane = 0; lane < plan.num_lanes(); ++lane) {
    std::int64_t total = 0;
    for (const StageRef& ref : plan.lanes[at(lane)]) {
      for (const UnitCost& unit : costs.modules[at(ref.module)].stages[at(ref.stage)].units) {
        total += unit.activation_bytes;
      }
    }
    const std::int64_t half = std::max<std::int64_t>(1, total / plan.replicas / 2);
    result.push_back(std::max(half, simulated.peak_bytes[at(lane)]));
  }
  return result;
}

void apply_memory_rule(const MemoryRule& rule,
                       const StepCosts& costs,
                       std::int64_t step,
                       std::uint64_t seed,
                       Plan& plan) {
  if (rule.kind == MemoryKind::kPlan) {
    return;
  }
  plan.limits.bytes_per_lane = rule.bytes;
  plan.limits.lane_bytes.clear();
  if (rule.kind == MemoryKind::kEqual) {
    plan.limits.lane_bytes = equal_memory(plan, costs, step, seed);
  }
}

StudyStep make_step(const Study& study, Plan plan, const MemoryRule& rule, std::int64_t step) {
  StudyStep result;
  result.plan = std::move(plan);
  result.batch = draw_batch(study, step);
  result.costs = batch_costs(study, result.plan, result.batch);
  apply_memory_rule(rule, result.costs, step, study.inputs.seed, result.plan);
  return result;
}

}  // namespace entrain
