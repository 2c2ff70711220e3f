#include "entrain/core/report/exposition.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace entrain {
namespace {

// Of a label's value: \, " and the end of a line.
std::string label_value(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    result += c == '\\' || c == '"' ? std::string{'\\', c} : std::string{c};
  }
  return result;
}

std::string value_text(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  return std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{}", value);
}

class Exposition {
 public:
  explicit Exposition(std::string_view run) : run_(label_value(run)) {}

  void begin(std::string_view name, std::string_view help, std::string_view type = "gauge") {
    text_ += fmt::format("# HELP entrain_{0} {1}\n# TYPE entrain_{0} {2}\n", name, help, type);
  }
  void sample(std::string_view name, double value, const std::string& labels = "") {
    text_ += fmt::format("entrain_{}{{run=\"{}\"{}}} {}\n", name, run_, labels, value_text(value));
  }
  void figure(std::string_view name, std::string_view help, const std::optional<double>& value) {
    if (value.has_value()) {
      begin(name, help);
      sample(name, *value);
    }
  }
  std::string take() { return std::move(text_); }

 private:
  std::string run_;
  std::string text_;
};

void add_lane_samples(const std::vector<LaneRow>& lanes, Exposition& page) {
  const auto labels = [](const LaneRow& lane) {
    return fmt::format(",replica=\"{}\",lane=\"{}\"", lane.replica, lane.lane);
  };
  if (lanes.empty()) {
    return;
  }
  page.begin("lane_busy_seconds", "Time of a lane's forwards and backwards in the last step.");
  for (const LaneRow& lane : lanes) {
    page.sample("lane_busy_seconds", lane.busy_s, labels(lane));
  }
  page.begin("lane_predicted_busy_seconds", "The same time, as predicted.");
  for (const LaneRow& lane : lanes) {
    page.sample("lane_predicted_busy_seconds", lane.predicted_busy_s, labels(lane));
  }
  bool begun = false;
  for (const LaneRow& lane : lanes) {
    if (lane.peak_bytes.has_value()) {
      if (!begun) {
        page.begin("lane_peak_bytes", "Peak of a lane's activations in the last step.");
        begun = true;
      }
      page.sample("lane_peak_bytes", static_cast<double>(*lane.peak_bytes), labels(lane));
    }
  }
}

}  // namespace

std::string exposition(const RunRow& row, const RunTotals& totals) {
  Exposition page(totals.run);
  page.figure("step", "Finished steps.", static_cast<double>(row.step + 1));
  page.figure("steps", "Steps of the whole run.", static_cast<double>(totals.steps));
  page.begin("skipped_steps_total", "Skipped steps.", "counter");
  page.sample("skipped_steps_total", static_cast<double>(totals.skipped));
  page.figure("step_finished_timestamp_seconds",
              "When the last step ended, in seconds since 1970.",
              totals.finished_s);
  page.figure("loss", "Cross-entropy per target token of the last step.", row.loss);
  if (totals.validation.has_value()) {
    page.figure("validation_loss", "Loss of the last validation.", totals.validation->loss);
  }
  page.figure("grad_norm", "Global gradient norm before clipping.", row.grad_norm);
  page.figure("learning_rate", "Learning rate of the last update.", row.learning_rate);
  page.figure("step_seconds", "Time of the last step.", row.step_s);
  page.figure("predicted_step_seconds", "Simulated time of the last step.", row.predicted_step_s);
  page.figure(
      "lower_bound_seconds", "No assignment of the last step is faster.", row.lower_bound_s);
  if (row.llm_tokens.has_value() && row.step_s.value_or(0) > 0) {
    page.figure("llm_tokens_per_second",
                "LLM tokens per second of the last step.",
                static_cast<double>(*row.llm_tokens) / *row.step_s);
  }
  page.figure("bubble", "Idle share of all lanes in the last step.", row.bubble);
  page.figure("data_wait_seconds",
              "Time that a rank waited for samples in the last step.",
              row.data_wait_s);
  add_lane_samples(row.lanes, page);
  return page.take();
}

}  // namespace entrain
