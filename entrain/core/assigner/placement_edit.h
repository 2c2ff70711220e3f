// Undoable changes to a placement: one move of a search.
#pragma once

#include <algorithm>
#include <vector>

#include "entrain/core/graph/placement.h"

namespace entrain {

class PlacementEdit {
 public:
  // `placement` must outlive the edit and change through it only.
  explicit PlacementEdit(Placement& placement);

  [[nodiscard]] const Placement& placement() const { return placement_; }

  void set_llm_slot(int sample, int slot);
  void set_encoder_slot(int module, int unit, int slot);
  void set_chunks(int sample, std::vector<ChunkPlace> chunks);
  void set_num_slots(int replica, int num_slots);
  // Appends to another replica's samples; slots are unchanged.
  void move_sample(int sample, int from, int to);

  [[nodiscard]] bool empty() const { return journal_.empty(); }
  // Commits the changes so far.
  void keep() {
    journal_.clear();
    old_chunks_.clear();
  }
  // Samples and units (module, unit) that changed since the last keep(), some of them
  // more than once.
  template <class VisitSample, class VisitUnit>
  void for_each_changed(VisitSample sample, VisitUnit unit) const {
    for (const Change& change : journal_) {
      if (change.field == Field::kEncoderSlot) {
        unit(change.module, change.index);
      } else if (change.field != Field::kNumSlots && change.field != Field::kChunks) {
        sample(change.index);
      }
    }
  }
  // Whether the number of slots or a sample's chunks did.
  [[nodiscard]] bool changed_more() const {
    return std::any_of(journal_.begin(), journal_.end(), [](const Change& change) {
      return change.field == Field::kNumSlots || change.field == Field::kChunks;
    });
  }
  // The replica that has a sample: `one` or `other`.
  [[nodiscard]] int replica_of(int sample, int one, int other) const {
    const std::vector<int>& samples = placement_.samples[static_cast<std::size_t>(one)];
    const auto position = static_cast<std::size_t>(position_[static_cast<std::size_t>(sample)]);
    return position < samples.size() && samples[position] == sample ? one : other;
  }
  // Undoes every change since the last keep(), including the order of a replica's
  // samples.
  void undo();

 private:
  enum class Field : char { kLlmSlot, kEncoderSlot, kNumSlots, kReplica, kChunks };
  struct Change {
    Field field;
    int module;  // kReplica: the replica it came from
    int index;   // sample, unit or replica
    int old;     // kReplica: its old position there
  };

  Placement& placement_;
  std::vector<int> position_;  // [sample] in its replica's list
  std::vector<Change> journal_;
  std::vector<std::vector<ChunkPlace>> old_chunks_;  // of the journal's kChunks, in order
};

}  // namespace entrain
