#include "entrain/core/assigner/moves.h"

#include <algorithm>
#include <cstdlib>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

constexpr int kReach = 3;  // slots that a deferral changes at most

}  // namespace

Mover::Mover(const AssignRequest& request,
             const BatchLoads& loads,
             const std::vector<int>& members,
             Rng& rng,
             PlacementEdit& edit)
    : request_(request),
      costs_(*request.costs),
      loads_(loads),
      members_(members),
      rng_(rng),
      edit_(edit) {}

int Mover::below(int bound) {
  return static_cast<int>(rng_.below(static_cast<std::uint64_t>(bound)));
}

int Mover::random_sample(int replica) {
  const std::vector<int>& samples = placement().samples[at(replica)];
  return samples[at(below(static_cast<int>(samples.size())))];
}

int Mover::other_replica(int replica) {
  const int drawn = members_[at(below(static_cast<int>(members_.size()) - 1))];
  return drawn == replica ? members_.back() : drawn;
}

// Of a few random samples the one nearest in size.
int Mover::similar_sample(int sample, int replica) {
  constexpr int kTries = 6;
  int best = random_sample(replica);
  const auto distance = [&](int other) {
    return std::abs(loads_.normalised[at(other)] - loads_.normalised[at(sample)]);
  };
  for (int i = 1; i < kTries; ++i) {
    const int other = random_sample(replica);
    if (best == sample || (other != sample && distance(other) < distance(best))) {
      best = other;
    }
  }
  return best;
}

void Mover::repair(int sample) {
  const int max_deferral = request_.plan->limits.max_deferral;
  for (int module = 0; module < costs_.llm_module(); ++module) {
    const std::vector<int>& first = costs_.modules[at(module)].first_unit;
    const std::vector<int>& slots = placement().encoder_slot[at(module)];
    int common = placement().llm_slot[at(sample)];
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
      const int llm_slot = last_slot(sample, module, unit);
      int first_allowed = max_deferral < 0 ? 0 : std::max(0, llm_slot - max_deferral);
      if (!request_.options.defer) {
        first_allowed = llm_slot;
      }
      edit_.set_encoder_slot(
          sample, module, unit, std::clamp(slots[at(unit)], first_allowed, llm_slot));
      common = std::min(common, slots[at(unit)]);
    }
    for (int unit = first[at(sample)];
         !request_.options.split_segments && unit < first[at(sample + 1)];
         ++unit) {
      edit_.set_encoder_slot(sample, module, unit, common);
    }
  }
}

void Mover::relocate(int sample, int slot) {
  const int old_slot = placement().llm_slot[at(sample)];
  edit_.set_llm_slot(sample, slot);
  rename_chunks(sample, [&](int of) { return of + slot - old_slot; });
  for (int module = 0; module < costs_.llm_module(); ++module) {
    const std::vector<int>& first = costs_.modules[at(module)].first_unit;
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
      if (placement().encoder_slot[at(module)][at(unit)] == old_slot) {
        edit_.set_encoder_slot(sample, module, unit, slot);
      }
    }
  }
  repair(sample);
}

int Mover::last_slot(int sample, int module, int unit) const {
  const std::vector<ChunkPlace>& chunks = placement().chunks[at(sample)];
  if (chunks.empty()) {
    return placement().llm_slot[at(sample)];
  }
  const int segment = unit - costs_.modules[at(module)].first_unit[at(sample)];
  const std::int64_t token = first_feature_token(costs_.work[at(sample)], module, segment);
  std::size_t chunk = 0;
  while (chunk + 1 < chunks.size() && chunks[chunk].token_end <= token) {
    ++chunk;
  }
  return chunks[chunk].slot;
}

template <class Rename>
void Mover::rename_chunks(int sample, Rename rename) {
  if (placement().chunks[at(sample)].empty()) {
    return;
  }
  std::vector<ChunkPlace> chunks = placement().chunks[at(sample)];
  int before = -1;
  for (ChunkPlace& chunk : chunks) {
    chunk.slot = rename(chunk.slot);
    if (chunk.slot <= before) {
      chunks.clear();
      break;
    }
    before = chunk.slot;
  }
  if (before != placement().llm_slot[at(sample)]) {
    chunks.clear();
  }
  edit_.set_chunks(sample, std::move(chunks));
}

void Mover::place_whole(int sample, int slot) {
  edit_.set_llm_slot(sample, slot);
  edit_.set_chunks(sample, {});
  for (int module = 0; module < costs_.llm_module(); ++module) {
    const std::vector<int>& first = costs_.modules[at(module)].first_unit;
    for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
      edit_.set_encoder_slot(sample, module, unit, slot);
    }
  }
}

template <class Rename>
void Mover::rename_slots(int replica, Rename rename) {
  for (const int sample : placement().samples[at(replica)]) {
    const int old_slot = placement().llm_slot[at(sample)];
    const int slot = rename(sample, old_slot);
    bool renamed = slot != old_slot || !placement().chunks[at(sample)].empty();
    edit_.set_llm_slot(sample, slot);
    rename_chunks(sample, [&](int of) { return rename(sample, of); });
    for (int module = 0; module < costs_.llm_module(); ++module) {
      const std::vector<int>& first = costs_.modules[at(module)].first_unit;
      const std::vector<int>& slots = placement().encoder_slot[at(module)];
      for (int unit = first[at(sample)]; unit < first[at(sample + 1)]; ++unit) {
        const int old_unit_slot = slots[at(unit)];
        const int unit_slot = rename(sample, old_unit_slot);
        if (unit_slot != old_unit_slot) {
          edit_.set_encoder_slot(sample, module, unit, unit_slot);
          renamed = true;
        }
      }
    }
    if (renamed) {
      repair(sample);
    }
  }
}

Changed Mover::move_within(int replica) {
  const int num_slots = placement().num_slots[at(replica)];
  const int sample = random_sample(replica);
  const int old_slot = placement().llm_slot[at(sample)];
  int slot = below(num_slots);
  if (below(2) == 0) {
    slot = std::clamp(old_slot - kReach + below(2 * kReach + 1), 0, num_slots - 1);
  }
  if (slot == old_slot) {
    return {};
  }
  relocate(sample, slot);
  return {1, {replica, -1}};
}

Changed Mover::swap_within(int replica) {
  const int sample = random_sample(replica);
  const int other = similar_sample(sample, replica);
  const int slot = placement().llm_slot[at(sample)];
  const int other_slot = placement().llm_slot[at(other)];
  if (slot == other_slot) {
    return {};
  }
  relocate(sample, other_slot);
  relocate(other, slot);
  return {1, {replica, -1}};
}

Changed Mover::move_across(int replica) {
  if (members_.size() < 2 || placement().samples[at(replica)].size() < 2) {
    return {};
  }
  const int other = other_replica(replica);
  const int sample = random_sample(replica);
  const int slot = scaled_slot(placement().llm_slot[at(sample)],
                               placement().num_slots[at(replica)],
                               placement().num_slots[at(other)]);
  edit_.move_sample(sample, replica, other);
  place_whole(sample, slot);
  return {2, {replica, other}};
}

Changed Mover::swap_across(int replica) {
  if (members_.size() < 2) {
    return {};
  }
  const int there = other_replica(replica);
  const int sample = random_sample(replica);
  const int other = similar_sample(sample, there);
  const int slot = placement().llm_slot[at(sample)];
  const int other_slot = placement().llm_slot[at(other)];
  edit_.move_sample(sample, replica, there);
  edit_.move_sample(other, there, replica);
  place_whole(sample, other_slot);
  place_whole(other, slot);
  return {2, {replica, there}};
}

Changed Mover::defer_sample(int replica) {
  const int sample = random_sample(replica);
  const int old_slot = placement().llm_slot[at(sample)];
  const int slot = std::min(placement().num_slots[at(replica)] - 1, old_slot + 1 + below(kReach));
  if (slot == old_slot || loads_.text_only[at(sample)] != 0 ||
      !placement().chunks[at(sample)].empty()) {
    return {};
  }
  edit_.set_llm_slot(sample, slot);
  repair(sample);
  return {1, {replica, -1}};
}

Changed Mover::advance_segments(int replica) {
  const int sample = random_sample(replica);
  const int module = below(std::max(1, costs_.llm_module()));
  if (loads_.text_only[at(sample)] != 0) {
    return {};
  }
  const std::vector<int>& first = costs_.modules[at(module)].first_unit;
  const int num_units = first[at(sample + 1)] - first[at(sample)];
  if (num_units == 0) {
    return {};
  }
  const int llm_slot = placement().llm_slot[at(sample)];
  int begin = first[at(sample)];
  int end = first[at(sample + 1)];
  if (request_.options.split_segments) {
    begin += below(num_units);
    end = begin + 1;
  }
  const int old_slot = placement().encoder_slot[at(module)][at(begin)];
  // Half of the segments that wait come back to their sample's slot.
  const bool back = old_slot < llm_slot && below(2) == 0;
  const int slot = back ? llm_slot : std::max(0, old_slot - 1 - below(kReach));
  for (int unit = begin; unit < end; ++unit) {
    edit_.set_encoder_slot(sample, module, unit, slot);
  }
  repair(sample);
  return edit_.empty() ? Changed{} : Changed{1, {replica, -1}};
}

Changed Mover::swap_slots(int replica) {
  const int num_slots = placement().num_slots[at(replica)];
  const int a = below(num_slots);
  const int b = below(2) == 0 ? below(num_slots) : std::min(num_slots - 1, a + 1);
  if (a == b) {
    return {};
  }
  if (below(2) == 0) {  // or a comes to where b is
    rename_slots(replica, [a, b](int /*sample*/, int slot) {
      if (slot == a) {
        return b;
      }
      return a < slot && slot <= b ? slot - 1 : b <= slot && slot < a ? slot + 1 : slot;
    });
    return {1, {replica, -1}};
  }
  rename_slots(replica, [a, b](int /*sample*/, int slot) {
    return slot == a ? b : slot == b ? a : slot;
  });
  return {1, {replica, -1}};
}

// The samples of one slot against those of a slot of another replica.
Changed Mover::exchange_slots(int replica) {
  if (members_.size() < 2) {
    return {};
  }
  const int there = other_replica(replica);
  const int slot = below(placement().num_slots[at(replica)]);
  const int other_slot =
      scaled_slot(slot, placement().num_slots[at(replica)], placement().num_slots[at(there)]);
  const auto in_slot = [this](int of, int wanted) {
    std::vector<int> samples;
    for (const int sample : placement().samples[at(of)]) {
      if (placement().llm_slot[at(sample)] == wanted) {
        samples.push_back(sample);
      }
    }
    return samples;
  };
  const std::vector<int> mine = in_slot(replica, slot);
  const std::vector<int> theirs = in_slot(there, other_slot);
  if (mine.empty() || theirs.empty()) {
    return {};
  }
  for (const int sample : theirs) {
    edit_.move_sample(sample, there, replica);
    place_whole(sample, slot);
  }
  for (const int sample : mine) {
    edit_.move_sample(sample, replica, there);
    place_whole(sample, other_slot);
  }
  return {2, {replica, there}};
}

Changed Mover::merge_slots(int replica) {
  const int num_slots = placement().num_slots[at(replica)];
  if (!request_.options.choose_slots || num_slots < 2) {
    return {};
  }
  const int kept = below(num_slots - 1);
  edit_.set_num_slots(replica, num_slots - 1);
  rename_slots(replica, [kept](int /*sample*/, int slot) { return slot > kept ? slot - 1 : slot; });
  return {1, {replica, -1}};
}

Changed Mover::split_slot(int replica) {
  const int num_slots = placement().num_slots[at(replica)];
  if (!request_.options.choose_slots) {
    return {};
  }
  const int split = below(num_slots);
  std::vector<char> moves(at(costs_.num_samples), 0);
  int stay = 0;
  int go = 0;
  for (const int sample : placement().samples[at(replica)]) {
    if (placement().llm_slot[at(sample)] == split) {
      moves[at(sample)] = static_cast<char>(below(2));
      (moves[at(sample)] != 0 ? go : stay) += 1;
    }
  }
  if (stay == 0 || go == 0) {
    return {};
  }
  edit_.set_num_slots(replica, num_slots + 1);
  rename_slots(replica, [&](int sample, int slot) {
    return slot > split || (slot == split && moves[at(sample)] != 0) ? slot + 1 : slot;
  });
  return {1, {replica, -1}};
}

// A heavy sample into chunks of equal cost in neighbouring slots, or back into one.
Changed Mover::cut_sample(int replica) {
  constexpr int kTries = 8;
  constexpr int kMostChunks = 8;
  int sample = random_sample(replica);
  for (int i = 1; i < kTries; ++i) {
    const int other = random_sample(replica);
    if (llm_work(other) > llm_work(sample)) {
      sample = other;
    }
  }
  if (!placement().chunks[at(sample)].empty() && below(2) == 0) {
    edit_.set_chunks(sample, {});
    repair(sample);
    return {1, {replica, -1}};
  }
  const int num_slots = placement().num_slots[at(replica)];
  const int count = std::min(num_slots, 2 + below(kMostChunks - 1));
  const std::int64_t tokens = costs_.work[at(sample)].llm_tokens;
  if (count < 2 || tokens < count) {
    return {};
  }
  const int first =
      std::clamp(placement().llm_slot[at(sample)] - below(count), 0, num_slots - count);
  edit_.set_llm_slot(sample, first + count - 1);
  edit_.set_chunks(sample, equal_chunks(costs_, sample, first, count));
  repair(sample);
  return {1, {replica, -1}};
}

double Mover::llm_work(int sample) const {
  double work = 0;
  for (const double of_lane : loads_.llm[at(sample)]) {
    work += of_lane;
  }
  return work;
}

Changed Mover::move(int replica) {
  const bool across = request_.options.replica_balance;
  if (request_.plan->limits.chunks && request_.options.chunks && below(12) == 0) {
    return cut_sample(replica);
  }
  const int draw = below(100);
  if (draw < 30) {
    return move_within(replica);
  }
  if (draw < 50) {
    return swap_within(replica);
  }
  if (draw < 60) {
    return across ? move_across(replica) : move_within(replica);
  }
  if (draw < 76) {
    return across ? swap_across(replica) : swap_within(replica);
  }
  if (draw < 90) {
    if (!request_.options.defer) {
      return move_within(replica);
    }
    return below(2) == 0 ? defer_sample(replica) : advance_segments(replica);
  }
  if (draw < 94) {
    return request_.options.slot_order ? swap_slots(replica) : move_within(replica);
  }
  if (draw < 96) {
    return across ? exchange_slots(replica) : swap_within(replica);
  }
  return draw < 98 ? merge_slots(replica) : split_slot(replica);
}

}  // namespace entrain
