#include "entrain/engine/train/drift_watch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "entrain/core/base/text.h"
#include "entrain/core/planner/lane_shares.h"
#include "entrain/core/report/table.h"

namespace entrain::engine {
namespace {

constexpr int kMostLanes = 8;           // of `entrain plan --lanes`
constexpr std::size_t kRecent = 1'000;  // steps searched for the beginning of a drift

// "vision 3, llm 1"
std::string split_text(const std::vector<std::string>& names, const std::vector<int>& split) {
  std::string text;
  for (std::size_t m = 0; m < split.size(); ++m) {
    text += concat(m == 0 ? "" : ", ", names[m], " ", split[m]);
  }
  return text;
}

std::string remedy_of(const RunSetup& setup) {
  const RunConfig& config = setup.config;
  const int lanes = setup.plan.num_lanes();
  const bool one_rank_each = std::ranges::all_of(
      setup.plan.modules, [](const ModulePlan& module) { return module.tensor_parallel == 1; });
  std::string command = one_rank_each && lanes <= kMostLanes
                            ? concat("entrain plan --lanes ", lanes)
                            : std::string("entrain plan --cluster CLUSTER.toml");
  if (setup.plan.replicas > 1) {
    command += concat(" --replicas ", setup.plan.replicas);
  }
  return concat(command,
                " --index ",
                config.data.train,
                " --model ",
                config.model_file,
                " --profile ",
                config.plan.profile,
                " --global-batch ",
                config.data.global_batch,
                " -o ",
                config.plan.file.empty() ? "plan.json" : config.plan.file);
}

}  // namespace

ShareRange share_range(const std::vector<int>& split,
                       const std::vector<double>& shares,
                       int gains,
                       int loses) {
  const auto i = static_cast<std::size_t>(gains);
  const auto j = static_cast<std::size_t>(loses);
  const double both = shares[i] + shares[j];
  const double middle = (both + split[i] - split[j]) / 2;
  return {split[i] > 1 ? std::max(0.0, middle - 0.5) : 0.0,
          split[j] > 1 ? std::min(both, middle + 0.5) : both};
}

DriftWatch::DriftWatch(const RunSetup& setup, DriftMonitor monitor, std::string note)
    : monitor_(std::move(monitor)),
      names_(module_names(setup.model)),
      remedy_(remedy_of(setup)),
      note_(std::move(note)) {}

std::optional<DriftWatch> DriftWatch::of(const RunSetup& setup) {
  if (setup.config.plan.profile.empty()) {
    return std::nullopt;
  }
  std::optional<SplitRegion> region = plan_region(setup.plan);
  if (!region.has_value() || region->boundaries.empty()) {
    return std::nullopt;
  }
  const WorkTimes planned = work_times(
      setup.model, setup.profile, setup.planned.empty() ? setup.train.work : setup.planned);
  const std::vector<std::int64_t> total = total_work(planned);
  std::string note;
  const auto crossed = [&](const SplitBoundary& boundary) { return boundary.value(total) >= 0; };
  if (std::erase_if(region->boundaries, crossed) > 0) {
    const std::vector<std::string> names = module_names(setup.model);
    const int lanes = std::accumulate(region->devices_of.begin(), region->devices_of.end(), 0);
    note = concat("drift: the plan keeps its split, ",
                  split_text(names, region->devices_of),
                  ", though work alone rounds to ",
                  split_text(names, share_lanes(total, lanes)),
                  ": simulation may know better, so drift is watched on the other sides only. A "
                  "plan that was made for other data should name that index in plan.index.");
  }
  return DriftWatch(setup,
                    DriftMonitor(std::move(*region), planned, setup.config.data.global_batch),
                    std::move(note));
}

DriftState DriftWatch::observe(const StepCosts& costs) {
  recent_.push_back(total_work(work_times(costs)));
  if (recent_.size() > kRecent) {
    recent_.pop_front();
  }
  const std::optional<DriftAlarm> alarm = monitor_.observe(recent_.back());
  DriftState state;
  state.shares = monitor_.shares();
  state.left = monitor_.left();
  if (alarm.has_value()) {
    state.warning = describe(*alarm);
  }
  return state;
}

// Number of last steps whose work is most clearly beyond the boundary: their sum deviates
// most, relative to the variation of that many steps.
int DriftWatch::steps_outside(const DriftAlarm& alarm) const {
  const std::vector<SplitBoundary>& boundaries = monitor_.region().boundaries;
  const auto boundary = std::find_if(boundaries.begin(), boundaries.end(), [&](const auto& b) {
    return b.gains == alarm.gains && b.loses == alarm.loses;
  });
  int steps = 1;
  double most = 0;
  double sum = 0;
  for (int k = 1; k <= std::ssize(recent_); ++k) {
    sum += boundary->value(recent_[recent_.size() - static_cast<std::size_t>(k)]);
    const double clearness = sum / std::sqrt(k);
    if (clearness > most) {
      most = clearness;
      steps = k;
    }
  }
  return steps;
}

std::string DriftWatch::describe(const DriftAlarm& alarm) const {
  const std::vector<int>& split = monitor_.region().devices_of;
  const int lanes = std::accumulate(split.begin(), split.end(), 0);
  const int steps = steps_outside(alarm);
  std::vector<std::int64_t> work(split.size(), 0);
  for (int k = 1; k <= steps; ++k) {
    const auto& step = recent_[recent_.size() - static_cast<std::size_t>(k)];
    std::transform(work.begin(), work.end(), step.begin(), work.begin(), std::plus<>());
  }
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  std::vector<double> shares;
  for (const std::int64_t module : work) {
    shares.push_back(static_cast<double>(module) / total * lanes);
  }
  const ShareRange range = share_range(split, shares, alarm.gains, alarm.loses);
  return concat("drift: after ",
                counted(alarm.step, "step"),
                ", the work no longer fits the plan's split (",
                split_text(names_, split),
                "): ",
                names_[static_cast<std::size_t>(alarm.gains)],
                " needs ",
                format_fixed(shares[static_cast<std::size_t>(alarm.gains)], 2),
                " of ",
                counted(lanes, "lane"),
                " (mean of the last ",
                counted(steps, "step"),
                "), and the split fits ",
                format_fixed(range.least, 2),
                " to ",
                format_fixed(range.most, 2),
                "; these steps need ",
                split_text(names_, share_lanes(work, lanes)),
                ". To plan for them: ",
                remedy_);
}

}  // namespace entrain::engine
