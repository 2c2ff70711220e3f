// Undoable changes to a placement: one move of a search.
#pragma once

#include <vector>

#include "entrain/core/graph/placement.h"

namespace entrain {

class PlacementEdit {
 public:
  // `placement` must outlive the edit and change through it only.
  explicit PlacementEdit(Placement& placement);

  enum class Field : char { kLlmSlot, kEncoderSlot, kNumSlots, kReplica, kChunks };
  struct Change {
    Field field;
    int module;  // kReplica: the replica it came from
    int index;   // sample, unit or replica
    int old;     // kReplica: its old position there
  };
  // Since the last keep(), in order.
  [[nodiscard]] const std::vector<Change>& changes() const { return journal_; }

  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] int replica_of(int sample) const {
    return replica_[static_cast<std::size_t>(sample)];
  }

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
  // Undoes every change since the last keep(), including the order of a replica's samples.
  void undo();

 private:
  Placement& placement_;
  std::vector<int> position_;  // [sample] in its replica's list
  std::vector<int> replica_;   // [sample]
  std::vector<Change> journal_;
  std::vector<std::vector<ChunkPlace>> old_chunks_;  // of the journal's kChunks, in order
};

}  // namespace entrain
