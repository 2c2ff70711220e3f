// Keys and values of chunks on a lane's LLM stages, from the forward that computes them to their
// last use.
//
// Read first: items_of(). Chunks of a sample run forward in rising order and backward in falling
// order. A chunk with a backward keeps its keys and values until its own backward, the
// last operation that reads them or their gradients. A chunk without one keeps them until the
// forward that ends its sample.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "entrain/core/spec/program.h"

#include "entrain/engine/models/chunk_attention.h"
#include "entrain/engine/pipeline/shapes.h"

namespace entrain::engine {

class ChunkStore {
 public:
  // Requires  everything `sizes` refers to outlives this object.
  explicit ChunkStore(const StepSizes& sizes) : sizes_(sizes) {}

  // The items of an LLM group for a stage's forward: chunks with the keys and values of earlier
  // chunks, and storage for their own if later ones follow. `gradients`: the group has a backward.
  std::vector<PackedItem> items_of(int stage, const Group& group, bool gradients);

  void after_forward(int stage, const Group& group);
  void after_backward(int stage, const Group& group);

  [[nodiscard]] bool empty() const { return chunks_.empty(); }

 private:
  struct Chunk {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    ChunkKeyValuesPtr kept;
  };
  std::map<std::pair<int, int>, std::vector<Chunk>> chunks_;  // by (stage, sample), rising
  StepSizes sizes_;
};

// Whether any item is a chunk.
bool has_chunks(const Group& group);

}  // namespace entrain::engine
