#include "entrain/engine/train/run_speed.h"

#include <cstdio>

namespace entrain::engine {
namespace {

constexpr double kFarOff = 1.25;

std::chrono::nanoseconds compute_of(const Timeline& timeline) {
  std::chrono::nanoseconds sum{0};
  for (const auto& replica : timeline.lanes) {
    for (const LaneUsage& lane : replica) {
      sum += lane.busy;
    }
  }
  return sum;
}

std::string advice(double factor) {
  char text[200];
  std::snprintf(
      text,
      sizeof text,
      "compute takes %.2f times the processor time predicted from the plan's costs (%zu steps); "
      "`entrain profile` on this machine gives plans and predictions that fit it",
      factor,
      RunSpeed::kSteps);
  return text;
}

}  // namespace

RunSpeed::Compute RunSpeed::sum() const {
  Compute total;
  for (const Compute& step : recent_) {
    total.predicted += step.predicted;
    total.measured += step.measured;
    total.processor_s += step.processor_s;
  }
  return total;
}

std::optional<double> RunSpeed::expected_s(const Timeline& predicted) const {
  const Compute known = sum();
  if (known.predicted.count() <= 0 || known.measured.count() <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(known.measured.count()) /
         static_cast<double>(known.predicted.count()) *
         std::chrono::duration<double>(predicted.makespan).count();
}

std::string RunSpeed::observe(const Timeline& predicted,
                              const Timeline& measured,
                              double processor_s) {
  if (!warm_) {
    warm_ = true;
    return "";
  }
  recent_.push_back({compute_of(predicted), compute_of(measured), processor_s});
  if (recent_.size() > kSteps) {
    recent_.pop_front();
  }
  if (advised_ || recent_.size() < kSteps) {
    return "";
  }
  advised_ = true;
  const Compute known = sum();
  if (known.predicted.count() <= 0) {
    return "";
  }
  const double factor = known.processor_s / std::chrono::duration<double>(known.predicted).count();
  return factor > kFarOff || factor < 1 / kFarOff ? advice(factor) : "";
}

}  // namespace entrain::engine
