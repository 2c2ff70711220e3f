// What an assignment costs, the least it can, and whether it keeps the rules: written for reading,
// and sharing nothing with cell_loads.cc.
#include "entrain/core/balance/request.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

constexpr std::int64_t kMostWork = 1'000'000'000'000;
constexpr std::int64_t kMostBytes = 10'000'000'000'000;
constexpr std::int64_t kMostTokens = 1'000'000'000'000;

void check_range(std::int64_t value, std::int64_t most, const char* what, std::size_t sample) {
  if (value < 0 || value > most) {
    throw InvalidInput(
        fmt::format("{} of sample {} is {}; allowed are 0 to {}", what, sample, value, most));
  }
}

// "vision", "module 0"
std::string name_of(const BalanceRequest& request, int module) {
  const std::string& name = request.module_names[at(module)];
  return name.empty() ? fmt::format("module {}", module) : name;
}

std::int64_t ceil_div(std::int64_t total, std::int64_t parts) {
  return (total + parts - 1) / parts;
}

// The least possible largest sum of a rank: all work / ranks, or for some j the least j + 1 of the
// ranks · j + 1 largest, since one rank has as many of them.
std::int64_t largest_sum_bound(std::vector<std::int64_t> work, int ranks) {
  std::sort(work.begin(), work.end(), std::greater<>());
  std::int64_t total = 0;
  for (const std::int64_t value : work) {
    total += value;
  }
  std::int64_t bound = ceil_div(total, ranks);
  for (std::size_t last = 0; last < work.size(); last += at(ranks)) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i <= last / at(ranks); ++i) {
      sum += work[last - i];
    }
    bound = std::max(bound, sum);
  }
  return bound;
}

// The least possible sum of the largest sample and what must go beside it: under DDP a sample in
// each other microbatch of its rank, under FSDP the largest of each other microbatch. One of any j
// microbatches has a sample at least as large as the ranks · j-th smallest, since it has so many.
std::int64_t largest_sample_bound(const BalanceRequest& request, std::vector<std::int64_t> work) {
  std::sort(work.begin(), work.end());
  std::int64_t bound = work.back();
  for (int other = 1; other < request.microbatches; ++other) {
    bound += work[at(request.layout == Layout::kDdp ? other : other * request.ranks) - 1];
  }
  return bound;
}

std::int64_t bound_of(const BalanceRequest& request, const std::vector<std::int64_t>& work) {
  return std::max(largest_sum_bound(work, request.ranks), largest_sample_bound(request, work));
}

std::vector<std::int64_t> work_of(const BalanceRequest& request, int first, int last) {
  std::vector<std::int64_t> result;
  for (const BalanceRequest::Sample& sample : request.samples) {
    std::int64_t work = 0;
    for (int module = first; module < last; ++module) {
      work += sample.work[at(module)];
    }
    result.push_back(work);
  }
  return result;
}

// [cell] its samples
std::vector<std::vector<int>> samples_of_cells(const BalanceRequest& request, const CellOf& cells) {
  std::vector<std::vector<int>> result(at(request.num_cells()));
  for (std::size_t sample = 0; sample < cells.size(); ++sample) {
    result[at(cells[sample])].push_back(static_cast<int>(sample));
  }
  return result;
}

std::int64_t module_time(const BalanceRequest& request,
                         const std::vector<int>& members,
                         int module) {
  std::int64_t sum = 0;
  std::int64_t longest = 0;
  for (const int sample : members) {
    sum += request.samples[at(sample)].work[at(module)];
    longest = std::max(longest, request.samples[at(sample)].work[at(module)]);
  }
  const bool padded = request.padded && module == request.num_modules - 1;
  return padded ? longest * static_cast<std::int64_t>(members.size()) : sum;
}

// What of a microbatch's samples limits count.
struct Held {
  std::int64_t tokens = 0;  // as computed: padded where the request pads
  std::int64_t bytes = 0;
};

Held held_by(const BalanceRequest& request, const std::vector<int>& members) {
  Held held;
  std::int64_t longest = 0;
  for (const int member : members) {
    const BalanceRequest::Sample& sample = request.samples[at(member)];
    held.tokens += sample.tokens;
    longest = std::max(longest, sample.tokens);
    held.bytes += sample.bytes;
  }
  held.tokens = request.padded ? longest * std::ssize(members) : held.tokens;
  return held;
}

void find_violations(const BalanceRequest& request,
                     const std::vector<int>& members,
                     const std::string& where,
                     std::vector<std::string>& out) {
  const auto count = static_cast<std::int64_t>(members.size());
  if (count == 0) {
    out.push_back(where + " has no sample");
    return;
  }
  const Held held = held_by(request, members);
  const auto check = [&](std::int64_t value, std::int64_t most, const char* unit) {
    if (most > 0 && value > most) {
      out.push_back(fmt::format("{} has {} {}; allowed are {}", where, value, unit, most));
    }
  };
  check(count, request.max_samples, "samples");
  check(held.tokens, request.max_tokens, "tokens");
  check(held.bytes, request.max_bytes, "bytes");
  for (int module = 0; module < request.num_modules; ++module) {
    const auto works = [&](int sample) { return request.samples[at(sample)].work[at(module)] > 0; };
    if (request.everywhere[at(module)] && std::ranges::none_of(members, works)) {
      out.push_back(
          fmt::format("{} has no sample with work in {}", where, name_of(request, module)));
    }
  }
}

}  // namespace

std::vector<std::int64_t> whole_work(const BalanceRequest& request) {
  return work_of(request, 0, request.num_modules);
}

void check_request(const BalanceRequest& request) {
  if (request.ranks < 1 || request.microbatches < 1) {
    throw InvalidInput(fmt::format("{} × {}; at least 1 of each is needed",
                                   counted(request.ranks, "rank"),
                                   counted(request.microbatches, "microbatch")));
  }
  if (request.num_modules < 1 || request.num_modules > kMaxBalanceModules) {
    throw InvalidInput(
        fmt::format("{} modules; allowed are 1 to {}", request.num_modules, kMaxBalanceModules));
  }
  if (request.max_samples < 0 || request.max_tokens < 0 || request.max_bytes < 0) {
    throw InvalidInput(
        fmt::format("a microbatch of at most {} samples, {} tokens, {} bytes; a limit "
                    "is at least 1, or 0 for none",
                    request.max_samples,
                    request.max_tokens,
                    request.max_bytes));
  }
  const std::int64_t cells = std::int64_t{request.ranks} * request.microbatches;
  const auto count = static_cast<std::int64_t>(request.samples.size());
  if (count < cells) {
    throw InvalidInput(fmt::format("{} for {} × {}; every one of them needs a sample",
                                   counted(count, "sample"),
                                   counted(request.ranks, "rank"),
                                   counted(request.microbatches, "microbatch")));
  }
  for (std::size_t sample = 0; sample < request.samples.size(); ++sample) {
    check_range(request.samples[sample].tokens, kMostTokens, "tokens", sample);
    check_range(request.samples[sample].bytes, kMostBytes, "bytes", sample);
    for (int module = 0; module < request.num_modules; ++module) {
      check_range(request.samples[sample].work[at(module)], kMostWork, "work in ns", sample);
    }
  }
  for (int module = 0; module < request.num_modules; ++module) {
    const auto holders = std::count_if(
        request.samples.begin(), request.samples.end(), [&](const BalanceRequest::Sample& sample) {
          return sample.work[at(module)] > 0;
        });
    if (request.everywhere[at(module)] && holders < cells) {
      throw InvalidInput(
          fmt::format("{} samples have work in {}, but each of {} ranks × {} "
                      "microbatches needs one",
                      holders,
                      name_of(request, module),
                      request.ranks,
                      request.microbatches));
    }
  }
}

std::vector<int> oversized_samples(const BalanceRequest& request) {
  std::vector<int> result;
  for (std::size_t sample = 0; sample < request.samples.size(); ++sample) {
    const BalanceRequest::Sample& what = request.samples[sample];
    if ((request.max_tokens > 0 && what.tokens > request.max_tokens) ||
        (request.max_bytes > 0 && what.bytes > request.max_bytes)) {
      result.push_back(static_cast<int>(sample));
    }
  }
  return result;
}

void limit_as(const CellOf& cells, BalanceRequest& request) {
  for (const std::vector<int>& members : samples_of_cells(request, cells)) {
    const Held held = held_by(request, members);
    request.max_tokens = std::max(request.max_tokens, held.tokens);
    request.max_bytes = std::max(request.max_bytes, held.bytes);
  }
}

std::int64_t step_time(const BalanceRequest& request, const CellOf& cells) {
  const std::vector<std::vector<int>> members = samples_of_cells(request, cells);
  std::vector<std::int64_t> rank_total(at(request.ranks));
  std::int64_t lockstep = 0;
  for (int microbatch = 0; microbatch < request.microbatches; ++microbatch) {
    for (int module = 0; module < request.num_modules; ++module) {
      std::int64_t slowest = 0;
      for (int rank = 0; rank < request.ranks; ++rank) {
        const std::int64_t time =
            module_time(request, members[at(microbatch * request.ranks + rank)], module);
        rank_total[at(rank)] += time;
        slowest = std::max(slowest, time);
      }
      lockstep += slowest;
    }
  }
  return request.layout == Layout::kFsdp ? lockstep
                                         : *std::max_element(rank_total.begin(), rank_total.end());
}

std::int64_t step_time_bound(const BalanceRequest& request) {
  const std::int64_t whole = bound_of(request, whole_work(request));
  if (request.layout == Layout::kDdp) {
    return whole;
  }
  std::int64_t by_module = 0;
  for (int module = 0; module < request.num_modules; ++module) {
    by_module += bound_of(request, work_of(request, module, module + 1));
  }
  return std::max(whole, by_module);
}

std::int64_t perfect_step_time(const BalanceRequest& request) {
  std::int64_t total = 0;
  for (const std::int64_t work : whole_work(request)) {
    total += work;
  }
  return ceil_div(total, request.ranks);
}

std::vector<std::string> balance_violations(const BalanceRequest& request, const CellOf& cells) {
  std::vector<std::string> result;
  if (cells.size() != request.samples.size()) {
    return {fmt::format("{} samples are placed of {}", cells.size(), request.samples.size())};
  }
  for (std::size_t sample = 0; sample < cells.size(); ++sample) {
    if (cells[sample] < 0 || cells[sample] >= request.num_cells()) {
      return {fmt::format(
          "sample {} is in cell {}; there are {}", sample, cells[sample], request.num_cells())};
    }
  }
  const std::vector<std::vector<int>> members = samples_of_cells(request, cells);
  for (int cell = 0; cell < request.num_cells(); ++cell) {
    find_violations(
        request,
        members[at(cell)],
        fmt::format("microbatch {} of rank {}", cell / request.ranks, cell % request.ranks),
        result);
  }
  return result;
}

}  // namespace entrain
