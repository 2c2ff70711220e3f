#include "entrain/engine/models/attention_windows.h"

#include <algorithm>
#include <numeric>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/layers.h"

namespace entrain::engine {
namespace {

// Row of the patch at (row, column) of a grid whose patches are ordered by merge blocks.
std::int64_t row_of_patch(const SegmentGrid& grid,
                          std::int64_t merge_size,
                          std::int64_t row,
                          std::int64_t column) {
  const std::int64_t block = row / merge_size * (grid.columns / merge_size) + column / merge_size;
  return (block * merge_size + row % merge_size) * merge_size + column % merge_size;
}

}  // namespace

AttentionWindows attention_windows(std::span<const SegmentGrid> segments,
                                   std::int64_t merge_size,
                                   std::int64_t window,
                                   at::Device device) {
  ENTRAIN_INVARIANT(window >= 1 && window % merge_size == 0,
                    concat("windows of ", window, " patches, merge size ", merge_size));
  std::vector<std::vector<std::int64_t>> rows;  // of each window
  std::int64_t first = 0;                       // row of the segment
  for (const SegmentGrid& grid : segments) {
    for (std::int64_t top = 0; top < grid.rows; top += window) {
      for (std::int64_t left = 0; left < grid.columns; left += window) {
        std::vector<std::int64_t>& of_window = rows.emplace_back();
        for (std::int64_t row = top; row < std::min(top + window, grid.rows); ++row) {
          for (std::int64_t column = left; column < std::min(left + window, grid.columns);
               ++column) {
            of_window.push_back(first + row_of_patch(grid, merge_size, row, column));
          }
        }
      }
    }
    first += grid.tokens();
  }
  const auto whole_tokens = static_cast<std::size_t>(window * window);
  const auto edge = std::stable_partition(rows.begin(), rows.end(), [&](const auto& of_window) {
    return of_window.size() == whole_tokens;
  });
  AttentionWindows result;
  result.whole = edge - rows.begin();
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(first));
  for (const std::vector<std::int64_t>& of_window : rows) {
    result.lengths.push_back(std::ssize(of_window));
    order.insert(order.end(), of_window.begin(), of_window.end());
  }
  std::vector<std::int64_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  result.order = index_tensor(order, device);
  result.place = index_tensor(place, device);
  return result;
}

at::Tensor window_attention(const at::Tensor& query,
                            const at::Tensor& key,
                            const at::Tensor& value,
                            const AttentionWindows& windows) {
  const std::int64_t tokens = query.size(0);
  ENTRAIN_INVARIANT(windows.order.size(0) == tokens,
                    concat(tokens, " rows for windows of ", windows.order.size(0), " patches"));
  const std::int64_t heads = query.size(1);
  const std::int64_t width = query.size(2);
  const std::int64_t each = windows.whole == 0 ? 0 : windows.lengths.front();
  const std::int64_t in_whole = windows.whole * each;
  const at::Tensor inputs[] = {query.index_select(0, windows.order),
                               key.index_select(0, windows.order),
                               value.index_select(0, windows.order)};
  std::vector<at::Tensor> results;
  if (in_whole > 0) {
    const auto batch = [&](const at::Tensor& rows) {
      return rows.narrow(0, 0, in_whole).view({windows.whole, each, heads, width}).transpose(1, 2);
    };
    results.push_back(
        at::scaled_dot_product_attention(batch(inputs[0]), batch(inputs[1]), batch(inputs[2]))
            .transpose(1, 2)
            .reshape({in_whole, heads * width}));
  }
  if (in_whole < tokens) {
    const auto rest = [&](const at::Tensor& rows) {
      return rows.narrow(0, in_whole, tokens - in_whole);
    };
    const std::span<const std::int64_t> lengths(windows.lengths);
    results.push_back(segment_attention(rest(inputs[0]),
                                        rest(inputs[1]),
                                        rest(inputs[2]),
                                        lengths.subspan(static_cast<std::size_t>(windows.whole)),
                                        /*causal=*/false));
  }
  return at::cat(results).index_select(0, windows.place);
}

}  // namespace entrain::engine
