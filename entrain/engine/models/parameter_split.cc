#include "entrain/engine/models/parameter_split.h"

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {

std::vector<std::int64_t> part_shape(std::vector<std::int64_t> whole,
                                     const ParameterSplit& split,
                                     int num_ranks) {
  if (!split.whole()) {
    std::int64_t& size = whole.at(static_cast<std::size_t>(split.axis));
    ENTRAIN_INVARIANT(size % (std::int64_t{split.blocks} * num_ranks) == 0,
                      concat("an axis of ",
                             size,
                             " in ",
                             split.blocks,
                             " blocks does not divide among ",
                             num_ranks,
                             " ranks"));
    size /= num_ranks;
  }
  return whole;
}

at::Tensor part_of(const at::Tensor& whole, const ParameterSplit& split, int rank, int num_ranks) {
  if (split.whole() || num_ranks == 1) {
    return whole;
  }
  const std::vector<std::int64_t> shape = part_shape(whole.sizes().vec(), split, num_ranks);
  const std::int64_t own = shape[static_cast<std::size_t>(split.axis)] / split.blocks;
  const at::Tensor blocks = whole.unflatten(split.axis, {split.blocks, own * num_ranks});
  return blocks.narrow(split.axis + 1, rank * own, own).reshape(shape);
}

at::Tensor joined_parts(std::span<const at::Tensor> parts, const ParameterSplit& split) {
  if (split.whole() || parts.size() == 1) {
    return parts.front();
  }
  std::vector<at::Tensor> blocks;
  for (const at::Tensor& part : parts) {
    blocks.push_back(
        part.unflatten(split.axis, {split.blocks, part.size(split.axis) / split.blocks}));
  }
  return at::cat(blocks, split.axis + 1).flatten(split.axis, split.axis + 1);
}

}  // namespace entrain::engine
