// Tensors between units: stored by a stage of this lane, or received from another.
//
// Read first: UnitTensors. A lane has one for outputs and one for gradients; the key is always the
// forward unit whose output (or output gradient) it is.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include <ATen/ATen.h>

#include "entrain/core/spec/program.h"

#include "entrain/engine/comm/comm.h"

namespace entrain::engine {

class UnitTensors {
 public:
  struct Taken {
    at::Tensor tensor;
    std::optional<int> receive;  // position of the receive operation, if received from another lane
  };

  void put(const UnitKey& unit, at::Tensor tensor);
  void post(const UnitKey& unit, std::unique_ptr<PendingReceive> receive, int position);

  // Removes the unit's tensor, waiting for it if its receive is pending.
  // Throws  InternalError if it was neither stored nor posted, and what the receive throws.
  Taken take(const UnitKey& unit);

  [[nodiscard]] bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    at::Tensor tensor;
    std::unique_ptr<PendingReceive> receive;
    int position = -1;
  };
  Entry& add(const UnitKey& unit);
  std::map<UnitKey, Entry> entries_;
};

}  // namespace entrain::engine
