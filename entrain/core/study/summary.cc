#include "entrain/core/study/summary.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/csv.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

double seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

// Median of a figure over the steps that were not refused.
template <class Figure>
double median_of(const CaseResult& result, const Figure& figure) {
  std::vector<double> values;
  for (const CaseStep& step : result.steps) {
    if (step.refused.empty()) {
      values.push_back(figure(step));
    }
  }
  return median(std::move(values));
}

std::vector<ModuleSummary> module_summaries(const CaseResult& result, std::size_t num_modules) {
  std::vector<ModuleSummary> summaries;
  for (std::size_t m = 0; m < num_modules; ++m) {
    const auto over_slots = [&](double SlotBalance::*figure) {
      return median_of(result, [&](const CaseStep& step) { return step.balance[m].*figure; });
    };
    const auto over_replicas = [&](double Spread::*figure) {
      return median_of(result, [&](const CaseStep& step) { return step.replicas[m].*figure; });
    };
    summaries.push_back({.cv = over_slots(&SlotBalance::cv),
                         .floor_cv = over_slots(&SlotBalance::floor_cv),
                         .max_over_mean = over_slots(&SlotBalance::max_over_mean),
                         .std_s = over_slots(&SlotBalance::std_s),
                         .replica_cv = over_replicas(&Spread::cv),
                         .replica_max_over_mean = over_replicas(&Spread::max_over_mean)});
  }
  return summaries;
}

// What is no median: counts, means and extremes.
void add_totals(const CaseResult& result, CaseSummary& summary) {
  double replicas = 0;
  std::set<int> slots;
  for (const CaseStep& step : result.steps) {
    ++summary.steps;
    if (!step.refused.empty()) {
      summary.reason = summary.refused++ == 0 ? step.refused : summary.reason;
      continue;
    }
    for (const int count : step.num_slots) {
      summary.num_slots += count;
      replicas += 1;
    }
    summary.deferred += static_cast<double>(step.deferred);
    summary.chunks += static_cast<double>(step.chunks);
    summary.equal_slots = summary.equal_slots && step.equal_slots;
    for (const ReplicaBalance& replica : step.balance.front().replicas) {
      slots.insert(replica.num_slots);
    }
    summary.peak_bytes = std::max(summary.peak_bytes, step.peak_bytes);
    if (step.over_bytes > summary.over_bytes) {
      summary.over_bytes = step.over_bytes;
      summary.over = step.over;
    }
  }
  summary.balance_slots.assign(slots.begin(), slots.end());
  summary.num_slots /= std::max(1.0, replicas);
  const double assigned = std::max(1.0, static_cast<double>(summary.steps - summary.refused));
  summary.deferred /= assigned;
  summary.chunks /= assigned;
}

void add_causes(const CaseResult& result, CaseSummary& summary) {
  double steps = 0;
  for (const CaseStep& step : result.steps) {
    if (!step.causes || step.bound_ns == 0) {
      continue;
    }
    summary.causes.resize(kNumGapCauses, 0);
    const auto bound = static_cast<double>(step.bound_ns);
    for (std::size_t cause = 0; cause < summary.causes.size(); ++cause) {
      summary.causes[cause] += static_cast<double>(step.causes->time[cause].count()) / bound;
    }
    summary.in_bound += static_cast<double>(step.causes->in_bound.count()) / bound;
    summary.reduction += static_cast<double>(step.reduction_ns) / bound;
    steps += 1;
  }
  summary.reduction /= std::max(1.0, steps);
  for (double& cause : summary.causes) {
    cause /= steps;
  }
  summary.in_bound /= std::max(1.0, steps);
}

CaseSummary summary_of(const CaseResult& result) {
  CaseSummary summary;
  summary.policy = result.policy;
  summary.schedule = result.schedule;
  summary.given_slots = result.given_slots;
  add_totals(result, summary);
  add_causes(result, summary);
  std::vector<double> times;
  std::size_t num_modules = 0;
  for (const CaseStep& step : result.steps) {
    if (step.refused.empty()) {
      times.push_back(seconds(step.step_ns));
      num_modules = step.balance.size();
    }
  }
  summary.step_s = median(times);
  summary.step_p95_s = percentile(times, 0.95);
  summary.step_mean_s = std::accumulate(times.begin(), times.end(), 0.0) /
                        std::max(1.0, static_cast<double>(times.size()));
  summary.lower_bound_s =
      median_of(result, [](const CaseStep& step) { return seconds(step.bound_ns); });
  summary.gap = median_of(result, [](const CaseStep& step) { return step.gap(); });
  summary.bubble = median_of(result, [](const CaseStep& step) { return step.bubble; });
  summary.assign_ms = median_of(result, [](const CaseStep& step) { return step.assign_ms; });
  summary.modules = module_summaries(result, num_modules);
  return summary;
}

double best_time(const std::vector<CaseSummary>& summaries) {
  double best = 0;
  for (const bool must_fit : {true, false}) {
    for (const CaseSummary& summary : summaries) {
      if (summary.has_result() && (summary.fits() || !must_fit) &&
          (best == 0 || summary.step_s < best)) {
        best = summary.step_s;
      }
    }
    if (best > 0) {
      break;
    }
  }
  return best;
}

// Names of all causes, `in_bound` last.
std::vector<std::string> cause_names(std::string_view prefix, std::string_view suffix) {
  std::vector<std::string> names;
  for (int cause = 0; cause < kNumGapCauses; ++cause) {
    names.push_back(fmt::format("{}{}{}", prefix, name_of(static_cast<GapCause>(cause)), suffix));
  }
  names.push_back(fmt::format("{}in_bound{}", prefix, suffix));
  return names;
}

std::string number_text(double value) {
  return fmt::format("{:.9g}", value);
}

// One figure of every replica's slots.
template <class Value>
std::string of_replicas(const ModuleBalance& balance, Value ReplicaBalance::*figure) {
  std::vector<std::string> texts;
  for (const ReplicaBalance& replica : balance.replicas) {
    texts.push_back(fmt::format("{:.9g}", static_cast<double>(replica.*figure)));
  }
  return join(texts, ";");
}

std::vector<std::string> csv_row(const CaseResult& result,
                                 std::size_t step_index,
                                 std::size_t num_modules) {
  const CaseStep& step = result.steps[step_index];
  std::vector<std::string> row = {result.policy, result.schedule, std::to_string(step_index)};
  if (!step.refused.empty()) {
    row.resize(row.size() + 7 + 8 * num_modules + 4 + kNumGapCauses + 2);
    row.push_back(step.refused);
    return row;
  }
  row.insert(row.end(),
             {fmt::format("{:.9f}", seconds(step.step_ns)),
              fmt::format("{:.9f}", seconds(step.bound_ns)),
              number_text(step.gap()),
              number_text(step.bubble),
              fmt::format("{}", fmt::join(step.num_slots, ";")),
              std::to_string(step.deferred),
              std::to_string(step.chunks)});
  for (std::size_t m = 0; m < num_modules; ++m) {
    const ModuleBalance& balance = step.balance[m];
    row.insert(row.end(),
               {number_text(balance.cv),
                number_text(balance.floor_cv),
                number_text(balance.max_over_mean),
                number_text(balance.std_s),
                of_replicas<double>(balance, &ReplicaBalance::cv),
                of_replicas<double>(balance, &ReplicaBalance::std_s),
                number_text(step.replicas[m].cv),
                number_text(step.replicas[m].max_over_mean)});
  }
  row.insert(row.end(),
             {of_replicas(step.balance.front(), &ReplicaBalance::num_slots),
              step.equal_slots ? "1" : "0",
              std::to_string(step.peak_bytes),
              std::to_string(step.over_bytes)});
  for (int cause = 0; cause < kNumGapCauses; ++cause) {
    row.push_back(
        step.causes
            ? fmt::format("{:.9f}", seconds(step.causes->of(static_cast<GapCause>(cause)).count()))
            : "");
  }
  row.push_back(step.causes ? fmt::format("{:.9f}", seconds(step.causes->in_bound.count())) : "");
  row.insert(row.end(), {fmt::format("{:.3f}", step.assign_ms), ""});
  return row;
}

}  // namespace

std::vector<CaseSummary> summarise(const std::vector<CaseResult>& cases) {
  std::vector<CaseSummary> summaries;
  summaries.reserve(cases.size());
  for (const CaseResult& result : cases) {
    summaries.push_back(summary_of(result));
  }
  const double best = best_time(summaries);
  for (CaseSummary& summary : summaries) {
    summary.vs_best = best > 0 ? summary.step_s / best : 0;
  }
  return summaries;
}

Json to_json(const CaseSummary& summary, const std::vector<std::string>& modules) {
  Json document = {{"policy", summary.policy},
                   {"schedule", summary.schedule},
                   {"steps", summary.steps},
                   {"refused", summary.refused}};
  if (summary.refused > 0) {
    document["reason"] = summary.reason;
  }
  if (!summary.has_result()) {
    return document;
  }
  document.update({{"step_s", summary.step_s},
                   {"step_p95_s", summary.step_p95_s},
                   {"step_mean_s", summary.step_mean_s},
                   {"vs_best", summary.vs_best},
                   {"lower_bound_s", summary.lower_bound_s},
                   {"gap", summary.gap},
                   {"bubble", summary.bubble},
                   {"num_slots", summary.num_slots},
                   {"given_slots", summary.given_slots},
                   {"deferred", summary.deferred},
                   {"chunks", summary.chunks},
                   {"peak_bytes", summary.peak_bytes},
                   {"over_bytes", summary.over_bytes},
                   {"over", summary.over},
                   {"assign_ms", summary.assign_ms},
                   {"balance_slots", summary.balance_slots},
                   {"equal_slots", summary.equal_slots}});
  if (!summary.causes.empty()) {
    Json causes = Json::object();
    const std::vector<std::string> names = cause_names("", "");
    for (std::size_t i = 0; i < summary.causes.size(); ++i) {
      causes[names[i]] = summary.causes[i];
    }
    causes["in_bound"] = summary.in_bound;
    document["gap_causes"] = causes;
  }
  Json balance = Json::object();
  for (std::size_t m = 0; m < modules.size(); ++m) {
    const ModuleSummary& module = summary.modules[m];
    balance[modules[m]] = {{"cv", module.cv},
                           {"floor_cv", module.floor_cv},
                           {"max_over_mean", module.max_over_mean},
                           {"std_s", module.std_s},
                           {"replica_cv", module.replica_cv},
                           {"replica_max_over_mean", module.replica_max_over_mean}};
  }
  document["modules"] = balance;
  return document;
}

Json curves_of(const CaseResult& result, std::int64_t first_step) {
  Json curves = Json::object();
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    const CaseStep& step = result.steps[i];
    const double step_s = 1e-9 * static_cast<double>(step.step_ns);
    const auto rate = [&](std::int64_t count) {
      return step_s > 0 && count > 0 ? Json(static_cast<double>(count) / step_s) : Json();
    };
    const auto add = [&](const char* name, const Json& value) {
      curves[name].push_back(step.refused.empty() ? value : Json());
    };
    curves["step"].push_back(first_step + static_cast<std::int64_t>(i));
    add("predicted_step_s", step_s);
    add("lower_bound_s", 1e-9 * static_cast<double>(step.bound_ns));
    add("llm_tokens_per_s", rate(step.llm_tokens));
    add("samples_per_s", rate(step.samples));
    add("bubble", step.bubble);
    add("deferred", step.deferred);
  }
  return curves;
}

std::string cases_csv(const std::vector<CaseResult>& cases,
                      const std::vector<std::string>& modules) {
  std::vector<std::string> header = {"policy",
                                     "schedule",
                                     "step",
                                     "step_s",
                                     "lower_bound_s",
                                     "gap",
                                     "bubble",
                                     "num_slots",
                                     "deferred",
                                     "chunks"};
  for (const std::string& module : modules) {
    for (const char* figure : {"_cv",
                               "_floor_cv",
                               "_max_over_mean",
                               "_std_s",
                               "_cvs",
                               "_stds_s",
                               "_replica_cv",
                               "_replica_max_over_mean"}) {
      header.push_back(module + figure);
    }
  }
  header.insert(header.end(), {"balance_slots", "equal_slots", "peak_bytes", "over_bytes"});
  for (const std::string& name : cause_names("gap_", "_s")) {
    header.push_back(name);
  }
  header.insert(header.end(), {"assign_ms", "reason"});
  std::string text;
  append_csv_row(text, header);
  for (const CaseResult& result : cases) {
    for (std::size_t step = 0; step < result.steps.size(); ++step) {
      append_csv_row(text, csv_row(result, step, modules.size()));
    }
  }
  return text;
}

}  // namespace entrain
