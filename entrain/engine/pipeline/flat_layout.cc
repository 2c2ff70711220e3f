#include "entrain/engine/pipeline/flat_layout.h"

#include <algorithm>

#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<NamedParameter>& parameters, int num_shards)
    : num_shards_(num_shards) {
  std::int64_t end = 0;
  for (const NamedParameter& parameter : parameters) {
    if (parameter.tensor.requires_grad()) {
      entries_.push_back({parameter.name,
                          parameter.tensor.sizes().vec(),
                          end,
                          parameter.tensor.numel(),
                          parameter.split});
      end = rounded_up(end + parameter.tensor.numel(), kAlignment);
    }
  }
  shard_size_ = rounded_up(end, kAlignment * num_shards) / num_shards;
}

at::Tensor FlatLayout::shard_of(const at::Tensor& buffer, int shard) const {
  return buffer.narrow(0, shard * shard_size_, shard_size_);
}

std::vector<ShardPiece> FlatLayout::pieces(int shard) const {
  const std::int64_t shard_begin = shard * shard_size_;
  std::vector<ShardPiece> pieces;
  for (const FlatEntry& entry : entries_) {
    const std::int64_t begin = std::max(entry.begin, shard_begin);
    const std::int64_t end = std::min(entry.begin + entry.size, shard_begin + shard_size_);
    if (begin < end) {
      pieces.push_back({&entry, begin - shard_begin, end - begin});
    }
  }
  return pieces;
}

std::vector<NamedParameter> FlatLayout::views(const at::Tensor& buffer,
                                              std::string_view suffix) const {
  std::vector<NamedParameter> views;
  views.reserve(entries_.size());
  for (const FlatEntry& entry : entries_) {
    views.push_back({concat(entry.name, suffix),
                     buffer.narrow(0, entry.begin, entry.size).view(entry.shape),
                     entry.split});
  }
  return views;
}

}  // namespace entrain::engine
