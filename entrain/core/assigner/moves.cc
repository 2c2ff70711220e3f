#include "entrain/core/assigner/moves.h"

#include <algorithm>
#include <cstdlib>

namespace entrain {
namespace {

constexpr int kReach = 3;  // slots that a deferral changes at most

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

void move_sample(int sample, int from, int to, Placement& placement) {
  std::vector<int>& samples = placement.samples[at(from)];
  samples.erase(std::find(samples.begin(), samples.end(), sample));
  placement.samples[at(to)].push_back(sample);
}

// The slot of another replica at the same place of its order.
int scaled_slot(int slot, int from_slots, int to_slots) {
  return std::min(to_slots - 1, (2 * slot + 1) * to_slots / (2 * from_slots));
}

}  // namespace

Mover::Mover(const AssignRequest& request, const BatchLoads& loads, Rng& rng)
    : request_(request), costs_(*request.costs), loads_(loads), rng_(rng) {}

int Mover::below(int bound) {
  return static_cast<int>(rng_.below(static_cast<std::uint64_t>(bound)));
}

int Mover::random_sample(int replica, const Placement& placement) {
  const std::vector<int>& samples = placement.samples[at(replica)];
  return samples[at(below(static_cast<int>(samples.size())))];
}

// Of a few random samples the one nearest in size.
int Mover::similar_sample(int sample, int replica, const Placement& placement) {
  constexpr int kTries = 6;
  int best = random_sample(replica, placement);
  const auto distance = [&](int other) {
    return std::abs(loads_.normalised[at(other)] - loads_.normalised[at(sample)]);
  };
  for (int i = 1; i < kTries; ++i) {
    const int other = random_sample(replica, placement);
    if (best == sample || (other != sample && distance(other) < distance(best))) {
      best = other;
    }
  }
  return best;
}

void Mover::repair(int sample, Placement& placement) const {
  const int llm_slot = placement.llm_slot[at(sample)];
  const int max_deferral = request_.plan->limits.max_deferral;
  int first_allowed = max_deferral < 0 ? 0 : std::max(0, llm_slot - max_deferral);
  if (!request_.options.defer) {
    first_allowed = llm_slot;
  }
  for (int module = 0; module < costs_.llm_module(); ++module) {
    const std::vector<int>& first = costs_.modules[at(module)].first_unit;
    std::vector<int>& slots = placement.encoder_slot[at(module)];
    int common = llm_slot;
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
      slots[at(unit)] = std::clamp(slots[at(unit)], first_allowed, llm_slot);
      common = std::min(common, slots[at(unit)]);
    }
    if (!request_.options.split_segments) {
      std::fill(slots.begin() + first[at(sample)], slots.begin() + first[at(sample + 1)], common);
    }
  }
}

void Mover::relocate(int sample, int slot, Placement& placement) const {
  const int old_slot = placement.llm_slot[at(sample)];
  placement.llm_slot[at(sample)] = slot;
  for (int module = 0; module < costs_.llm_module(); ++module) {
    const std::vector<int>& first = costs_.modules[at(module)].first_unit;
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
      int& of_unit = placement.encoder_slot[at(module)][at(unit)];
      of_unit = of_unit == old_slot ? slot : of_unit;
    }
  }
  repair(sample, placement);
}

template <class Rename>
void Mover::rename_slots(int replica, Rename rename, Placement& placement) const {
  for (const int sample : placement.samples[at(replica)]) {
    int& llm_slot = placement.llm_slot[at(sample)];
    llm_slot = rename(sample, llm_slot);
    for (int module = 0; module < costs_.llm_module(); ++module) {
      const std::vector<int>& first = costs_.modules[at(module)].first_unit;
      for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
        int& slot = placement.encoder_slot[at(module)][at(unit)];
        slot = rename(sample, slot);
      }
    }
    repair(sample, placement);
  }
}

std::vector<int> Mover::move_within(int replica, Placement& placement) {
  const int num_slots = placement.num_slots[at(replica)];
  const int sample = random_sample(replica, placement);
  const int old_slot = placement.llm_slot[at(sample)];
  int slot = below(num_slots);
  if (below(2) == 0) {
    slot = std::clamp(old_slot - kReach + below(2 * kReach + 1), 0, num_slots - 1);
  }
  if (slot == old_slot) {
    return {};
  }
  relocate(sample, slot, placement);
  return {replica};
}

std::vector<int> Mover::swap_within(int replica, Placement& placement) {
  const int sample = random_sample(replica, placement);
  const int other = similar_sample(sample, replica, placement);
  const int slot = placement.llm_slot[at(sample)];
  const int other_slot = placement.llm_slot[at(other)];
  if (slot == other_slot) {
    return {};
  }
  relocate(sample, other_slot, placement);
  relocate(other, slot, placement);
  return {replica};
}

std::vector<int> Mover::move_across(int replica, Placement& placement) {
  const int replicas = request_.plan->replicas;
  if (replicas < 2 || placement.samples[at(replica)].size() < 2) {
    return {};
  }
  const int other = (replica + 1 + below(replicas - 1)) % replicas;
  const int sample = random_sample(replica, placement);
  const int slot = scaled_slot(placement.llm_slot[at(sample)],
                               placement.num_slots[at(replica)],
                               placement.num_slots[at(other)]);
  move_sample(sample, replica, other, placement);
  place_sample(costs_, sample, slot, placement);
  return {replica, other};
}

std::vector<int> Mover::swap_across(int replica, Placement& placement) {
  const int replicas = request_.plan->replicas;
  if (replicas < 2) {
    return {};
  }
  const int other_replica = (replica + 1 + below(replicas - 1)) % replicas;
  const int sample = random_sample(replica, placement);
  const int other = similar_sample(sample, other_replica, placement);
  const int slot = placement.llm_slot[at(sample)];
  const int other_slot = placement.llm_slot[at(other)];
  move_sample(sample, replica, other_replica, placement);
  move_sample(other, other_replica, replica, placement);
  place_sample(costs_, sample, other_slot, placement);
  place_sample(costs_, other, slot, placement);
  return {replica, other_replica};
}

std::vector<int> Mover::defer_sample(int replica, Placement& placement) {
  const int sample = random_sample(replica, placement);
  const int old_slot = placement.llm_slot[at(sample)];
  const int slot = std::min(placement.num_slots[at(replica)] - 1, old_slot + 1 + below(kReach));
  if (slot == old_slot || loads_.text_only[at(sample)] != 0) {
    return {};
  }
  placement.llm_slot[at(sample)] = slot;
  repair(sample, placement);
  return {replica};
}

std::vector<int> Mover::advance_segments(int replica, Placement& placement) {
  const int sample = random_sample(replica, placement);
  const int module = below(std::max(1, costs_.llm_module()));
  if (loads_.text_only[at(sample)] != 0) {
    return {};
  }
  const std::vector<int>& first = costs_.modules[at(module)].first_unit;
  const int num_units = first[at(sample + 1)] - first[at(sample)];
  if (num_units == 0) {
    return {};
  }
  const int llm_slot = placement.llm_slot[at(sample)];
  int begin = first[at(sample)];
  int end = first[at(sample + 1)];
  if (request_.options.split_segments) {
    begin += below(num_units);
    end = begin + 1;
  }
  std::vector<int>& slots = placement.encoder_slot[at(module)];
  const int old_slot = slots[at(begin)];
  // Half of the segments that wait come back to their sample's slot.
  const bool back = old_slot < llm_slot && below(2) == 0;
  const int slot = back ? llm_slot : std::max(0, old_slot - 1 - below(kReach));
  std::fill(slots.begin() + begin, slots.begin() + end, slot);
  repair(sample, placement);
  return slots[at(begin)] == old_slot ? std::vector<int>{} : std::vector<int>{replica};
}

std::vector<int> Mover::swap_slots(int replica, Placement& placement) {
  const int num_slots = placement.num_slots[at(replica)];
  const int a = below(num_slots);
  const int b = below(2) == 0 ? below(num_slots) : std::min(num_slots - 1, a + 1);
  if (a == b) {
    return {};
  }
  const auto rename = [a, b](int /*sample*/, int slot) {
    return slot == a ? b : slot == b ? a : slot;
  };
  rename_slots(replica, rename, placement);
  return {replica};
}

std::vector<int> Mover::merge_slots(int replica, Placement& placement) {
  int& num_slots = placement.num_slots[at(replica)];
  if (!request_.options.choose_slots || num_slots < 2) {
    return {};
  }
  const int kept = below(num_slots - 1);
  --num_slots;
  rename_slots(
      replica,
      [kept](int /*sample*/, int slot) { return slot > kept ? slot - 1 : slot; },
      placement);
  return {replica};
}

std::vector<int> Mover::split_slot(int replica, Placement& placement) {
  int& num_slots = placement.num_slots[at(replica)];
  if (!request_.options.choose_slots) {
    return {};
  }
  const int split = below(num_slots);
  std::vector<char> moves(at(costs_.num_samples), 0);
  int stay = 0;
  int go = 0;
  for (const int sample : placement.samples[at(replica)]) {
    if (placement.llm_slot[at(sample)] == split) {
      moves[at(sample)] = static_cast<char>(below(2));
      (moves[at(sample)] != 0 ? go : stay) += 1;
    }
  }
  if (stay == 0 || go == 0) {
    return {};
  }
  ++num_slots;
  const auto rename = [&](int sample, int slot) {
    return slot > split || (slot == split && moves[at(sample)] != 0) ? slot + 1 : slot;
  };
  rename_slots(replica, rename, placement);
  return {replica};
}

std::vector<int> Mover::move(int replica, Placement& placement) {
  const int draw = below(100);
  if (draw < 30) {
    return move_within(replica, placement);
  }
  if (draw < 50) {
    return swap_within(replica, placement);
  }
  if (draw < 63) {
    return move_across(replica, placement);
  }
  if (draw < 78) {
    return swap_across(replica, placement);
  }
  if (draw < 90) {
    if (!request_.options.defer) {
      return {};
    }
    return below(2) == 0 ? defer_sample(replica, placement) : advance_segments(replica, placement);
  }
  if (draw < 94) {
    return swap_slots(replica, placement);
  }
  return draw < 97 ? merge_slots(replica, placement) : split_slot(replica, placement);
}

}  // namespace entrain
