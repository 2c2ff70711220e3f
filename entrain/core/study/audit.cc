#include "entrain/core/study/audit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "entrain/core/balance/rivals.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/sample_costs.h"

namespace entrain {
namespace {

using Samples = std::vector<BalanceRequest::Sample>;

constexpr std::size_t kSamplesAtOnce = 1024;
constexpr int kMostSteps = 32;
constexpr std::size_t kHeaviest = 10;
constexpr int kBuckets = 24;
constexpr double kDeviations[] = {0.1, 0.3};
constexpr int kPipelineSteps = 2;
constexpr int kPipelineLanes[] = {8, 4, 2};
// Caps on tokens that so large a share of the samples keeps.
constexpr double kKept[] = {0.999, 0.99, 0.98, 0.95, 0.9, 0.75};

void add_units(const CostTable& table, Samples& samples, std::size_t begin) {
  for (int module = 0; module < table.num_modules(); ++module) {
    for (std::size_t row = 0; row < table.ids.size(); ++row) {
      BalanceRequest::Sample& sample = samples[begin + row];
      for (const TableUnit& unit : table.units[at(module)][row]) {
        sample.work[at(module)] += unit.forward_ns + unit.backward_ns;
        sample.bytes += std::max<std::int64_t>(0, unit.activation_bytes);
        sample.tokens += module + 1 == table.num_modules() ? unit.tokens : 0;
      }
    }
  }
}

std::int64_t whole(const BalanceRequest::Sample& sample) {
  return std::accumulate(sample.work.begin(), sample.work.end(), std::int64_t{0});
}

double ratio(std::int64_t time, std::int64_t whole) {
  return static_cast<double>(time) / static_cast<double>(std::max<std::int64_t>(1, whole));
}

Samples select(const Samples& samples, const std::vector<int>& rows) {
  Samples result;
  for (const int row : rows) {
    result.push_back(samples[at(row)]);
  }
  return result;
}

// What one assignment does to memory and media.
void look_at_cells(const BalanceRequest& request,
                   const CellOf& cells,
                   std::int64_t memory,
                   AuditPolicy& policy) {
  struct Cell {
    std::int64_t tokens = 0, longest = 0, bytes = 0, count = 0, encoder = 0;
  };
  std::vector<Cell> sums(at(request.num_cells()));
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Cell& cell = sums[at(cells[i])];
    const BalanceRequest::Sample& sample = request.samples[i];
    cell.tokens += sample.tokens;
    cell.longest = std::max(cell.longest, sample.tokens);
    cell.bytes += sample.bytes;
    cell.count += 1;
    cell.encoder += whole(sample) - sample.work[at(request.num_modules - 1)];
  }
  bool over = false;
  bool without = false;
  for (const Cell& cell : sums) {
    policy.most_tokens =
        std::max(policy.most_tokens, request.padded ? cell.count * cell.longest : cell.tokens);
    policy.most_bytes = std::max(policy.most_bytes, cell.bytes);
    over = over || (memory > 0 && cell.bytes > memory);
    without = without || (request.num_modules > 1 && cell.encoder == 0);
  }
  policy.steps_over_memory += over ? 1 : 0;
  policy.steps_without_media += without ? 1 : 0;
}

AuditTimeline timeline_of(const BalanceRequest& request, const CellOf& cells) {
  const int modules = request.num_modules;
  AuditTimeline result(at(request.ranks),
                       std::vector<std::int64_t>(at(request.microbatches * modules)));
  std::vector<std::int64_t> count(at(request.num_cells()));
  std::vector<std::int64_t> longest(at(request.num_cells()));
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const int cell = cells[i];
    const auto& work = request.samples[i].work;
    auto& rank = result[at(cell % request.ranks)];
    const int first = cell / request.ranks * modules;
    for (int module = 0; module < modules; ++module) {
      rank[at(first + module)] += work[at(module)];
    }
    count[at(cell)] += 1;
    longest[at(cell)] = std::max(longest[at(cell)], work[at(modules - 1)]);
    if (request.padded) {
      rank[at(first + modules - 1)] = count[at(cell)] * longest[at(cell)];
    }
  }
  return result;
}

AuditHistogram histogram_of(const Samples& samples, int module) {
  std::int64_t most = 1;
  for (const BalanceRequest::Sample& sample : samples) {
    most = std::max(most, sample.work[at(module)]);
  }
  AuditHistogram result;
  result.samples.resize(kBuckets);
  for (int bucket = 1; bucket <= kBuckets; ++bucket) {
    result.limits.push_back(most * bucket / kBuckets);
  }
  for (const BalanceRequest::Sample& sample : samples) {
    const auto bucket =
        std::lower_bound(result.limits.begin(), result.limits.end(), sample.work[at(module)]);
    ++result.samples[at(bucket - result.limits.begin())];
  }
  return result;
}

class Audit {
 public:
  Audit(const Study& study, const AuditRequest& request)
      : study_(study), samples_(balance_samples(study)), base_(balance_request(study, request)) {
    report_.request = request;
    report_.note = request.costs_note.empty() ? study.note() : request.costs_note;
    report_.data = study.inputs.index;
    if (!study.inputs.model.empty()) {
      report_.model = fmt::format("{} ({})", study.model.name, study.inputs.model);
    }
    report_.seed = study.inputs.seed;
    report_.modules = study.module_names();
    report_.global_batch = study.inputs.global_batch;
    report_.num_samples = std::ssize(samples_);
  }

  AuditReport run() {
    const int steps = num_steps();
    for (const BalanceRival& rival : balance_rivals()) {
      add_policy(rival.name, rival.what);
    }
    add_policy("entrain", "the sampler: balanced in every module");
    for (const double deviation : kDeviations) {
      report_.errors.push_back({deviation, 0});
    }
    choose_caps();
    list_samples();
    Progress progress("steps", steps);
    for (int step = 0; step < steps; ++step) {
      look_at(step);
      progress.advance(1);
    }
    finish(steps);
    if (report_.request.pipeline) {
      try_pipelines(std::min(steps, kPipelineSteps));
    }
    return std::move(report_);
  }

 private:
  [[nodiscard]] int num_steps() const {
    if (report_.request.steps > 0) {
      return report_.request.steps;
    }
    const std::int64_t epoch = report_.num_samples / report_.global_batch;
    return study_.with_replacement
               ? 8
               : static_cast<int>(std::clamp<std::int64_t>(epoch, 1, kMostSteps));
  }

  void add_policy(std::string_view name, std::string_view what) {
    AuditPolicy policy;
    policy.name = name;
    policy.what = what;
    report_.policies.push_back(std::move(policy));
  }

  void choose_caps() {
    std::vector<double> tokens;
    for (const BalanceRequest::Sample& sample : samples_) {
      tokens.push_back(static_cast<double>(sample.tokens));
    }
    for (const double kept : kKept) {
      const auto cap = static_cast<std::int64_t>(percentile(tokens, kept));
      if (cap > 0 && (report_.caps.empty() || cap < report_.caps.back().tokens)) {
        report_.caps.push_back({.tokens = cap});
      }
    }
    const double all = std::accumulate(tokens.begin(), tokens.end(), 0.0);
    for (AuditCap& cap : report_.caps) {
      for (const double value : tokens) {
        const double lost = std::max(0.0, value - static_cast<double>(cap.tokens));
        cap.samples += lost > 0 ? 1.0 / static_cast<double>(tokens.size()) : 0;
        cap.tokens_lost += lost / all;
      }
    }
  }

  AuditSample named(int row) const {
    const BalanceRequest::Sample& sample = samples_[at(row)];
    const auto end = sample.work.begin() + base_.num_modules;
    return {study_.ids[at(row)], {sample.work.begin(), end}, sample.tokens, sample.bytes};
  }

  void list_samples() {
    std::vector<int> order(samples_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto count = std::min(kHeaviest, order.size());
    std::partial_sort(order.begin(),
                      order.begin() + static_cast<std::ptrdiff_t>(count),
                      order.end(),
                      [&](int a, int b) {
                        const std::int64_t mine = whole(samples_[at(a)]);
                        const std::int64_t theirs = whole(samples_[at(b)]);
                        return mine != theirs ? mine > theirs : a < b;
                      });
    for (std::size_t i = 0; i < count; ++i) {
      report_.heaviest.push_back(named(order[i]));
    }
    BalanceRequest all = base_;
    all.samples = samples_;
    const std::vector<int> oversized = oversized_samples(all);
    report_.num_over_memory = std::ssize(oversized);
    for (std::size_t i = 0; i < std::min(kHeaviest, oversized.size()); ++i) {
      report_.over_memory.push_back(named(oversized[i]));
    }
    if (!oversized.empty()) {  // no assignment keeps these limits
      base_.max_tokens = 0;
      base_.max_bytes = 0;
    }
    for (int module = 0; module < base_.num_modules; ++module) {
      report_.histograms.push_back(histogram_of(samples_, module));
    }
  }

  void look_at(int step) {
    BalanceRequest request = base_;
    request.samples = select(samples_, draw_batch(study_, step).rows);
    request.seed = step_seed(study_.inputs.seed, 0, step);
    const std::int64_t perfect = perfect_step_time(request);
    report_.perfect_ns.push_back(perfect + constant_ns());
    report_.bound_ns.push_back(step_time_bound(request) + constant_ns());
    std::int64_t largest = 0;
    for (const BalanceRequest::Sample& sample : request.samples) {
      largest = std::max(largest, whole(sample));
    }
    report_.bound_by_one_sample.push_back(largest >= perfect ? 1 : 0);
    const std::span<const BalanceRival> rivals = balance_rivals();
    for (std::size_t i = 0; i < rivals.size(); ++i) {
      count_in(request, rivals[i].assign(request), report_.policies[i], step == 0 && i == 0);
    }
    if (base_.max_tokens == 0 && base_.max_bytes == 0 && !report_.request.unlimited) {
      limit_as(drawn_cells(request), request);
    }
    const CellOf ours = balance_step(request, step);
    count_in(request, ours, report_.policies.back(), false);
    if (step == 0) {
      report_.after = timeline_of(request, ours);
    }
    try_errors(request);
    try_caps(request, timed(request, ours));
  }

  // Every rank takes its microbatches' constants, whatever the samples in them: under FSDP the
  // slowest of each microbatch, too.
  [[nodiscard]] std::int64_t constant_ns() const {
    return report_.request.microbatches * report_.request.microbatch_ns;
  }

  [[nodiscard]] std::int64_t timed(const BalanceRequest& request, const CellOf& cells) const {
    return step_time(request, cells) + constant_ns();
  }

  void count_in(const BalanceRequest& request,
                const CellOf& cells,
                AuditPolicy& policy,
                bool before) {
    policy.step_ns.push_back(timed(request, cells));
    look_at_cells(request, cells, report_.request.memory_bytes, policy);
    if (before) {
      report_.before = timeline_of(request, cells);
    }
  }

  void try_errors(const BalanceRequest& request) {
    Rng rng(request.seed, 2);
    for (AuditError& error : report_.errors) {
      BalanceRequest wrong = request;
      for (BalanceRequest::Sample& sample : wrong.samples) {
        for (std::int64_t& work : sample.work) {
          // Uniform of this standard deviation: its half width is √3 of it.
          const double factor = 1 + error.deviation * std::sqrt(3.0) * (2 * rng.uniform() - 1);
          work = static_cast<std::int64_t>(static_cast<double>(work) * factor);
        }
      }
      error.over_perfect += ratio(timed(request, balance(wrong)), report_.perfect_ns.back());
    }
  }

  void try_caps(const BalanceRequest& request, std::int64_t uncapped) {
    for (AuditCap& cap : report_.caps) {
      BalanceRequest shorter = request;
      for (BalanceRequest::Sample& sample : shorter.samples) {
        if (sample.tokens > cap.tokens) {
          const double left = static_cast<double>(cap.tokens) / static_cast<double>(sample.tokens);
          for (std::int64_t& work : sample.work) {
            work = static_cast<std::int64_t>(static_cast<double>(work) * left);
          }
          sample.tokens = cap.tokens;
        }
      }
      cap.step += ratio(timed(shorter, balance(shorter)), uncapped);
    }
  }

  void finish(int steps) {
    for (AuditPolicy& policy : report_.policies) {
      std::vector<double> ratios;
      for (std::size_t step = 0; step < policy.step_ns.size(); ++step) {
        ratios.push_back(ratio(policy.step_ns[step], report_.perfect_ns[step]));
      }
      policy.spread = spread_of(ratios);
      policy.worst = *std::max_element(ratios.begin(), ratios.end());
    }
    for (AuditError& error : report_.errors) {
      error.over_perfect /= steps;
    }
    for (AuditCap& cap : report_.caps) {
      cap.step /= steps;
    }
  }

  // Every number of lanes that divides the ranks, each with slots as large as a microbatch: a lane
  // has `lanes` times as many of them as a rank and one of `lanes` parts of the layers, so that its
  // constants are those of a rank.
  void try_pipelines(int steps) {
    for (const int lanes : kPipelineLanes) {
      if (report_.request.ranks % lanes != 0) {
        continue;
      }
      LaneSplitRequest split;
      split.lanes = lanes;
      split.replicas = report_.request.ranks / lanes;
      split.num_slots = report_.request.microbatches * lanes;
      split.shared_lanes = SharedLanes::kToo;
      const LaneSplitResult found = search_split(study_, split, steps);
      if (!found.fits()) {
        continue;
      }
      double sum = 0;
      for (std::size_t step = 0; step < found.splits.front().steps.size(); ++step) {
        sum += ratio(found.splits.front().steps[step] + constant_ns(), report_.perfect_ns[step]);
      }
      const double mean = sum / steps;
      if (report_.pipeline.over_perfect == 0 || mean < report_.pipeline.over_perfect) {
        report_.pipeline = {lanes, split.replicas, steps, mean};
      }
    }
  }

  const Study& study_;
  Samples samples_;
  BalanceRequest base_;
  AuditReport report_;
};

}  // namespace

double AuditPolicy::seconds() const {
  const double sum = std::accumulate(step_ns.begin(), step_ns.end(), 0.0);
  return step_ns.empty() ? 0 : sum * 1e-9 / static_cast<double>(step_ns.size());
}

double AuditReport::bound_over_perfect() const {
  double sum = 0;
  for (std::size_t step = 0; step < bound_ns.size(); ++step) {
    sum += ratio(bound_ns[step], perfect_ns[step]);
  }
  return bound_ns.empty() ? 0 : sum / static_cast<double>(bound_ns.size());
}

std::vector<BalanceRequest::Sample> balance_samples(const Study& study) {
  if (std::ssize(study.module_names()) > kMaxBalanceModules) {
    throw InvalidInput(fmt::format("the model has {} modules; at most {} can be balanced",
                                   study.module_names().size(),
                                   kMaxBalanceModules));
  }
  Samples result(study.ids.size());
  if (study.table) {
    add_units(*study.table, result, 0);
    return result;
  }
  for (std::size_t begin = 0; begin < study.samples.size(); begin += kSamplesAtOnce) {
    const std::size_t count = std::min(kSamplesAtOnce, study.samples.size() - begin);
    add_units(sample_costs(study.model,
                           study.profile,
                           std::span(study.ids).subspan(begin, count),
                           batch_work(study.model, std::span(study.samples).subspan(begin, count))),
              result,
              begin);
  }
  return result;
}

BalanceRequest balance_request(const Study& study, const AuditRequest& request) {
  BalanceRequest result;
  result.layout = request.layout;
  result.ranks = request.ranks;
  result.microbatches = request.microbatches;
  result.padded = request.padded;
  result.max_tokens = request.max_tokens;
  result.max_bytes = request.memory_bytes;
  result.search_steps = request.search_steps;
  const std::vector<std::string> modules = study.module_names();
  result.num_modules = static_cast<int>(modules.size());
  std::copy(modules.begin(), modules.end(), result.module_names.begin());
  const std::vector<std::string> encoders(modules.begin(), modules.end() - 1);
  for (const std::string& name : request.everywhere) {
    check_name("everywhere", "encoder", name, encoders);
    result.everywhere[at(std::find(encoders.begin(), encoders.end(), name) - encoders.begin())] =
        true;
  }
  return result;
}

std::uint64_t step_seed(std::uint64_t seed, std::int64_t epoch, std::int64_t step) {
  return seed * 1'000'003 + static_cast<std::uint64_t>(epoch) * 10'007 +
         static_cast<std::uint64_t>(step);
}

CellOf balance_step(const BalanceRequest& request, int step) {
  try {
    return balance(request);
  } catch (const NothingFits& error) {
    throw NothingFits(fmt::format("step {}: {}", step, error.what()));
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("step {}: {}", step, error.what()));
  }
}

void check_layout(const Study& study, const AuditRequest& request) {
  const std::int64_t cells = std::int64_t{request.ranks} * request.microbatches;
  if (cells < 1 || study.inputs.global_batch % cells != 0) {
    throw InvalidInput(fmt::format("a global batch of {} is no multiple of {} × {}",
                                   counted(study.inputs.global_batch, "sample"),
                                   counted(request.ranks, "rank"),
                                   counted(request.microbatches, "microbatch")));
  }
}

AuditReport audit(const Study& study, const AuditRequest& request) {
  check_layout(study, request);
  return Audit(study, request).run();
}

}  // namespace entrain
