#include "entrain/core/graph/placement_edit.h"

#include <utility>

#include "entrain/core/base/at.h"

namespace entrain {

PlacementEdit::PlacementEdit(Placement& placement,
                             Placement& before,
                             const std::vector<int>& replicas)
    : placement_(placement),
      position_(placement.llm_slot.size(), 0),
      replica_(placement.llm_slot.size(), 0),
      before_(before),
      is_changed_(placement.llm_slot.size(), 0) {
  for (const int replica : replicas) {
    const std::vector<int>& samples = placement.samples[at(replica)];
    for (std::size_t i = 0; i < samples.size(); ++i) {
      position_[at(samples[i])] = static_cast<int>(i);
      replica_[at(samples[i])] = replica;
    }
  }
  replica_before_ = replica_;
}

void PlacementEdit::record(int sample, const Change& change) {
  journal_.push_back(change);
  if (is_changed_[at(sample)] == 0) {
    is_changed_[at(sample)] = 1;
    samples_.push_back(sample);
  }
}

void PlacementEdit::set_llm_slot(int sample, int slot) {
  int& value = placement_.llm_slot[at(sample)];
  if (value != slot) {
    record(sample, {Field::kLlmSlot, 0, sample, value});
    value = slot;
  }
}

void PlacementEdit::set_encoder_slot(int sample, int module, int unit, int slot) {
  int& value = placement_.encoder_slot[at(module)][at(unit)];
  if (value != slot) {
    record(sample, {Field::kEncoderSlot, module, unit, value});
    value = slot;
  }
}

void PlacementEdit::set_chunks(int sample, std::vector<ChunkPlace> chunks) {
  std::vector<ChunkPlace>& value = placement_.chunks[at(sample)];
  if (value != chunks) {
    record(sample, {Field::kChunks, 0, sample, 0});
    reshapes_ = true;
    old_chunks_.push_back(std::move(value));
    value = std::move(chunks);
  }
}

void PlacementEdit::set_num_slots(int replica, int num_slots) {
  journal_.push_back({Field::kNumSlots, 0, replica, placement_.num_slots[at(replica)]});
  placement_.num_slots[at(replica)] = num_slots;
  reshapes_ = true;
}

void PlacementEdit::move_sample(int sample, int from, int to) {
  std::vector<int>& source = placement_.samples[at(from)];
  const int position = position_[at(sample)];
  record(sample, {Field::kReplica, from, sample, position});
  source[at(position)] = source.back();
  position_[at(source.back())] = position;
  source.pop_back();
  position_[at(sample)] = static_cast<int>(placement_.samples[at(to)].size());
  placement_.samples[at(to)].push_back(sample);
  replica_[at(sample)] = to;
}

void PlacementEdit::keep() {
  for (const Change& change : journal_) {
    const std::size_t index = at(change.index);
    if (change.field == Field::kLlmSlot) {
      before_.llm_slot[index] = placement_.llm_slot[index];
    } else if (change.field == Field::kEncoderSlot) {
      const std::size_t module = at(change.module);
      before_.encoder_slot[module][index] = placement_.encoder_slot[module][index];
    } else if (change.field == Field::kReplica) {
      replica_before_[index] = replica_[index];
    }
  }
  clear();
}

void PlacementEdit::clear() {
  for (const int sample : samples_) {
    is_changed_[at(sample)] = 0;
  }
  samples_.clear();
  journal_.clear();
  old_chunks_.clear();
  reshapes_ = false;
}

void PlacementEdit::undo() {
  for (auto change = journal_.rbegin(); change != journal_.rend(); ++change) {
    switch (change->field) {
      case Field::kLlmSlot:
        placement_.llm_slot[at(change->index)] = change->old;
        break;
      case Field::kEncoderSlot:
        placement_.encoder_slot[at(change->module)][at(change->index)] = change->old;
        break;
      case Field::kChunks:
        placement_.chunks[at(change->index)] = std::move(old_chunks_.back());
        old_chunks_.pop_back();
        break;
      case Field::kNumSlots:
        placement_.num_slots[at(change->index)] = change->old;
        break;
      case Field::kReplica: {
        // It is the last of its replica's samples: changes come back in reverse order.
        placement_.samples[at(replica_[at(change->index)])].pop_back();
        replica_[at(change->index)] = change->module;
        std::vector<int>& source = placement_.samples[at(change->module)];
        source.push_back(change->index);
        std::swap(source[at(change->old)], source.back());
        position_[at(source[at(change->old)])] = change->old;
        position_[at(source.back())] = static_cast<int>(source.size()) - 1;
        break;
      }
    }
  }
  clear();
}

}  // namespace entrain
