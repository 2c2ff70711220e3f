#include "entrain/core/balance/cell_loads.h"

#include <algorithm>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr int kNobody = -1;

}  // namespace

CellLoads::CellLoads(const BalanceRequest& request)
    : request_(&request),
      cell_of_(request.samples.size(), kNobody),
      cells_(at(request.num_cells())),
      members_(at(request.num_cells())),
      place_(request.samples.size(), kNobody) {
  const int meetings =
      request.layout == Layout::kFsdp ? request.microbatches * request.num_modules : 1;
  Meeting meeting;
  meeting.time.resize(at(request.ranks));
  find_slowest(meeting);
  meetings_.assign(at(meetings), meeting);
}

CellLoads::CellLoads(const BalanceRequest& request, const CellOf& cells) : CellLoads(request) {
  for (int sample = 0; sample < static_cast<int>(cells.size()); ++sample) {
    place(sample, cells[at(sample)]);
  }
}

CellLoads::Cell CellLoads::after(int cell, int removed, int added) const {
  Cell result = cells_[at(cell)];
  const int llm = request_->num_modules - 1;
  const auto count_in = [&](int sample, std::int64_t sign) {
    const BalanceRequest::Sample& what = request_->samples[at(sample)];
    for (int module = 0; module < llm; ++module) {
      result.work[at(module)] += sign * what.work[at(module)];
      result.holders[at(module)] += what.work[at(module)] > 0 ? sign : 0;
    }
    result.llm_sum += sign * what.work[at(llm)];
    result.holders[at(llm)] += what.work[at(llm)] > 0 ? sign : 0;
    result.token_sum += sign * what.tokens;
    result.bytes += sign * what.bytes;
    result.count += sign;
  };
  if (removed != kNobody) {
    count_in(removed, -1);
    const BalanceRequest::Sample& what = request_->samples[at(removed)];
    if (request_->padded &&
        (what.tokens == result.longest || what.work[at(llm)] == result.llm_longest)) {
      result.longest = 0;
      result.llm_longest = 0;
      for (const int member : members_[at(cell)]) {
        if (member != removed) {
          const BalanceRequest::Sample& left = request_->samples[at(member)];
          result.longest = std::max(result.longest, left.tokens);
          result.llm_longest = std::max(result.llm_longest, left.work[at(llm)]);
        }
      }
    }
  }
  if (added != kNobody) {
    count_in(added, 1);
    result.longest = std::max(result.longest, request_->samples[at(added)].tokens);
    result.llm_longest = std::max(result.llm_longest, request_->samples[at(added)].work[at(llm)]);
  }
  result.work[at(llm)] = request_->padded ? result.count * result.llm_longest : result.llm_sum;
  return result;
}

bool CellLoads::within_limits(std::int64_t count, std::int64_t tokens, std::int64_t bytes) const {
  return (request_->max_samples == 0 || count <= request_->max_samples) &&
         (request_->max_tokens == 0 || tokens <= request_->max_tokens) &&
         (request_->max_bytes == 0 || bytes <= request_->max_bytes);
}

bool CellLoads::within_limits(const Cell& cell) const {
  return within_limits(
      cell.count, request_->padded ? cell.count * cell.longest : cell.token_sum, cell.bytes);
}

bool CellLoads::holds_needed(const Cell& cell) const {
  for (int module = 0; module < request_->num_modules; ++module) {
    if (request_->everywhere[at(module)] && cell.holders[at(module)] == 0) {
      return false;
    }
  }
  return cell.count > 0;
}

// The slowest rank's time once `first` takes `more`, and `second`, another rank or nobody,
// `more_second`, less what it is.
std::int64_t CellLoads::meeting_change(const Meeting& meeting,
                                       int first,
                                       std::int64_t more,
                                       int second,
                                       std::int64_t more_second) const {
  std::int64_t longest = meeting.time[at(first)] + more;
  if (second != kNobody) {
    longest = std::max(longest, meeting.time[at(second)] + more_second);
  }
  for (int place = 0; place < meeting.known; ++place) {
    const int rank = meeting.slowest[at(place)];
    if (rank != first && rank != second) {
      longest = std::max(longest, meeting.time[at(rank)]);
      break;
    }
  }
  return longest - meeting.time[at(meeting.slowest[0])];
}

std::int64_t CellLoads::change(int first,
                               const Cell& first_after,
                               int second,
                               const Cell& second_after) const {
  const int modules = request_->num_modules;
  const int rank = first % request_->ranks;
  const int other_rank = second == kNobody ? kNobody : second % request_->ranks;
  const auto more = [&](int cell, const Cell& now, int module) {
    return now.work[at(module)] - cells_[at(cell)].work[at(module)];
  };
  if (request_->layout == Layout::kDdp) {
    std::int64_t mine = 0;
    std::int64_t others = 0;
    for (int module = 0; module < modules; ++module) {
      mine += more(first, first_after, module);
      others += second == kNobody ? 0 : more(second, second_after, module);
    }
    if (rank == other_rank) {
      return meeting_change(meetings_[0], rank, mine + others, kNobody, 0);
    }
    return meeting_change(meetings_[0], rank, mine, other_rank, others);
  }
  const int microbatch = first / request_->ranks;
  const int other_microbatch = second == kNobody ? kNobody : second / request_->ranks;
  std::int64_t result = 0;
  for (int module = 0; module < modules; ++module) {
    const Meeting& meeting = meetings_[at(microbatch * modules + module)];
    const std::int64_t mine = more(first, first_after, module);
    if (second == kNobody) {
      result += meeting_change(meeting, rank, mine, kNobody, 0);
      continue;
    }
    const std::int64_t others = more(second, second_after, module);
    if (microbatch == other_microbatch) {
      result += meeting_change(meeting, rank, mine, other_rank, others);
    } else {
      result += meeting_change(meeting, rank, mine, kNobody, 0);
      result += meeting_change(
          meetings_[at(other_microbatch * modules + module)], other_rank, others, kNobody, 0);
    }
  }
  return result;
}

// As change() of after(), but without a copy of the cell: it is asked for every cell and sample.
std::int64_t CellLoads::place_change(int sample, int cell) const {
  const Cell& now = cells_[at(cell)];
  const BalanceRequest::Sample& what = request_->samples[at(sample)];
  const std::int64_t count = now.count + 1;
  const std::int64_t tokens =
      request_->padded ? count * std::max(now.longest, what.tokens) : now.token_sum + what.tokens;
  if (!within_limits(count, tokens, now.bytes + what.bytes)) {
    return kRefused;
  }
  const int modules = request_->num_modules;
  const int rank = cell % request_->ranks;
  const bool ddp = request_->layout == Layout::kDdp;
  const int first = ddp ? 0 : cell / request_->ranks * modules;
  std::int64_t more = 0;
  std::int64_t result = 0;
  for (int module = 0; module < modules; ++module) {
    const bool pads = request_->padded && module + 1 == modules;
    more += pads ? count * std::max(now.llm_longest, what.work[at(module)]) - now.work[at(module)]
                 : what.work[at(module)];
    if (!ddp || module + 1 == modules) {
      const Meeting& meeting = meetings_[at(ddp ? 0 : first + module)];
      result += std::max<std::int64_t>(
          0, meeting.time[at(rank)] + more - meeting.time[at(meeting.slowest[0])]);
      more = 0;
    }
  }
  return result;
}

std::int64_t CellLoads::move_change(int sample, int cell) const {
  const int from = cell_of_[at(sample)];
  const Cell there = after(cell, kNobody, sample);
  const Cell here = after(from, sample, kNobody);
  return within_limits(there) && holds_needed(here) ? change(from, here, cell, there) : kRefused;
}

std::int64_t CellLoads::swap_change(int first, int second) const {
  const int cell = cell_of_[at(first)];
  const int other_cell = cell_of_[at(second)];
  const Cell here = after(cell, first, second);
  const Cell there = after(other_cell, second, first);
  const bool allowed =
      within_limits(here) && within_limits(there) && holds_needed(here) && holds_needed(there);
  return allowed ? change(cell, here, other_cell, there) : kRefused;
}

void CellLoads::find_slowest(Meeting& meeting) {
  const int most = static_cast<int>(std::min(meeting.slowest.size(), meeting.time.size()));
  meeting.known = 0;
  for (int rank = 0; rank < std::ssize(meeting.time); ++rank) {
    const std::int64_t time = meeting.time[at(rank)];
    int place = meeting.known;
    if (place == most && time <= meeting.time[at(meeting.slowest[at(place - 1)])]) {
      continue;
    }
    meeting.known = std::min(most, place + 1);
    place = meeting.known - 1;
    for (; place > 0 && time > meeting.time[at(meeting.slowest[at(place - 1)])]; --place) {
      meeting.slowest[at(place)] = meeting.slowest[at(place - 1)];
    }
    meeting.slowest[at(place)] = rank;
  }
}

void CellLoads::set_time(Meeting& meeting, int rank, std::int64_t time) {
  std::array<int, 8>& slowest = meeting.slowest;
  const bool fell = time < meeting.time[at(rank)];
  meeting.time[at(rank)] = time;
  int place = 0;
  while (place < meeting.known && slowest[at(place)] != rank) {
    ++place;
  }
  const bool all = meeting.known == std::ssize(meeting.time);
  if (place == meeting.known) {
    if (time <= meeting.time[at(slowest[at(place - 1)])]) {
      return;
    }
    meeting.known = std::min(meeting.known + 1, static_cast<int>(slowest.size()));
    place = meeting.known - 1;
  }
  for (; place + 1 < meeting.known && meeting.time[at(slowest[at(place + 1)])] > time; ++place) {
    slowest[at(place)] = slowest[at(place + 1)];
  }
  if (place + 1 == meeting.known && !all && fell) {
    // How many others are slower is not known.
    --meeting.known;
    if (meeting.known < 3) {
      find_slowest(meeting);
    }
    return;
  }
  for (; place > 0 && time > meeting.time[at(slowest[at(place - 1)])]; --place) {
    slowest[at(place)] = slowest[at(place - 1)];
  }
  slowest[at(place)] = rank;
}

void CellLoads::apply(int cell, const Cell& after) {
  const int modules = request_->num_modules;
  const int rank = cell % request_->ranks;
  const bool ddp = request_->layout == Layout::kDdp;
  for (int module = 0; module < modules; ++module) {
    Meeting& meeting = meetings_[ddp ? 0 : at(cell / request_->ranks * modules + module)];
    const std::int64_t more = after.work[at(module)] - cells_[at(cell)].work[at(module)];
    step_time_ -= meeting.time[at(meeting.slowest[0])];
    set_time(meeting, rank, meeting.time[at(rank)] + more);
    step_time_ += meeting.time[at(meeting.slowest[0])];
  }
  cells_[at(cell)] = after;
}

void CellLoads::take_out(int sample) {
  std::vector<int>& members = members_[at(cell_of_[at(sample)])];
  const int last = members.back();
  members[at(place_[at(sample)])] = last;
  place_[at(last)] = place_[at(sample)];
  members.pop_back();
}

void CellLoads::put_in(int sample, int cell) {
  place_[at(sample)] = static_cast<int>(members_[at(cell)].size());
  members_[at(cell)].push_back(sample);
  cell_of_[at(sample)] = cell;
}

void CellLoads::place(int sample, int cell) {
  ENTRAIN_INVARIANT(cell_of_[at(sample)] == kNobody, "a sample is placed twice");
  apply(cell, after(cell, kNobody, sample));
  put_in(sample, cell);
}

void CellLoads::move(int sample, int cell) {
  const int from = cell_of_[at(sample)];
  const Cell there = after(cell, kNobody, sample);
  apply(from, after(from, sample, kNobody));
  apply(cell, there);
  take_out(sample);
  put_in(sample, cell);
}

void CellLoads::swap(int first, int second) {
  const int cell = cell_of_[at(first)];
  const int other_cell = cell_of_[at(second)];
  const Cell there = after(other_cell, second, first);
  apply(cell, after(cell, first, second));
  apply(other_cell, there);
  take_out(first);
  take_out(second);
  put_in(first, other_cell);
  put_in(second, cell);
}

}  // namespace entrain
