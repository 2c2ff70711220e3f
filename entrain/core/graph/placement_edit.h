// Undoable changes to a placement: one move of a search.
#pragma once

#include <vector>

#include "entrain/core/graph/placement.h"

namespace entrain {

class PlacementEdit {
 public:
  // Of some replicas: others of the same placement may be edited beside them, by edits of their
  // own. `before` becomes what the placement was at the last keep().
  //
  // Requires  `before` equals `placement` in these replicas; both outlive the edit, and what they
  //           hold of these replicas changes through it only.
  PlacementEdit(Placement& placement, Placement& before, const std::vector<int>& replicas);

  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] int replica_of(int sample) const {
    return replica_[static_cast<std::size_t>(sample)];
  }
  // The slots as they were at the last keep(); nothing else of it is kept up.
  [[nodiscard]] const Placement& before() const { return before_; }
  [[nodiscard]] int replica_before(int sample) const {
    return replica_before_[static_cast<std::size_t>(sample)];
  }
  // Samples of which anything changed since the last keep(), each once.
  [[nodiscard]] const std::vector<int>& samples() const { return samples_; }
  // Whether a replica's number of slots or a sample's chunks changed since then.
  [[nodiscard]] bool reshapes() const { return reshapes_; }

  void set_llm_slot(int sample, int slot);
  void set_encoder_slot(int sample, int module, int unit, int slot);  // `unit`: of the sample
  void set_chunks(int sample, std::vector<ChunkPlace> chunks);
  void set_num_slots(int replica, int num_slots);
  // Appends to another replica's samples; slots are unchanged.
  void move_sample(int sample, int from, int to);

  [[nodiscard]] bool empty() const { return journal_.empty(); }
  // Commits the changes so far.
  void keep();
  // Undoes every change since the last keep(), including the order of a replica's samples.
  void undo();

 private:
  enum class Field : char { kLlmSlot, kEncoderSlot, kNumSlots, kReplica, kChunks };
  struct Change {
    Field field;
    int module;  // kReplica: the replica it came from
    int index;   // sample, unit or replica
    int old;     // kReplica: its old position there
  };
  void record(int sample, const Change& change);
  void clear();

  Placement& placement_;
  std::vector<int> position_;    // [sample] in its replica's list
  std::vector<int> replica_;     // [sample]
  std::vector<Change> journal_;  // since the last keep(), in order
  std::vector<int> samples_;
  Placement& before_;
  std::vector<int> replica_before_;  // [sample]
  std::vector<char> is_changed_;     // [sample] whether in samples_
  bool reshapes_ = false;
  std::vector<std::vector<ChunkPlace>> old_chunks_;  // of the journal's kChunks, in order
};

}  // namespace entrain
