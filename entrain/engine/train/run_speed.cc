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
  std::snprintf(text,
                sizeof text,
                "compute takes %.2f times what the plan's costs say (%zu steps); `entrain profile` "
                "on this machine gives plans and predictions that fit it",
                factor,
                RunSpeed::kSteps);
  return text;
}

}  // namespace

std::optional<double> RunSpeed::factor() const {
  Compute sum;
  for (const Compute& step : recent_) {
    sum.predicted += step.predicted;
    sum.measured += step.measured;
  }
  if (sum.predicted.count() <= 0 || sum.measured.count() <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(sum.measured.count()) / static_cast<double>(sum.predicted.count());
}

std::optional<double> RunSpeed::expected_s(const Timeline& predicted) const {
  const std::optional<double> known = factor();
  if (!known.has_value()) {
    return std::nullopt;
  }
  return *known * std::chrono::duration<double>(predicted.makespan).count();
}

std::string RunSpeed::observe(const Timeline& predicted, const Timeline& measured) {
  if (!warm_) {
    warm_ = true;
    return "";
  }
  recent_.push_back({compute_of(predicted), compute_of(measured)});
  if (recent_.size() > kSteps) {
    recent_.pop_front();
  }
  if (advised_ || recent_.size() < kSteps) {
    return "";
  }
  advised_ = true;
  const double known = factor().value_or(1);
  return known > kFarOff || known < 1 / kFarOff ? advice(known) : "";
}

}  // namespace entrain::engine
