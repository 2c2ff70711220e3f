// The cases of a study as tables for people.
#include <string_view>

#include <fmt/format.h>

#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"
#include "entrain/core/study/summary.h"

namespace entrain {
namespace {

constexpr std::size_t kLabels = 2;  // of a row: policy and schedule

// What the words of the time table mean, a line each.
constexpr std::string_view kTimeTerms =
    "step time, p95: median and 95th percentile over the steps; vs best: over the fastest that "
    "fits\n"
    "bound: a time that no assignment and no order of the schedule's operations on these lanes "
    "can\n"
    "beat, lower where the schedule splits backwards; gap: step time above it\n"
    "bubble: share of lanes' time without forward and backward; deferred: samples whose LLM work\n"
    "runs later\n"
    "peak memory: activations on the fullest lane; assign: time that making the assignment takes\n";

constexpr std::string_view kChunkTerms =
    "chunks: token ranges of the samples that are cut, their LLM work in slots one after another\n";

constexpr std::string_view kBalanceTerms =
    "K: slots of a replica; CV: standard deviation (std) over mean of its slots, mean of replicas\n"
    "floor: the least CV that a replica's indivisible units allow\n";

// Of the causes of a gap.
constexpr std::string_view kCauseTerms =
    "fill, drain: before the lane's first and after its last operation; oversized: waits for "
    "units\n"
    "heavier than a mean slot; uneven: units are indivisible; order: waits for earlier "
    "operations;\n"
    "launches: constants per operation; links: messages; less in bound: what the bound counts "
    "too\n";

// Whether a median hides what the steps take in all.
bool uneven(const std::vector<CaseSummary>& summaries) {
  constexpr double kNotable = 1.02;
  return std::any_of(summaries.begin(), summaries.end(), [](const CaseSummary& summary) {
    return summary.step_mean_s > kNotable * summary.step_s ||
           summary.step_s > kNotable * summary.step_mean_s;
  });
}

bool has_chunks(const std::vector<CaseSummary>& summaries) {
  return std::any_of(summaries.begin(), summaries.end(), [](const CaseSummary& summary) {
    return summary.chunks > 0;
  });
}

std::string time_table(const std::vector<CaseSummary>& summaries) {
  const bool limited =
      std::any_of(summaries.begin(), summaries.end(), [](const CaseSummary& summary) {
        return summary.over_bytes > 0;
      });
  const bool cut = has_chunks(summaries);
  std::vector<std::string> header = {"policy",
                                     "schedule",
                                     "step time",
                                     "p95",
                                     "vs best",
                                     "bound",
                                     "gap",
                                     "bubble",
                                     "slots",
                                     "deferred"};
  const bool means = uneven(summaries);
  if (means) {
    header.insert(header.begin() + 4, "mean");
  }
  if (cut) {
    header.emplace_back("chunks");
  }
  header.emplace_back("peak memory");
  if (limited) {
    header.emplace_back("over limit by");
  }
  header.emplace_back("assign");
  Table table(header, kLabels);
  for (const CaseSummary& summary : summaries) {
    if (!summary.has_result()) {
      std::vector<std::string> cells(header.size(), "-");
      cells[0] = summary.policy;
      cells[1] = summary.schedule;
      table.add_row(cells);
      continue;
    }
    std::vector<std::string> cells = {
        summary.policy,
        summary.schedule,
        format_seconds(summary.step_s),
        format_seconds(summary.step_p95_s),
        format_fixed(summary.vs_best, 3) + "x",
        format_seconds(summary.lower_bound_s),
        format_fixed(100 * summary.gap, 1) + " %",
        format_fixed(100 * summary.bubble, 1) + " %",
        format_fixed(summary.num_slots, 1) + (summary.given_slots > 0 ? "" : " own"),
        format_fixed(summary.deferred, 1)};
    if (means) {
      cells.insert(cells.begin() + 4, format_seconds(summary.step_mean_s));
    }
    if (cut) {
      cells.push_back(format_fixed(summary.chunks, 1));
    }
    cells.push_back(format_bytes(summary.peak_bytes));
    if (limited) {
      cells.push_back(summary.over_bytes > 0 ? format_bytes(summary.over_bytes) : "-");
    }
    cells.push_back(format_fixed(summary.assign_ms, 1) + " ms");
    table.add_row(cells);
  }
  return table.to_text();
}

// Of the case in which it is largest, as a share of the bound.
std::string reduction_text(double share) {
  constexpr double kNotable = 0.0005;
  return share < kNotable
             ? ""
             : fmt::format(
                   "reduction of gradients over replicas: up to {:.1f} % of the bound on one lane, "
                   "while\nothers wait (drain); the bound has it too (less in bound)\n",
                   100 * share);
}

std::string cause_table(const std::vector<CaseSummary>& summaries) {
  std::vector<std::string> header = {"policy", "schedule"};
  for (int cause = 0; cause < kNumGapCauses; ++cause) {
    header.emplace_back(name_of(static_cast<GapCause>(cause)));
  }
  header.insert(header.end(), {"less in bound", "gap"});
  Table table(header, kLabels);
  bool any = false;
  double reduction = 0;
  for (const CaseSummary& summary : summaries) {
    reduction = std::max(reduction, summary.reduction);
    if (summary.causes.empty()) {
      continue;
    }
    any = true;
    std::vector<std::string> cells = {summary.policy, summary.schedule};
    double sum = -summary.in_bound;
    for (const double cause : summary.causes) {
      cells.push_back(format_fixed(100 * cause, 1) + " %");
      sum += cause;
    }
    cells.push_back(format_fixed(-100 * summary.in_bound, 1) + " %");
    cells.push_back(format_fixed(100 * sum, 1) + " %");
    table.add_row(cells);
  }
  return any ? "\ntime above the bound by cause, on the busiest lane of the slowest replica, mean "
               "over steps:\n" +
                   table.to_text() + std::string(kCauseTerms) + reduction_text(reduction)
             : "";
}

std::string balance_table(const std::vector<CaseSummary>& summaries,
                          const std::vector<std::string>& modules) {
  std::vector<std::string> header = {"policy", "schedule", "K"};
  for (const std::string& module : modules) {
    for (const char* figure :
         {" CV", " floor", " std ms", " max/mean", " CV of replicas", " max/mean of replicas"}) {
      header.push_back(module + figure);
    }
  }
  Table table(header, kLabels);
  for (const CaseSummary& summary : summaries) {
    std::vector<std::string> cells = {summary.policy + (summary.equal_slots ? "" : " *"),
                                      summary.schedule,
                                      format_range(summary.balance_slots)};
    for (std::size_t m = 0; m < modules.size(); ++m) {
      if (!summary.has_result()) {
        cells.insert(cells.end(), 6, "-");
        continue;
      }
      const ModuleSummary& module = summary.modules[m];
      for (const double value : {module.cv,
                                 module.floor_cv,
                                 1e3 * module.std_s,
                                 module.max_over_mean,
                                 module.replica_cv,
                                 module.replica_max_over_mean}) {
        cells.push_back(format_fixed(value, 3));
      }
    }
    table.add_row(cells);
  }
  return table.to_text();
}

}  // namespace

std::string to_string(const std::vector<CaseSummary>& summaries,
                      const std::vector<std::string>& modules,
                      const std::vector<int>& slots) {
  std::string text = time_table(summaries);
  text += slots.empty()
              ? "slots: the plan's for every policy that does not choose its own (\"own\")\n"
              : fmt::format(
                    "slots: the fastest of {} for every policy that does not choose "
                    "its own (\"own\"),\nof those that keep the memory limit on most steps\n",
                    fmt::join(slots, ", "));
  text += kTimeTerms;
  text += has_chunks(summaries) ? kChunkTerms : "";
  text += uneven(summaries)
              ? "mean: of the steps; they differ, so what an epoch takes is told by it\n"
              : "";
  text += gain_text(summaries);
  text += cause_table(summaries);
  text +=
      "\nbalance of forward times, so that policies compare: assigned again with the plan's number "
      "of\nslots (K) where the rows above have another\n";
  text += balance_table(summaries, modules);
  text += kBalanceTerms;
  for (const CaseSummary& summary : summaries) {
    if (!summary.equal_slots) {
      text += "* at the policy's own number of slots: not to be compared with the others\n";
      break;
    }
  }
  for (const CaseSummary& summary : summaries) {
    const std::string name = fmt::format("{} with {}", summary.policy, summary.schedule);
    if (summary.refused > 0) {
      const bool objects = summary.reason.starts_with(kObjection);  // whatever the policy
      const std::string line = objects ? fmt::format("{}: {}\n", summary.schedule, summary.reason)
                                       : fmt::format("{}: no result on {} of {}: {}\n",
                                                     name,
                                                     summary.refused,
                                                     counted(summary.steps, "step"),
                                                     summary.reason);
      text += text.find(line) == std::string::npos ? line : "";
    }
    if (summary.over_bytes > 0) {
      text += fmt::format("{}: over its memory limit: {}\n", name, summary.over);
    }
  }
  return text;
}

std::string gain_text(const std::vector<CaseSummary>& summaries) {
  const auto find = [&](std::string_view policy, std::string_view schedule) -> const CaseSummary* {
    for (const CaseSummary& summary : summaries) {
      if (summary.policy == policy && summary.schedule == schedule && summary.has_result()) {
        return &summary;
      }
    }
    return nullptr;
  };
  const auto fastest = [&](const auto& eligible) {
    const CaseSummary* best = nullptr;
    for (const CaseSummary& summary : summaries) {
      if (summary.has_result() && summary.fits() && eligible(summary) &&
          (best == nullptr || summary.step_s < best->step_s)) {
        best = &summary;
      }
    }
    return best;
  };
  const CaseSummary* best = fastest([](const CaseSummary&) { return true; });
  const CaseSummary* from = find("sequential", "1f1b");
  from = from == nullptr && !summaries.empty() && summaries.front().has_result()
             ? &summaries.front()
             : from;
  if (best == nullptr || from == nullptr || best == from || best->step_s <= 0) {
    return "";
  }
  const auto change = [&](const char* what, const CaseSummary* to) {
    return to == nullptr || to->step_s <= 0 ? std::string()
                                            : fmt::format("; {} alone ({} with {}) {:.3f}x",
                                                          what,
                                                          to->policy,
                                                          to->schedule,
                                                          from->step_s / to->step_s);
  };
  std::string text = fmt::format("gain: {} with {} is {:.3f}x as fast as {} with {}",
                                 best->policy,
                                 best->schedule,
                                 from->step_s / best->step_s,
                                 from->policy,
                                 from->schedule);
  if (from->over_bytes > 0) {
    text += fmt::format(", which is {} over its memory limit", format_bytes(from->over_bytes));
  }
  if (best->policy == from->policy || best->schedule == from->schedule) {
    text +=
        best->policy == from->policy ? ", all of it by the schedule" : ", all of it by the policy";
  } else {
    text += change("policy", find(best->policy, from->schedule));
    text += change("schedule", find(from->policy, best->schedule));
  }
  const CaseSummary* second = fastest([&](const CaseSummary& summary) {
    return summary.schedule == best->schedule && summary.policy != best->policy;
  });
  if (second != nullptr && second != from) {
    text +=
        fmt::format("; {:.3f}x as fast as the best other policy with that schedule that fits, {}",
                    second->step_s / best->step_s,
                    second->policy);
  }
  return text + "\n";
}

}  // namespace entrain
