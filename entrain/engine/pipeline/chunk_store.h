// Keys and values of chunks on a lane's LLM stages: from the forward that makes them to the last
// use.
//
// Read first: items_of(). Chunks of a sample run forward in rising order and backward in falling
// order. A chunk that takes part in backward keeps its keys and values until its own backward, the
// last that asks for them or for their gradients; one that does not, until the forward that ends
// its sample.
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
  // Requires  everything behind `sizes` outlives this object.
  explicit ChunkStore(const StepSizes& sizes) : sizes_(sizes) {}

  // The items of an LLM group for a stage's forward, chunks with what earlier ones have kept and a
  // place for their own where later ones follow. `gradients`: the group takes part in backward.
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

// Whether some item is a chunk.
bool has_chunks(const Group& group);

}  // namespace entrain::engine
