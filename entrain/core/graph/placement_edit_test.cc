#include "entrain/core/graph/placement_edit.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

namespace entrain {
namespace {

Placement small_placement() {
  Placement placement;
  placement.num_slots = {3, 4};
  placement.samples = {{0, 1, 2, 3}, {4, 5}};
  placement.llm_slot = {0, 1, 2, 1, 0, 3};
  placement.encoder_slot = {{0, 1, 2, 0, 0, 2}};
  placement.chunks.resize(6);
  return placement;
}

bool equal(const Placement& a, const Placement& b) {
  return a.num_slots == b.num_slots && a.samples == b.samples && a.llm_slot == b.llm_slot &&
         a.encoder_slot == b.encoder_slot && a.chunks == b.chunks;
}

int replica_in(const Placement& placement, int sample) {
  const std::vector<int>& first = placement.samples[0];
  return std::find(first.begin(), first.end(), sample) == first.end() ? 1 : 0;
}

// Whether the edit has what was kept, and names all samples that differ from it.
bool knows(const PlacementEdit& edit, const Placement& kept) {
  const Placement& now = edit.placement();
  bool known = edit.before().llm_slot == kept.llm_slot &&
               edit.before().encoder_slot == kept.encoder_slot &&
               (edit.reshapes() || (now.num_slots == kept.num_slots && now.chunks == kept.chunks));
  for (int sample = 0; sample < 6; ++sample) {
    const auto index = static_cast<std::size_t>(sample);
    const bool same = now.llm_slot[index] == kept.llm_slot[index] &&
                      now.encoder_slot[0][index] == kept.encoder_slot[0][index] &&
                      now.chunks[index] == kept.chunks[index] &&
                      edit.replica_of(sample) == replica_in(kept, sample);
    const auto named = std::count(edit.samples().begin(), edit.samples().end(), sample);
    known = known && edit.replica_before(sample) == replica_in(kept, sample) &&
            edit.replica_of(sample) == replica_in(now, sample) && named <= 1 &&
            (same || named == 1);
  }
  return known;
}

TEST(PlacementEdit, TakesBackEverySequenceOfChanges) {
  Rng rng(5, 1);
  for (int i = 0; i < 2000; ++i) {
    Placement placement = small_placement();
    Placement before = placement;
    PlacementEdit edit(placement, before, {0, 1});
    const auto change = [&] {
      const int sample = static_cast<int>(rng.below(6));
      switch (rng.below(5)) {
        case 0:
          edit.set_llm_slot(sample, static_cast<int>(rng.below(5)));
          break;
        case 1:
          edit.set_encoder_slot(sample, 0, sample, static_cast<int>(rng.below(5)));
          break;
        case 3:
          edit.set_chunks(
              sample,
              std::vector<ChunkPlace>(rng.below(3), {1, 2 + static_cast<int>(rng.below(2))}));
          break;
        case 2:
          edit.set_num_slots(static_cast<int>(rng.below(2)), 7);
          break;
        default: {
          const int from = replica_in(placement, sample);
          edit.move_sample(sample, from, 1 - from);
        }
      }
    };
    for (std::uint64_t n = rng.below(4); n > 0; --n) {
      change();
    }
    edit.keep();
    const Placement kept = placement;
    ASSERT_TRUE(edit.empty() && edit.samples().empty() && !edit.reshapes());
    for (std::uint64_t n = 1 + rng.below(6); n > 0; --n) {
      change();
    }
    ASSERT_TRUE(knows(edit, kept)) << "case " << i;
    edit.undo();
    ASSERT_TRUE(equal(placement, kept)) << "case " << i;
    ASSERT_TRUE(knows(edit, kept)) << "case " << i;
    ASSERT_TRUE(edit.empty() && edit.samples().empty() && !edit.reshapes());
  }
}

TEST(PlacementEdit, SetsWhatItIsAskedTo) {
  Placement placement = small_placement();
  Placement before = placement;
  PlacementEdit edit(placement, before, {0, 1});
  edit.set_llm_slot(5, 1);
  edit.set_encoder_slot(2, 0, 2, 1);
  edit.set_num_slots(1, 5);
  edit.move_sample(1, 0, 1);
  edit.keep();
  EXPECT_EQ(placement.llm_slot[5], 1);
  EXPECT_EQ(placement.encoder_slot[0][2], 1);
  EXPECT_EQ(placement.num_slots[1], 5);
  EXPECT_EQ(placement.samples[0], (std::vector<int>{0, 3, 2}));
  EXPECT_EQ(placement.samples[1], (std::vector<int>{4, 5, 1}));
}

}  // namespace
}  // namespace entrain
