// Activation bytes of one lane along its list. They depend on the order of operations only, never
// on their times.
#pragma once

#include <cstdint>
#include <vector>

#include "entrain/core/simulator/tables.h"

namespace entrain::simulation {

class LaneMemory {
 public:
  LaneMemory(const ReplicaTables& tables, int lane);

  // Operations in list order; `unit` is tables.unit_of(operation.unit), channel that of a receive.
  void forward(const UnitKey& key, int unit);
  void backward(const UnitKey& key, int unit);
  void backward_input(const UnitKey& key, int unit);
  void backward_weight(int unit);
  void receive(const Channel& channel, int unit);

  // Bytes held behind the last operation.
  [[nodiscard]] std::int64_t held() const { return held_; }
  // Bytes held while the last operation ran: what it frees is still there.
  [[nodiscard]] std::int64_t during() const { return during_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  void hold(std::int64_t bytes);
  void release_features(const UnitKey& key, int unit);
  void release_keys_and_values(int unit);
  // What a backward makes and brings back: gradients of keys and values, and `recomputed` bytes.
  void start_backward(int unit, std::int64_t recomputed);
  void finish_input(const UnitKey& key, int unit);

  const ReplicaTables* tables_;
  bool takes_features_;           // hosts the LLM's first stage
  std::vector<int> takers_left_;  // [unit] encoder outputs held here: LLM units still to take them
  std::int64_t held_ = 0;
  std::int64_t during_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace entrain::simulation
