// The view of a run's folder.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/report_views.h"
#include "entrain/core/report/run_rows.h"
#include "entrain/core/report/statistics.h"
#include "entrain/core/report/step_view.h"
#include "entrain/core/report/table.h"

namespace entrain {
namespace {

using Figure = std::function<std::optional<double>(const RunRow&)>;

Json number(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json();
}

// One entry a step; null as a whole if no step has it.
Json column(const RunRows& rows, const Figure& figure) {
  Json values = Json::array();
  bool any = false;
  for (const RunRow& row : rows.steps) {
    values.push_back(number(figure(row)));
    any = any || !values.back().is_null();
  }
  return any ? values : Json();
}

std::optional<double> rate(std::optional<std::int64_t> count, std::optional<double> seconds) {
  return count.has_value() && seconds.value_or(0) > 0
             ? std::optional(static_cast<double>(*count) / *seconds)
             : std::nullopt;
}

std::optional<double> as_number(std::optional<std::int64_t> count) {
  return count.has_value() ? std::optional(static_cast<double>(*count)) : std::nullopt;
}

Json lanes_busy(const RunRows& rows) {
  std::map<std::pair<int, int>, std::pair<Json, Json>> lanes;  // busy, predicted
  for (std::size_t i = 0; i < rows.steps.size(); ++i) {
    for (const LaneRow& lane : rows.steps[i].lanes) {
      auto& [busy, predicted] = lanes[{lane.replica, lane.lane}];
      while (busy.size() < i) {  // of a step without lanes
        busy.push_back(nullptr);
        predicted.push_back(nullptr);
      }
      busy.push_back(number(lane.busy_s));
      predicted.push_back(number(lane.predicted_busy_s));
    }
  }
  Json list = Json::array();
  for (auto& [place, series] : lanes) {
    list.push_back({{"replica", place.first},
                    {"lane", place.second},
                    {"busy_s", std::move(series.first)},
                    {"predicted_busy_s", std::move(series.second)}});
  }
  return list;
}

Json steps_of(const RunRows& rows) {
  Json numbers = Json::array();
  for (const RunRow& row : rows.steps) {
    numbers.push_back(row.step);
  }
  Json validation_steps = Json::array();
  Json validation_losses = Json::array();
  for (const ValidationRow& row : rows.validations) {
    validation_steps.push_back(row.step);
    validation_losses.push_back(number(row.loss));
  }
  return {{"step", numbers},
          {"loss", column(rows, &RunRow::loss)},
          {"step_s", column(rows, &RunRow::step_s)},
          {"predicted_step_s", column(rows, &RunRow::predicted_step_s)},
          {"lower_bound_s", column(rows, &RunRow::lower_bound_s)},
          {"llm_tokens_per_s",
           column(rows, [](const RunRow& row) { return rate(row.llm_tokens, row.step_s); })},
          {"samples_per_s",
           column(rows, [](const RunRow& row) { return rate(row.samples, row.step_s); })},
          {"grad_norm", column(rows, &RunRow::grad_norm)},
          {"learning_rate", column(rows, &RunRow::learning_rate)},
          {"bubble", column(rows, &RunRow::bubble)},
          {"data_wait_s", column(rows, &RunRow::data_wait_s)},
          {"deferred", column(rows, [](const RunRow& row) { return as_number(row.deferred); })},
          {"lanes_busy_s", lanes_busy(rows)},
          {"validation", {{"step", validation_steps}, {"loss", validation_losses}}}};
}

// "200 of 200 steps; loss 6.13 to 1.02; median step 310 ms, 12,300 LLM tokens/s."
std::string sentence_of(const RunRows& rows, std::int64_t steps) {
  std::vector<double> times;
  std::vector<double> rates;
  std::vector<double> losses;
  for (const RunRow& row : rows.steps) {
    if (row.step_s.has_value()) {
      times.push_back(*row.step_s);
      rates.push_back(rate(row.llm_tokens, row.step_s).value_or(0));
    }
    if (row.loss.has_value()) {
      losses.push_back(*row.loss);
    }
  }
  const std::int64_t done = rows.steps.empty() ? 0 : rows.steps.back().step + 1;
  std::string text = fmt::format("{} of {}", format_count(done), counted(steps, "step"));
  if (!losses.empty()) {
    text += fmt::format("; loss {:.4g} to {:.4g}", losses.front(), losses.back());
  }
  if (!times.empty()) {
    text += fmt::format("; median step {}, {} LLM tokens/s",
                        format_seconds(median(times)),
                        format_count(std::llround(median(rates))));
  }
  return text + ".";
}

std::vector<std::string> warnings_of(const RunRows& rows, std::int64_t steps) {
  std::vector<std::string> warnings;
  const std::int64_t done = rows.steps.empty() ? 0 : rows.steps.back().step + 1;
  if (done < steps) {
    warnings.push_back(fmt::format("The run is not at its end: {} of {} recorded.",
                                   format_count(done),
                                   counted(steps, "step")));
  }
  if (rows.cut_lines > 0) {
    warnings.emplace_back("The last line of metrics.jsonl is cut off; it is left out.");
  }
  const auto is_skipped = [](const RunRow& row) { return row.skipped.has_value(); };
  const auto first = std::find_if(rows.steps.begin(), rows.steps.end(), is_skipped);
  if (first != rows.steps.end()) {
    const auto skipped = std::count_if(first, rows.steps.end(), is_skipped);
    warnings.push_back(fmt::format("{} skipped{} step {} ({}): {}",
                                   counted(skipped, "step"),
                                   skipped == 1 ? "," : ", the first of them",
                                   first->step,
                                   *first->skipped,
                                   first->detail));
  }
  return warnings;
}

void add_facts(Json& view, const Json& config, const Json& plan) {
  const auto fact = [&](const char* name, const std::string& value) {
    view["facts"].push_back({name, value});
  };
  fact("policy", plan.at("policy").get<std::string>());
  fact("schedule", plan.at("schedule").get<std::string>());
  fact("replicas x lanes",
       fmt::format("{} x {}", plan.at("replicas").get<int>(), plan.at("lanes").size()));
  fact("steps", format_count(config.at("steps").get<std::int64_t>()));
  fact("seed", std::to_string(config.value("seed", std::int64_t{0})));
  fact("global batch", format_count(config.at("data").at("global_batch").get<std::int64_t>()));
  fact("model", config.at("model").get<std::string>());
  fact("device", config.at("execution").at("device").get<std::string>());
  fact("precision", config.at("execution").at("precision").get<std::string>());
  // Of a run of this version all are there.
  const auto setting = [&](const char* name, const char* path) {
    const Json value = config.value(Json::json_pointer(path), Json());
    const bool empty = value.is_null() || value == "" || value == Json::object();
    if (!empty) {
      fact(name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  };
  setting("data", "/data/train");
  setting("plan", "/plan/file");
  setting("profile", "/plan/profile");
  setting("learning rate", "/optimizer/learning_rate");
  setting("warm-up steps", "/optimizer/warmup_steps");
  setting("weight decay", "/optimizer/weight_decay");
  setting("rates by module", "/optimizer/modules");
  setting("steps an update", "/optimizer/update_every");
  setting("weights from", "/init/from");
}

// use() of the JSON in a file, whose name is added to what nlohmann throws.
template <class Use>
auto with_file(const std::filesystem::path& path, const Use& use) {
  const Json document = read_json_file(path);
  try {
    return use(document);
  } catch (const nlohmann::json::exception& error) {
    throw InvalidInput(fmt::format(
        "{}: not written by this version of entrain ({})", path.string(), error.what()));
  }
}

}  // namespace

Json view_of_run(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "metrics.jsonl")) {
    throw InvalidInput(fmt::format(
        "'{}' is no run's folder: it has no metrics.jsonl; of a folder of data name the "
        "index that `entrain index` writes",
        folder.string()));
  }
  const RunRows rows = read_run_rows(folder / "metrics.jsonl");
  const std::filesystem::path step_path = folder / kStepViewName;
  const bool drawn = std::filesystem::exists(step_path);
  Json view = view_of_nothing();
  if (drawn) {
    const Json step = read_json_file(step_path);
    view = view_of_step(step, step_path.string());
    view["facts"] = Json::array();
    view["facts"].push_back({"drawn step", std::to_string(step.value("step", std::int64_t{0}))});
  }
  view["name"] = folder.string();
  const Json config = read_json_file(folder / "config.json");
  const auto steps = with_file(folder / "config.json", [](const Json& document) {
    return document.at("steps").get<std::int64_t>();
  });
  Json headline = {sentence_of(rows, steps)};
  for (const Json& sentence : view["headline"]) {
    headline.push_back(sentence);
  }
  view["headline"] = headline;
  for (const std::string& warning : warnings_of(rows, steps)) {
    view["warnings"].push_back(warning);
  }
  if (!drawn) {
    view["warnings"].push_back(
        "There is no timeline: the step of execution.trace_step was not reached, or is none.");
  }
  view["steps"] = steps_of(rows);
  for (const RunRow& row : rows.steps) {
    if (!row.drift_warning.empty()) {
      view["drift"].push_back({{"step", row.step}, {"what", row.drift_warning}});
    }
  }
  with_file(folder / "plan.json", [&](const Json& plan) {
    add_facts(view, config, plan);
    view["plan"] = view_of_plan(plan);
    return 0;
  });
  return view;
}

}  // namespace entrain
