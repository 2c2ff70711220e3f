#include "entrain/engine/pipeline/chunk_store.h"

#include <algorithm>
#include <memory>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {

std::vector<PackedItem> ChunkStore::items_of(int stage, const Group& group, bool gradients) {
  std::vector<PackedItem> items;
  items.reserve(group.items.size());
  for (const WorkItem& item : group.items) {
    PackedItem& packed = items.emplace_back();
    packed.rows = item_rows(sizes_, sizes_.program.llm_module(), item);
    if (!item.is_chunk()) {
      continue;
    }
    packed.begin = item.token_begin;
    std::int64_t seen = 0;
    if (packed.begin > 0) {
      for (const Chunk& chunk : chunks_[{stage, item.sample}]) {
        packed.earlier.push_back(chunk.kept);
        seen = chunk.end;
      }
    }
    ENTRAIN_INVARIANT(
        seen == packed.begin,
        concat("sample ", item.sample, ": tokens from ", packed.begin, " run after ", seen));
    if (!ends_sample(sizes_.costs, item)) {
      packed.own = std::make_shared<ChunkKeyValues>();
      packed.own->takes_gradients = gradients;
      chunks_[{stage, item.sample}].push_back({item.token_begin, item.token_end, packed.own});
    }
  }
  return items;
}

void ChunkStore::after_forward(int stage, const Group& group) {
  for (const WorkItem& item : group.items) {
    const auto found = chunks_.find({stage, item.sample});
    if (found == chunks_.end() || !ends_sample(sizes_.costs, item)) {
      continue;
    }
    std::erase_if(found->second, [](const Chunk& chunk) { return !chunk.kept->takes_gradients; });
    if (found->second.empty()) {
      chunks_.erase(found);
    }
  }
}

void ChunkStore::after_backward(int stage, const Group& group) {
  for (const WorkItem& item : group.items) {
    const auto found = chunks_.find({stage, item.sample});
    if (found == chunks_.end() || ends_sample(sizes_.costs, item)) {
      continue;
    }
    std::vector<Chunk>& chunks = found->second;
    ENTRAIN_INVARIANT(!chunks.empty() && chunks.back().begin == item.token_begin,
                      concat("sample ",
                             item.sample,
                             ": backward of tokens from ",
                             item.token_begin,
                             " before that of later ones"));
    chunks.pop_back();
    if (chunks.empty()) {
      chunks_.erase(found);
    }
  }
}

bool has_chunks(const Group& group) {
  return std::any_of(
      group.items.begin(), group.items.end(), [](const WorkItem& item) { return item.is_chunk(); });
}

}  // namespace entrain::engine
