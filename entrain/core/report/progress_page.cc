#include "entrain/core/report/progress_page.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"

namespace entrain {
namespace {

constexpr std::size_t kLabelColumns = 9;
constexpr std::size_t kBarColumns = 24;

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

// Without control characters, those of a byte and those of two (U+0080 to U+009F).
std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      result += '?';
      ++i;
    } else {
      result += byte < 0x20 || byte == 0x7F ? '?' : text[i];
    }
  }
  return result;
}

// At most `columns` characters; the end of what is longer is left out.
std::string fitted(const std::string& text, std::size_t columns) {
  return columns_of(text) <= columns ? text
                                     : text.substr(0, begin_of_column(text, columns - 1)) + "…";
}

// Breaks at blanks; words longer than a line are cut.
std::vector<std::string> wrapped(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines(1);
  for (const std::string_view word : split(text, ' ')) {
    const std::string whole = fitted(std::string(word), columns);
    std::string& line = lines.back();
    if (!line.empty() && columns_of(line) + 1 + columns_of(whole) > columns) {
      lines.push_back(whole);
    } else {
      line += line.empty() ? whole : " " + whole;
    }
  }
  return lines;
}

// "0.1 %", "98 %"
std::string percent(double share) {
  return fmt::format("{:.{}f} %", 100 * share, share < 0.0995 ? 1 : 0);
}

std::string loss_text(const std::optional<double>& value) {
  return value.has_value() ? fmt::format("{:.4f}", *value) : "not a number";
}

// Builds a page of labelled lines.
class Page {
 public:
  explicit Page(const PageStyle& style) : style_(style) {}

  // `label` may be empty: the line continues the one before.
  void line(std::string_view label, const std::string& text) {
    const std::string padded = fmt::format("{:<{}}", label, kLabelColumns);
    add(coloured(padded, "36"), fitted(text, kPageColumns - kLabelColumns), "");
  }
  void title(const std::string& left, const std::string& right) {
    const std::string name = fitted(left, kPageColumns - columns_of(right) - 2);
    const std::size_t gap = kPageColumns - columns_of(name) - columns_of(right);
    add("", name + std::string(gap, ' ') + right, "1");
  }
  void warning(const std::string& text) {
    std::string_view label = "warning";
    for (const std::string& part : wrapped(printable(text), kPageColumns - kLabelColumns)) {
      add(coloured(fmt::format("{:<{}}", label, kLabelColumns), "33"), part, "33");
      label = "";
    }
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  [[nodiscard]] std::string coloured(const std::string& text, std::string_view code) const {
    return style_.colour && !code.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }
  void add(const std::string& head, const std::string& text, std::string_view code) {
    std::string line = head + coloured(text, code);
    while (line.ends_with(' ')) {
      line.pop_back();
    }
    lines_.push_back(line);
  }

  const PageStyle& style_;
  std::vector<std::string> lines_;
};

void add_steps(const RunProgress& progress, Page& page) {
  std::string text = format_count(progress.step);
  if (progress.steps.has_value() && *progress.steps > 0) {
    const double share = static_cast<double>(progress.step) / static_cast<double>(*progress.steps);
    text += fmt::format(
        " of {}  {}  {:.0f} %", format_count(*progress.steps), share_bar(share, 20), 100 * share);
  }
  page.line("step", text);
  std::string times = fmt::format("{} elapsed", format_clock(nanoseconds_of(progress.elapsed_s)));
  if (progress.remaining_s.has_value()) {
    times += fmt::format(", about {} left", format_clock(nanoseconds_of(*progress.remaining_s)));
  }
  page.line("", times);
}

void add_loss(const RunProgress& progress, Page& page) {
  page.line("loss",
            fmt::format("{}  first {}, lowest {}",
                        loss_text(progress.loss),
                        loss_text(progress.first_loss),
                        loss_text(progress.lowest_loss)));
  if (!progress.losses.empty()) {
    page.line("", sparkline(progress.losses));
  }
  if (progress.validation.has_value()) {
    page.line("",
              fmt::format("validation {} after step {}",
                          loss_text(progress.validation->loss),
                          format_count(progress.validation->step)));
  }
}

void add_times(const RunProgress& progress, Page& page) {
  if (!progress.step_s.has_value()) {
    return;
  }
  page.line("time",
            fmt::format("{} a step (median of the last 50), p95 {}",
                        format_duration(nanoseconds_of(*progress.step_s)),
                        format_duration(nanoseconds_of(*progress.p95_step_s))));
  std::string text;
  for (const auto& [name, value] : {std::pair("predicted", progress.predicted_step_s),
                                    std::pair("bound", progress.lower_bound_s)}) {
    if (value.value_or(0) > 0) {
      text += fmt::format("{}{} {}, measured is {:.2f} times that",
                          text.empty() ? "" : "; ",
                          name,
                          format_duration(nanoseconds_of(*value)),
                          *progress.step_s / *value);
    }
  }
  if (columns_of(text) > kPageColumns - kLabelColumns) {
    const std::size_t second = text.find("; ");
    page.line("", text.substr(0, second));
    page.line("", text.substr(second + 2));
  } else if (!text.empty()) {
    page.line("", text);
  }
}

void add_rates(const RunProgress& progress, Page& page) {
  if (progress.llm_tokens_per_s.has_value()) {
    page.line("rate",
              fmt::format("{} LLM tokens/s, {:.1f} samples/s",
                          format_count(std::llround(*progress.llm_tokens_per_s)),
                          *progress.samples_per_s));
  }
  if (progress.data_wait.has_value()) {
    page.line("data",
              fmt::format("{} of the step waiting for samples", percent(*progress.data_wait)));
  }
  std::string_view label = "memory";
  if (progress.state_bytes.has_value()) {
    page.line(label,
              fmt::format("weights, gradients, moments {}, fullest rank {}",
                          format_bytes(*progress.total_bytes),
                          format_bytes(*progress.state_bytes)));
    label = "";
  }
  if (progress.peak_bytes.has_value()) {
    page.line(label,
              fmt::format("activations in the last step, fullest lane {}, predicted {}",
                          format_bytes(*progress.peak_bytes),
                          format_bytes(progress.predicted_peak_bytes.value_or(0))));
    label = "";
  }
  if (progress.highest_peak.has_value()) {
    const LanePeak& peak = *progress.highest_peak;
    page.line(label,
              fmt::format("most so far {}: lane {}:{} in step {}, {}",
                          format_bytes(peak.bytes),
                          peak.replica,
                          peak.lane,
                          format_count(peak.step),
                          peak.limit_bytes > 0 ? fmt::format("{} of its limit {}",
                                                             percent(peak.of_limit()),
                                                             format_bytes(peak.limit_bytes))
                                               : "no limit"));
  }
}

std::string lane_line(const LaneLoad& lane, std::size_t name_columns) {
  std::string name = fmt::format("{}:{}", lane.replica, lane.lane);
  name += lane.stages.empty() ? "" : "  " + printable(lane.stages);
  name = fitted(name, name_columns);
  return fmt::format("{}{}  {}  {:>5} busy, predicted {:.0f} %",
                     name,
                     std::string(name_columns - columns_of(name), ' '),
                     share_bar(lane.busy, kBarColumns),
                     fmt::format("{:.0f} %", 100 * lane.busy),
                     100 * lane.predicted_busy);
}

void add_lanes(const RunProgress& progress, const PageStyle& style, Page& page) {
  if (progress.lanes.empty()) {
    return;
  }
  page.line("lanes",
            progress.bubble.has_value()
                ? fmt::format("idle {} of the last step, on the mean", percent(*progress.bubble))
                : "of the last step");
  constexpr std::size_t kNameColumns = 14;
  if (std::ssize(progress.lanes) <= style.most_lanes) {
    for (const LaneLoad& lane : progress.lanes) {
      page.line("", lane_line(lane, kNameColumns));
    }
    return;
  }
  std::vector<LaneLoad> lanes = progress.lanes;
  std::ranges::stable_sort(lanes,
                           [](const LaneLoad& a, const LaneLoad& b) { return a.busy > b.busy; });
  for (const auto& [label, lane] : {std::pair("busiest", &lanes.front()),
                                    std::pair("median", &lanes[lanes.size() / 2]),
                                    std::pair("idlest", &lanes.back())}) {
    page.line(fmt::format(" {}", label), lane_line(*lane, kNameColumns));
  }
  page.line("", counted(std::ssize(lanes), "lane") + " in all");
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json();
}

}  // namespace

std::string sparkline(const std::vector<double>& values) {
  constexpr std::array<const char*, 8> kLevels = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::optional<double> low;
  std::optional<double> high;
  for (const double value : values) {
    if (std::isfinite(value)) {
      low = std::min(low.value_or(value), value);
      high = std::max(high.value_or(value), value);
    }
  }
  // Sums in another order differ by less.
  const double least = 1e-9 * std::abs(high.value_or(0));
  std::string line;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      line += ' ';
      continue;
    }
    const double share = *high - *low > least ? (value - *low) / (*high - *low) : 0.0;
    line += kLevels[static_cast<std::size_t>(std::lround(share * (kLevels.size() - 1)))];
  }
  return line;
}

std::string share_bar(double share, std::size_t width) {
  const double filled = std::clamp(share, 0.0, 1.0) * static_cast<double>(width);
  std::string text;
  for (std::size_t i = 0; i < width; ++i) {
    text += static_cast<double>(i) + 0.5 <= filled ? "█" : "░";
  }
  return text;
}

std::vector<std::string> progress_page(const RunProgress& progress, const PageStyle& style) {
  Page page(style);
  page.title(
      printable(progress.run),
      fmt::format("{}{}{}", name_of(progress.state), style.clock.empty() ? "" : "  ", style.clock));
  for (const std::string& warning : progress.warnings) {
    page.warning(warning);
  }
  add_steps(progress, page);
  add_loss(progress, page);
  add_times(progress, page);
  add_rates(progress, page);
  add_lanes(progress, style, page);
  return page.take();
}

std::vector<std::string> waiting_page(const std::string& run,
                                      const std::string& metrics,
                                      const PageStyle& style) {
  Page page(style);
  page.title(printable(run), concat("waiting  ", style.clock));
  page.line("", concat("the run has not finished a step yet: ", metrics, " has no row"));
  return page.take();
}

Json to_json(const RunProgress& progress) {
  Json lanes = Json::array();
  for (const LaneLoad& lane : progress.lanes) {
    lanes.push_back({{"replica", lane.replica},
                     {"lane", lane.lane},
                     {"stages", lane.stages},
                     {"busy", lane.busy},
                     {"predicted_busy", lane.predicted_busy}});
  }
  Json validation;
  if (progress.validation.has_value()) {
    validation = {{"step", progress.validation->step},
                  {"loss", or_null(progress.validation->loss)}};
  }
  Json highest_peak;
  if (progress.highest_peak.has_value()) {
    const LanePeak& peak = *progress.highest_peak;
    highest_peak = {{"replica", peak.replica},
                    {"lane", peak.lane},
                    {"step", peak.step},
                    {"bytes", peak.bytes},
                    {"limit_bytes", peak.limit_bytes > 0 ? Json(peak.limit_bytes) : Json()}};
  }
  return {{"run", progress.run},
          {"state", name_of(progress.state)},
          {"step", progress.step},
          {"steps", or_null(progress.steps)},
          {"elapsed_s", progress.elapsed_s},
          {"remaining_s", or_null(progress.remaining_s)},
          {"loss", or_null(progress.loss)},
          {"first_loss", or_null(progress.first_loss)},
          {"lowest_loss", or_null(progress.lowest_loss)},
          {"losses", progress.losses},
          {"validation", validation},
          {"step_s", or_null(progress.step_s)},
          {"p95_step_s", or_null(progress.p95_step_s)},
          {"predicted_step_s", or_null(progress.predicted_step_s)},
          {"lower_bound_s", or_null(progress.lower_bound_s)},
          {"llm_tokens_per_s", or_null(progress.llm_tokens_per_s)},
          {"samples_per_s", or_null(progress.samples_per_s)},
          {"data_wait", or_null(progress.data_wait)},
          {"bubble", or_null(progress.bubble)},
          {"state_bytes", or_null(progress.state_bytes)},
          {"total_state_bytes", or_null(progress.total_bytes)},
          {"peak_bytes", or_null(progress.peak_bytes)},
          {"predicted_peak_bytes", or_null(progress.predicted_peak_bytes)},
          {"highest_peak", highest_peak},
          {"lanes", lanes},
          {"warnings", progress.warnings}};
}

}  // namespace entrain
