// An audit as a page to look at.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/html.h"
#include "entrain/core/base/text.h"
#include "entrain/core/study/audit_text.h"

namespace entrain {
namespace {

constexpr int kMostRanks = 32;  // of a timeline
constexpr int kWidth = 1000;    // of a drawing, in its own units
constexpr int kRow = 14;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2733; --faint: #667788; --line: #d5dce3;
  --idle: #edf0f3; --m0: #e08a1e; --m1: #3b78b8; --m2: #4a9d62; --m3: #9a5fb5; --ours: #3b78b8; }
@media (prefers-color-scheme: dark) { :root { --paper: #14191f; --ink: #e3e8ee; --faint: #93a1b0;
  --line: #333d48; --idle: #222a33; --m0: #f0a550; --m1: #6ba6e0; --m2: #6cc288; --m3: #bd8ad6;
  --ours: #6ba6e0; } }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, li { max-width: 46rem; } .note, figcaption { color: var(--faint); font-size: .875rem; }
figure { margin: .5rem 0 1.5rem; } svg { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; }
th, td { text-align: right; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line); }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere;
  min-width: 9rem; }
.bar { display: grid; grid-template-columns: 11rem 1fr; gap: .5rem; align-items: center;
  font-size: .875rem; margin: .2rem 0; }
.bar div { background: var(--idle); } .bar span { display: block; background: var(--faint);
  color: var(--paper); padding: 0 .3rem; white-space: nowrap; box-sizing: border-box; min-width: 3rem; }
.bar .ours { background: var(--ours); }
dl { font-size: .875rem; display: grid; grid-template-columns: max-content 1fr; gap: .1rem .7rem; }
dt { font-weight: 600; } dd { margin: 0; color: var(--faint); overflow-wrap: anywhere; }
pre { background: var(--idle); padding: .7rem; overflow-x: auto; font-size: .8125rem; }
@media (max-width: 36rem) { dl { display: block; } dd { margin-bottom: .4rem; }
  .bar { grid-template-columns: 8.5rem 1fr; } }
)";

std::string rectangle(double x, double y, double width, double height, int module) {
  return fmt::format(
      "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='var(--{})'/>",
      x,
      y,
      width,
      height,
      module < 0 ? "idle" : fmt::format("m{}", module));
}

std::string bars(const AuditReport& report) {
  double most = 0;
  for (const AuditPolicy& policy : report.policies) {
    most = std::max(most, policy.spread.mean);
  }
  std::string result;
  for (const AuditPolicy& policy : report.policies) {
    const bool ours = &policy == &report.sampler();
    result += fmt::format(
        "<div class='bar'><b>{}</b><div><span{} style='width:{:.1f}%'>{:.3f} ± {:.3f}"
        "</span></div></div>\n",
        policy.name,
        ours ? " class='ours'" : "",
        100 * policy.spread.mean / most,
        policy.spread.mean,
        policy.spread.std);
  }
  return result;
}

// Time from the step's begin to the end of its slowest rank.
std::int64_t length_of(const AuditReport& report, const AuditTimeline& timeline) {
  std::int64_t length = 0;
  if (report.request.layout != Layout::kFsdp) {
    for (const std::vector<std::int64_t>& rank : timeline) {
      length = std::max(length, std::accumulate(rank.begin(), rank.end(), std::int64_t{0}));
    }
    return length;
  }
  for (std::size_t part = 0; part < timeline.front().size(); ++part) {
    std::int64_t slowest = 0;
    for (const std::vector<std::int64_t>& rank : timeline) {
      slowest = std::max(slowest, rank[part]);
    }
    length += slowest;
  }
  return length;
}

// A row for each rank, the ranks with the least and the most work among them; grey is waiting.
std::string timeline_drawing(const AuditReport& report,
                             const AuditTimeline& timeline,
                             std::int64_t longest) {
  const bool lockstep = report.request.layout == Layout::kFsdp;
  const int ranks = std::min(kMostRanks, report.request.ranks);
  const auto modules = static_cast<int>(report.modules.size());
  const double scale =
      static_cast<double>(kWidth) / static_cast<double>(std::max<std::int64_t>(1, longest));
  const double end = static_cast<double>(length_of(report, timeline)) * scale;
  std::string drawing;
  for (int rank = 0; rank < ranks; ++rank) {
    drawing += rectangle(0, rank * kRow, end, kRow - 2, -1);
  }
  double begin = 0;
  std::vector<double> ends(at(ranks));
  for (std::size_t part = 0; part < timeline.front().size(); ++part) {
    double slowest = 0;
    for (int rank = 0; rank < report.request.ranks; ++rank) {
      const double width = static_cast<double>(timeline[at(rank)][part]) * scale;
      slowest = std::max(slowest, width);
      if (rank < ranks && width >= 0.05) {
        drawing += rectangle(lockstep ? begin : ends[at(rank)],
                             rank * kRow,
                             width,
                             kRow - 2,
                             static_cast<int>(part) % modules);
        ends[at(rank)] += width;
      }
    }
    begin += slowest;
  }
  return fmt::format("<svg viewBox='0 0 {} {}' role='img' preserveAspectRatio='none'>{}</svg>\n",
                     kWidth,
                     ranks * kRow,
                     drawing);
}

std::string timelines(const AuditReport& report) {
  const std::int64_t before = length_of(report, report.before);
  const std::int64_t longest = std::max(before, length_of(report, report.after));
  std::string legend;
  for (std::size_t module = 0; module < report.modules.size(); ++module) {
    legend += fmt::format(
        " <b style='color:var(--m{})'>■</b> {}", module, html_text(report.modules[module]));
  }
  const std::string rows =
      report.request.ranks > kMostRanks
          ? fmt::format("the first {} of {} ranks", kMostRanks, report.request.ranks)
          : std::string("a row for each rank");
  const std::string besides =
      report.request.microbatch_ns > 0
          ? "; without " + format_duration(std::chrono::nanoseconds{report.request.microbatch_ns}) +
                " of each microbatch"
          : std::string();
  return fmt::format(
      "<figure><figcaption>Random order: {}; {}{}.{}, grey is waiting</figcaption>\n{}</figure>\n"
      "<figure><figcaption>The sampler, the same samples: {}</figcaption>\n{}</figure>\n",
      format_duration(std::chrono::nanoseconds{before}),
      rows,
      besides,
      legend,
      timeline_drawing(report, report.before, longest),
      format_duration(std::chrono::nanoseconds{length_of(report, report.after)}),
      timeline_drawing(report, report.after, longest));
}

// Bars of a square root scale, so that a few large samples stay visible beside many small ones.
std::string histogram_drawing(const AuditHistogram& histogram, int module) {
  const double most = std::sqrt(
      static_cast<double>(*std::max_element(histogram.samples.begin(), histogram.samples.end())));
  const double width = static_cast<double>(kWidth) / static_cast<double>(histogram.samples.size());
  std::string drawing;
  for (std::size_t bucket = 0; bucket < histogram.samples.size(); ++bucket) {
    const double height =
        most > 0 ? 160 * std::sqrt(static_cast<double>(histogram.samples[bucket])) / most : 0;
    drawing +=
        rectangle(width * static_cast<double>(bucket), 160 - height, width - 2, height, module);
  }
  return fmt::format("<svg viewBox='0 0 {} 160' role='img'>{}</svg>", kWidth, drawing);
}

std::string histograms(const AuditReport& report) {
  std::string result;
  for (std::size_t module = 0; module < report.modules.size(); ++module) {
    const AuditHistogram& histogram = report.histograms[module];
    result += fmt::format(
        "<figure><figcaption>{}: samples by work, 0 to {} (heights: square roots of counts)"
        "</figcaption>\n{}</figure>\n",
        html_text(report.modules[module]),
        format_duration(std::chrono::nanoseconds{histogram.limits.back()}),
        histogram_drawing(histogram, static_cast<int>(module)));
  }
  return result;
}

std::string row_of(const std::vector<std::string>& cells, std::string_view tag) {
  std::string result = "<tr>";
  for (const std::string& cell : cells) {
    result += fmt::format("<{0}>{1}</{0}>", tag, html_text(cell));
  }
  return result + "</tr>\n";
}

std::string table_html(const AuditCells& cells) {
  std::string rows = row_of(cells.front(), "th");
  for (std::size_t row = 1; row < cells.size(); ++row) {
    rows += row_of(cells[row], "td");
  }
  return "<div class='wide'><table>" + rows + "</table></div>\n";
}

// The figures of every policy, and what each does.
std::string policies_html(const AuditReport& report) {
  std::string names;
  for (const AuditPolicy& policy : report.policies) {
    names += fmt::format("<dt>{}</dt><dd>{}</dd>\n", policy.name, html_text(policy.what));
  }
  return table_html(audit_policy_cells(report)) +
         "<p class='note'>tokens, memory: of the largest microbatch, activations. LPT: longest "
         "first, onto the least loaded. veomni, loongforge, megatron: the published balancing of "
         "these trainers.</p>\n<dl>" +
         names + "</dl>\n";
}

std::string head_html(const AuditReport& report, const std::string& made_by) {
  std::string rows;
  const auto add = [&](std::string_view name, const std::string& value) {
    rows += value.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, html_text(value));
  };
  add("data", report.data);
  add("model", report.model);
  add("costs", report.note);
  add("run", audit_settings(report));
  add("seed", std::to_string(report.seed));
  add("made by", made_by);
  return "<dl>" + rows + "</dl>\n";
}

// The sampler's call with the audit's options.
std::string next_html(const AuditReport& report) {
  const AuditRequest& request = report.request;
  std::string options = fmt::format("layout=\"{}\", global_batch={}, microbatch={}, padded={}",
                                    request.layout == Layout::kFsdp ? "fsdp" : "ddp",
                                    report.global_batch,
                                    report.global_batch / (request.ranks * request.microbatches),
                                    request.padded ? "True" : "False");
  const bool kept = report.num_over_memory == 0;  // else the sampler would refuse these limits
  if (kept && request.max_tokens > 0) {
    options += fmt::format(", max_tokens={}", request.max_tokens);
  }
  if (kept && request.memory_bytes > 0) {
    options += fmt::format(", max_bytes={}", request.memory_bytes);
  }
  if (!request.everywhere.empty()) {
    options += fmt::format(", every_rank_has=[\"{}\"]", join(request.everywhere, "\", \""));
  }
  return fmt::format(
      "<pre>{}</pre>\n<p class='note'>In Python on every rank, with this audit's index and model. "
      "For "
      "transformers.Trainer and TRL entrain.balance_trainer(trainer, costs) replaces the last two "
      "lines. docs/sampler.md has the whole loop, and what to do about the loss.</p>\n",
      html_text("costs = entrain.costs(index, model)  # with this audit's profile= or measured=\n"
                "sampler = entrain.BalancedBatchSampler(costs, " +
                options +
                ")\nloader = entrain.balanced_loader(dataset, sampler, collate_fn=collate)"));
}

// Step time, from 0 to that without a cap, over the share of tokens that a cap cuts away.
std::string caps_drawing(const AuditReport& report) {
  constexpr double kHeight = 160;
  const double most = report.caps.empty() ? 0 : report.caps.back().tokens_lost;
  if (most <= 0) {
    return {};
  }
  std::string points = "0,0";
  for (const AuditCap& cap : report.caps) {
    points += fmt::format(
        " {:.1f},{:.1f}", kWidth * cap.tokens_lost / most, kHeight * std::max(0.0, 1 - cap.step));
  }
  return fmt::format(
      "<figure><figcaption>step, from 0 to that without a cap, by tokens cut away, 0 to {:.1f} "
      "%</figcaption>\n<svg viewBox='0 0 {} {}' role='img'><path d='M{} L{},{} L0,{} Z' "
      "fill='var(--idle)'/><polyline points='{}' fill='none' stroke='var(--ours)' "
      "stroke-width='3'/></svg></figure>\n",
      100 * most,
      kWidth,
      kHeight,
      points,
      kWidth,
      kHeight,
      kHeight,
      points);
}

}  // namespace

std::string audit_page(const AuditReport& report, const std::string& made_by) {
  std::string findings;
  for (const std::string& finding : audit_findings(report)) {
    findings += "<li>" + html_text(finding) + "</li>\n";
  }
  return fmt::format(
      "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>"
      "<title>Entrain audit</title><style>{}</style></head><body>\n"
      "<h1>What imbalance costs this run</h1>\n{}<ul>{}</ul>\n"
      "<h2>Step time over perfect balance</h2>\n{}<p class='note'>mean ± standard deviation over "
      "steps; 1 is all work divided by ranks. No assignment is below {:.3f}.</p>\n{}"
      "<h2>What to do next</h2>\n{}"
      "<h2>One step, before and after</h2>\n{}<h2>Work of samples</h2>\n{}"
      "<h2>What a cap on tokens would buy</h2>\n{}{}<p class='note'>step: of the sampler's step "
      "without "
      "a cap; work is shortened in proportion to tokens</p>\n<h2>The samples that cost "
      "most</h2>\n{}"
      "</body></html>\n",
      kStyle,
      head_html(report, made_by),
      findings,
      bars(report),
      report.bound_over_perfect(),
      policies_html(report),
      next_html(report),
      timelines(report),
      histograms(report),
      caps_drawing(report),
      table_html(audit_cap_cells(report)),
      table_html(audit_sample_cells(report)));
}

}  // namespace entrain
