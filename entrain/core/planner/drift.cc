#include "entrain/core/planner/drift.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/planner/lane_shares.h"
#include "entrain/core/planner/split_bound.h"

namespace entrain {
namespace {

// Boundary values count half devices (SplitBoundary::excess); less variation than this is none.
constexpr double kLeastDeviation = 1e-3;

void check(const SplitRegion& region,
           const WorkTimes& planned,
           int global_batch,
           const DriftOptions& options) {
  if (planned.size() != region.devices_of.size()) {
    throw InvalidInput(fmt::format(
        "drift: work of {} modules for a split of {}", planned.size(), region.devices_of.size()));
  }
  if (planned.empty() || planned.front().empty()) {
    throw InvalidInput("drift: there is no planned work to compare with");
  }
  if (global_batch < 1 || options.window < 1 || !(options.steps_between_false_alarms > 1)) {
    throw InvalidInput(
        fmt::format("drift: a global batch of {}, a window of {} steps and a false alarm every {} "
                    "steps; allowed: 1 or more, 1 or more, above 1",
                    global_batch,
                    options.window,
                    options.steps_between_false_alarms));
  }
}

// Standard deviation of the boundary's value over batches of independent samples.
double deviation_of(const SplitBoundary& boundary, const WorkTimes& planned, int global_batch) {
  const std::vector<std::int64_t> all = total_work(planned);
  const double batch_work = std::accumulate(all.begin(), all.end(), 0.0) /
                            static_cast<double>(planned.front().size()) * global_batch;
  return std::max({std::sqrt(form_moments(boundary, planned).variance * global_batch),
                   kLeastDeviation * batch_work,
                   1e-9});
}

// Grows with ln x only, so that a single oversized sample is no proof.
double influence(double x) {
  const double size = std::log1p(std::abs(x) + x * x / 2);
  return x < 0 ? -size : size;
}

// Adds one observation, in standard deviations; the mean over λ.
template <std::size_t N>
double gather(const std::array<double, N>& rates, double x, std::array<double, N>& gathered) {
  double sum = 0;
  for (std::size_t i = 0; i < N; ++i) {
    gathered[i] = (gathered[i] + 1) * std::exp(influence(rates[i] * x) - rates[i] * rates[i] / 2);
    sum += gathered[i];
  }
  return sum / static_cast<double>(N);
}

}  // namespace

std::optional<SplitRegion> plan_region(const Plan& plan) {
  std::vector<int> ranks_of(plan.modules.size(), 0);
  int unit = 0;
  for (const std::vector<StageRef>& lane : plan.lanes) {
    const int module = lane.front().module;
    if (std::any_of(lane.begin(), lane.end(), [&](StageRef s) { return s.module != module; })) {
      return std::nullopt;
    }
    const ModulePlan& part = plan.modules[static_cast<std::size_t>(module)];
    const int ranks = part.tensor_parallel * part.context_parallel;
    ranks_of[static_cast<std::size_t>(module)] += ranks;
    unit = std::gcd(unit, ranks);
  }
  for (int& ranks : ranks_of) {
    ranks /= unit;
  }
  return split_region(ranks_of);
}

DriftMonitor::DriftMonitor(SplitRegion region,
                           const WorkTimes& planned,
                           int global_batch,
                           const DriftOptions& options)
    : region_(std::move(region)), options_(options), window_sum_(region_.devices_of.size(), 0) {
  check(region_, planned, global_batch, options_);
  for (const SplitBoundary& boundary : region_.boundaries) {
    evidence_.emplace_back().deviation = deviation_of(boundary, planned, global_batch);
  }
}

std::optional<DriftAlarm> DriftMonitor::observe(std::span<const std::int64_t> work_ns) {
  remember(work_ns);
  if (left_) {
    return std::nullopt;
  }
  const double threshold =
      options_.steps_between_false_alarms * static_cast<double>(evidence_.size());
  std::optional<DriftAlarm> alarm;
  double most = threshold;
  for (std::size_t b = 0; b < evidence_.size(); ++b) {
    const SplitBoundary& boundary = region_.boundaries[b];
    const double gathered =
        gather(kRates, boundary.value(work_ns) / evidence_[b].deviation, evidence_[b].gathered);
    if (gathered >= most) {
      most = gathered;
      alarm = DriftAlarm{steps_, boundary.gains, boundary.loses, {}, {}};
    }
  }
  if (alarm.has_value()) {
    left_ = true;
    const int devices = std::accumulate(region_.devices_of.begin(), region_.devices_of.end(), 0);
    alarm->shares = shares();
    alarm->asks_for = share_lanes(window_sum_, devices);
  }
  return alarm;
}

void DriftMonitor::restart() {
  left_ = false;
  for (Evidence& evidence : evidence_) {
    evidence.gathered = {};
  }
}

std::vector<double> DriftMonitor::shares() const {
  const double total = std::accumulate(window_sum_.begin(), window_sum_.end(), 0.0);
  const int devices = std::accumulate(region_.devices_of.begin(), region_.devices_of.end(), 0);
  std::vector<double> result;
  for (const std::int64_t work : window_sum_) {
    result.push_back(total > 0 ? static_cast<double>(work) / total * devices : 0);
  }
  return result;
}

void DriftMonitor::remember(std::span<const std::int64_t> work_ns) {
  ENTRAIN_INVARIANT(work_ns.size() == window_sum_.size(), "a step has one work per module");
  const auto place = static_cast<std::size_t>(steps_ % options_.window);
  if (place == window_.size()) {
    window_.emplace_back(work_ns.size(), 0);
  }
  for (std::size_t m = 0; m < work_ns.size(); ++m) {
    window_sum_[m] += work_ns[m] - window_[place][m];
    window_[place][m] = work_ns[m];
  }
  ++steps_;
}

}  // namespace entrain
