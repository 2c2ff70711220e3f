#include "entrain/core/study/gain.h"

#include <string_view>

#include <fmt/format.h>

namespace entrain {

std::string gain_text(const std::vector<CaseSummary>& summaries) {
  const auto find = [&](std::string_view policy, std::string_view schedule) -> const CaseSummary* {
    for (const CaseSummary& summary : summaries) {
      if (summary.policy == policy && summary.schedule == schedule && summary.has_result()) {
        return &summary;
      }
    }
    return nullptr;
  };
  const CaseSummary* best = nullptr;
  for (const CaseSummary& summary : summaries) {
    if (summary.has_result() && summary.fits() &&
        (best == nullptr || summary.step_s < best->step_s)) {
      best = &summary;
    }
  }
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
  if (best->policy == from->policy || best->schedule == from->schedule) {
    text +=
        best->policy == from->policy ? ", all of it by the schedule" : ", all of it by the policy";
  } else {
    text += change("policy", find(best->policy, from->schedule));
    text += change("schedule", find(from->policy, best->schedule));
  }
  const CaseSummary* second = nullptr;
  for (const CaseSummary& summary : summaries) {
    if (summary.has_result() && summary.fits() && summary.schedule == best->schedule &&
        summary.policy != best->policy && (second == nullptr || summary.step_s < second->step_s)) {
      second = &summary;
    }
  }
  if (second != nullptr && second != from) {
    text += fmt::format("; {:.3f}x as fast as the best other policy with that schedule, {}",
                        second->step_s / best->step_s,
                        second->policy);
  }
  return text + "\n";
}

}  // namespace entrain
