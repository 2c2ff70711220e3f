#include "entrain/core/study/audit_text.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"

namespace entrain {
namespace {

constexpr std::size_t kNamed = 5;  // samples in a sentence

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

// "12.0 % less time"
std::string saving(double now, double before) {
  const double saved = before > 0 ? 1 - now / before : 0;
  return percent(std::abs(saved)) + (saved < 0 ? " more time" : " less time");
}

const AuditPolicy& policy_named(const AuditReport& report, std::string_view name) {
  return *std::find_if(report.policies.begin(),
                       report.policies.end(),
                       [&](const AuditPolicy& policy) { return policy.name == name; });
}

void add_largest_sample(const AuditReport& report, std::vector<std::string>& out) {
  const auto bound =
      std::count(report.bound_by_one_sample.begin(), report.bound_by_one_sample.end(), char{1});
  if (bound == 0) {
    return;
  }
  std::string text = fmt::format(
      "In {} of {} one sample alone takes longer than a rank's share: no assignment goes "
      "below {:.2f} × perfect.",
      bound,
      counted(std::ssize(report.bound_ns), "step"),
      report.bound_over_perfect());
  if (!report.caps.empty()) {
    const AuditCap& cap = report.caps.size() > 1 ? report.caps[1] : report.caps[0];
    text += fmt::format(" A cap of {} tokens shortens {} of the samples and the step by {}.",
                        format_count(cap.tokens),
                        percent(cap.samples),
                        percent(1 - cap.step));
  }
  out.push_back(text);
}

// Limits that no assignment can keep.
void add_oversized(const AuditReport& report, std::vector<std::string>& out) {
  if (report.num_over_memory == 0) {
    return;
  }
  std::vector<std::string> names;
  for (const AuditSample& sample : report.over_memory) {
    if (names.size() < kNamed) {
      names.push_back(sample.id);
    }
  }
  out.push_back(
      fmt::format("{} of {} samples exceed the limit of a microbatch alone, so no "
                  "assignment keeps it: {}{}. All figures are without that limit.",
                  format_count(report.num_over_memory),
                  format_count(report.num_samples),
                  join(names),
                  report.num_over_memory > std::ssize(names) ? ", …" : ""));
}

void add_memory(const AuditReport& report, std::vector<std::string>& out) {
  if (report.request.memory_bytes > 0) {
    out.push_back(
        fmt::format("Steps over {} of activations: {} in random order, {} with the "
                    "sampler.",
                    format_bytes(report.request.memory_bytes),
                    report.random().steps_over_memory,
                    report.sampler().steps_over_memory));
  }
}

Json sample_json(const AuditSample& sample, const std::vector<std::string>& modules) {
  Json work = Json::object();
  for (std::size_t module = 0; module < modules.size(); ++module) {
    work[modules[module]] = static_cast<double>(sample.work_ns[module]) * 1e-9;
  }
  return {{"id", sample.id}, {"seconds", work}, {"tokens", sample.tokens}, {"bytes", sample.bytes}};
}

Json samples_json(const std::vector<AuditSample>& samples,
                  const std::vector<std::string>& modules) {
  Json result = Json::array();
  for (const AuditSample& sample : samples) {
    result.push_back(sample_json(sample, modules));
  }
  return result;
}

std::string table_of(const AuditCells& rows) {
  Table table(rows.front());
  for (std::size_t row = 1; row < rows.size(); ++row) {
    table.add_row(rows[row]);
  }
  return table.to_text();
}

}  // namespace

std::vector<std::string> audit_findings(const AuditReport& report) {
  const double random = report.random().spread.mean;
  const double grouped = policy_named(report, "length-grouped").spread.mean;
  const double ours = report.sampler().spread.mean;
  std::vector<std::string> out;
  add_oversized(report, out);
  out.push_back(
      fmt::format("Of a step in random order {} is waiting for the slowest rank; grouped by length "
                  "{}, packed {}.",
                  percent(1 - 1 / random),
                  percent(1 - 1 / grouped),
                  percent(1 - 1 / policy_named(report, "packed").spread.mean)));
  out.push_back(fmt::format(
      "The sampler takes {} than random order and {} than grouping by length; {} of its "
      "step is waiting.",
      saving(ours, random),
      saving(ours, grouped),
      percent(1 - 1 / ours)));
  std::string sure = "With costs that are wrong by";
  for (const AuditError& error : report.errors) {
    sure += fmt::format("{} {:.0f} % (standard deviation) it takes {} than random order",
                        &error == report.errors.data() ? "" : ", by",
                        100 * error.deviation,
                        saving(error.over_perfect, random));
  }
  out.push_back(sure + ".");
  if (report.pipeline.over_perfect > 0) {
    out.push_back(
        fmt::format("Entrain's pipeline on as many devices ({} × {}, {} simulated) takes "
                    "{} than random order.",
                    report.pipeline.replicas,
                    counted(report.pipeline.lanes, "lane"),
                    counted(report.pipeline.steps, "step"),
                    saving(report.pipeline.over_perfect, random)));
  }
  add_largest_sample(report, out);
  add_memory(report, out);
  if (report.random().steps_without_media > 0) {
    out.push_back(
        fmt::format("In {} of {} of random order a microbatch has no image, video or "
                    "audio (FSDP and ZeRO-3 may hang there); with the sampler in {}.",
                    report.random().steps_without_media,
                    counted(std::ssize(report.perfect_ns), "step"),
                    report.sampler().steps_without_media));
  }
  return out;
}

AuditCells audit_policy_cells(const AuditReport& report) {
  AuditCells rows{
      {"samples to ranks by", "step", "× perfect", "± over steps", "worst", "tokens", "memory"}};
  for (const AuditPolicy& policy : report.policies) {
    rows.push_back({policy.name,
                    fmt::format("{:.3f} s", policy.seconds()),
                    fmt::format("{:.3f}", policy.spread.mean),
                    fmt::format("{:.3f}", policy.spread.std),
                    fmt::format("{:.3f}", policy.worst),
                    format_count(policy.most_tokens),
                    policy.most_bytes > 0 ? format_bytes(policy.most_bytes) : "-"});
  }
  return rows;
}

AuditCells audit_sample_cells(const AuditReport& report) {
  AuditCells rows{{"sample", "tokens"}};
  rows.front().insert(rows.front().end(), report.modules.begin(), report.modules.end());
  for (const AuditSample& sample : report.heaviest) {
    std::vector<std::string>& row =
        rows.emplace_back(std::vector{sample.id, format_count(sample.tokens)});
    for (const std::int64_t work : sample.work_ns) {
      row.push_back(format_duration(std::chrono::nanoseconds{work}));
    }
  }
  return rows;
}

AuditCells audit_cap_cells(const AuditReport& report) {
  AuditCells rows{{"cap in tokens", "samples shortened", "tokens lost", "step"}};
  for (const AuditCap& cap : report.caps) {
    rows.push_back({format_count(cap.tokens),
                    percent(cap.samples),
                    percent(cap.tokens_lost),
                    percent(cap.step)});
  }
  return rows;
}

std::string audit_settings(const AuditReport& report) {
  const AuditRequest& request = report.request;
  std::string text = fmt::format("{}, {} × {}{}: {} of {}, of {}",
                                 request.layout == Layout::kFsdp ? "FSDP" : "DDP",
                                 counted(request.ranks, "rank"),
                                 counted(request.microbatches, "microbatch"),
                                 request.padded ? ", padded" : "",
                                 counted(std::ssize(report.perfect_ns), "step"),
                                 counted(report.global_batch, "sample"),
                                 format_count(report.num_samples));
  if (request.max_tokens > 0) {
    text += fmt::format("; at most {} tokens a microbatch", format_count(request.max_tokens));
  }
  if (request.memory_bytes > 0) {
    text += fmt::format("; at most {} a microbatch", format_bytes(request.memory_bytes));
  }
  if (request.unlimited) {
    text += "; microbatches without limits";
  }
  if (!request.everywhere.empty()) {
    text += fmt::format("; {} in every microbatch", join(request.everywhere));
  }
  if (request.microbatch_ns > 0) {
    text += fmt::format("; {} a microbatch besides its samples",
                        format_duration(std::chrono::nanoseconds{request.microbatch_ns}));
  }
  return text;
}

std::string audit_text(const AuditReport& report) {
  std::string text = report.note + "\n" + audit_settings(report) + "\n\n";
  for (const std::string& finding : audit_findings(report)) {
    text += finding + "\n";
  }
  return text + "\n" + table_of(audit_policy_cells(report)) +
         "tokens, memory: of the largest microbatch, activations\n"
         "\nThe samples that cost most: forward and backward\n" +
         table_of(audit_sample_cells(report)) + "\nIf samples were cut at a number of tokens\n" +
         table_of(audit_cap_cells(report)) +
         "step: the sampler's, of that without a cap; work in proportion to tokens\n";
}

Json audit_json(const AuditReport& report) {
  Json policies = Json::array();
  for (const AuditPolicy& policy : report.policies) {
    Json steps = Json::array();
    for (const std::int64_t step : policy.step_ns) {
      steps.push_back(static_cast<double>(step) * 1e-9);
    }
    policies.push_back({{"name", policy.name},
                        {"what", policy.what},
                        {"seconds", steps},
                        {"over_perfect", policy.spread.mean},
                        {"std", policy.spread.std},
                        {"worst", policy.worst},
                        {"most_tokens", policy.most_tokens},
                        {"most_bytes", policy.most_bytes},
                        {"steps_over_memory", policy.steps_over_memory},
                        {"steps_without_media", policy.steps_without_media}});
  }
  Json errors = Json::array();
  for (const AuditError& error : report.errors) {
    errors.push_back({{"deviation", error.deviation}, {"over_perfect", error.over_perfect}});
  }
  Json caps = Json::array();
  for (const AuditCap& cap : report.caps) {
    caps.push_back({{"tokens", cap.tokens},
                    {"samples", cap.samples},
                    {"tokens_lost", cap.tokens_lost},
                    {"step", cap.step}});
  }
  return {{"note", report.note},
          {"layout", report.request.layout == Layout::kFsdp ? "fsdp" : "ddp"},
          {"ranks", report.request.ranks},
          {"microbatches", report.request.microbatches},
          {"padded", report.request.padded},
          {"microbatch_s", static_cast<double>(report.request.microbatch_ns) * 1e-9},
          {"modules", report.modules},
          {"global_batch", report.global_batch},
          {"samples", report.num_samples},
          {"steps", report.perfect_ns.size()},
          {"bound_over_perfect", report.bound_over_perfect()},
          {"policies", policies},
          {"errors", errors},
          {"caps", caps},
          {"pipeline",
           {{"lanes", report.pipeline.lanes},
            {"replicas", report.pipeline.replicas},
            {"steps", report.pipeline.steps},
            {"over_perfect", report.pipeline.over_perfect}}},
          {"heaviest", samples_json(report.heaviest, report.modules)},
          {"num_over_memory", report.num_over_memory},
          {"over_memory", samples_json(report.over_memory, report.modules)},
          {"findings", audit_findings(report)}};
}

}  // namespace entrain
