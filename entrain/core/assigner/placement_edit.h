// Changes to a placement that can be taken back: one move of a search.
#pragma once

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
  // To the end of another replica's samples; its slots stay what they are.
  void move_sample(int sample, int from, int to);

  [[nodiscard]] bool empty() const { return journal_.empty(); }
  // Forgets the changes so far: they stay.
  void keep() {
    journal_.clear();
    old_chunks_.clear();
  }
  // Takes back every change since the last keep(); the order of a replica's samples included.
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
