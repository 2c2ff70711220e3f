#include "entrain/engine/models/audio_layers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/weight_gradients.h"

namespace entrain::engine {
namespace {

// [rows, 1]: 0 at `zero_rows`, 1 elsewhere.
at::Tensor mask_of(const std::vector<std::int64_t>& zero_rows,
                   std::int64_t rows,
                   const at::TensorOptions& options) {
  at::Tensor mask = at::ones({rows}, at::kFloat);
  float* values = mask.mutable_data_ptr<float>();
  for (const std::int64_t row : zero_rows) {
    values[row] = 0.0F;
  }
  return mask.to(options).unsqueeze(1);
}

at::Tensor zero_row(const at::Tensor& like) {
  return at::zeros({1, like.size(1)}, like.options().requires_grad(false));
}

// The rows one earlier; zeros in the first row of every segment.
at::Tensor earlier(const at::Tensor& rows, const std::vector<std::int64_t>& first_rows) {
  const std::int64_t count = rows.size(0);
  return at::cat({zero_row(rows), rows.narrow(0, 0, count - 1)}) *
         mask_of(first_rows, count, rows.options().requires_grad(false));
}

at::Tensor later(const at::Tensor& rows, const std::vector<std::int64_t>& last_rows) {
  const std::int64_t count = rows.size(0);
  return at::cat({rows.narrow(0, 1, count - 1), zero_row(rows)}) *
         mask_of(last_rows, count, rows.options().requires_grad(false));
}

// The frames whose first convolution is read: those of tokens, without a frame after them.
at::Tensor without_margins(const at::Tensor& rows, std::span<const SegmentGrid> segments) {
  std::vector<at::Tensor> pieces;
  std::int64_t begin = 0;
  bool all = true;
  for (const SegmentGrid& segment : segments) {
    const std::int64_t read = std::min(segment.frames, 2 * segment.tokens());
    pieces.push_back(rows.narrow(0, begin, read));
    all = all && read == segment.frames;
    begin += segment.frames;
  }
  return all ? rows : at::cat(pieces);
}

// One row per output of a convolution of three frames, channels first, as in its weights.
at::Tensor convolution(const at::Tensor& before,
                       const at::Tensor& middle,
                       const at::Tensor& behind,
                       const at::Tensor& weight,
                       const at::Tensor& bias) {
  const at::Tensor columns =
      at::stack({before, middle, behind}, 2).view({middle.size(0), 3 * middle.size(1)});
  return at::gelu(split_linear(columns, weight, bias));
}

// Rows with a zero row after every segment with an odd number of frames.
at::Tensor even_rows(const at::Tensor& rows, std::span<const SegmentGrid> segments) {
  std::vector<at::Tensor> pieces;
  std::int64_t begin = 0;
  std::int64_t position = 0;
  const at::Tensor zero = zero_row(rows);
  for (const SegmentGrid& segment : segments) {
    const std::int64_t read = std::min(segment.frames, 2 * segment.tokens());
    position += read;
    if (read % 2 != 0) {
      pieces.push_back(rows.narrow(0, begin, position - begin));
      pieces.push_back(zero);
      begin = position;
    }
  }
  if (pieces.empty()) {
    return rows;
  }
  pieces.push_back(rows.narrow(0, begin, position - begin));
  return at::cat(pieces);
}

// Of every segment as many rows of the table as it has tokens.
at::Tensor first_rows(const at::Tensor& table, std::span<const SegmentGrid> segments) {
  std::vector<at::Tensor> pieces;
  for (const SegmentGrid& segment : segments) {
    pieces.push_back(table.narrow(0, 0, segment.tokens()));
  }
  return at::cat(pieces);
}

}  // namespace

at::Tensor audio_embedding(const AudioEmbedding& weights,
                           const at::Tensor& mel,
                           std::span<const SegmentGrid> segments) {
  std::vector<std::int64_t> first_frames;
  std::vector<std::int64_t> last_frames;
  std::vector<std::int64_t> first_tokens;
  std::int64_t frames = 0;
  std::int64_t tokens = 0;
  for (const SegmentGrid& segment : segments) {
    const bool margin = segment.frames == 2 * segment.tokens() + 1;
    ENTRAIN_INVARIANT(
        segment.frames > 0 && (margin || segment.tokens() == (segment.frames + 1) / 2),
        concat(segment.frames, " mel frames for ", segment.tokens(), " tokens"));
    first_frames.push_back(frames);
    first_tokens.push_back(tokens);
    frames += segment.frames;
    tokens += segment.tokens();
    last_frames.push_back(frames - 1);
  }
  ENTRAIN_INVARIANT(
      mel.dim() == 2 && mel.size(0) == frames && mel.size(1) == weights.weight1.size(1),
      concat("mel frames of shape ", mel.sizes(), " for segments of ", frames));
  const at::Tensor first = convolution(without_margins(earlier(mel, first_frames), segments),
                                       without_margins(mel, segments),
                                       without_margins(later(mel, last_frames), segments),
                                       weights.weight1,
                                       weights.bias1);
  // Token t is centred on frame 2t: its three frames are 2t - 1, 2t and 2t + 1.
  const std::int64_t hidden = first.size(1);
  const std::vector<at::Tensor> pair =
      at::unbind(even_rows(first, segments).view({tokens, 2, hidden}), 1);
  const at::Tensor second =
      convolution(earlier(pair[1], first_tokens), pair[0], pair[1], weights.weight2, weights.bias2);
  if (!weights.positions.defined()) {
    return second + sinusoids(segments, hidden, second.options().requires_grad(false));
  }
  return second + first_rows(weights.positions.detach(), segments);
}

at::Tensor sinusoid_table(std::int64_t tokens, std::int64_t hidden) {
  const std::int64_t half = hidden / 2;
  const at::Tensor rate = at::exp(at::arange(half, at::kDouble) *
                                  (-std::log(10'000.0) / static_cast<double>(half - 1)));
  const at::Tensor angle = at::arange(tokens, at::kDouble).unsqueeze(1) * rate.unsqueeze(0);
  return at::cat({angle.sin(), angle.cos()}, 1);
}

at::Tensor sinusoids(std::span<const SegmentGrid> segments,
                     std::int64_t hidden,
                     const at::TensorOptions& options) {
  std::int64_t longest = 0;
  for (const SegmentGrid& segment : segments) {
    longest = std::max(longest, segment.tokens());
  }
  return first_rows(sinusoid_table(longest, hidden).to(options), segments);
}

at::Tensor merged_rows(const at::Tensor& tokens, std::span<const SegmentGrid> segments) {
  std::vector<at::Tensor> pieces;
  std::int64_t begin = 0;
  bool all = true;
  for (const SegmentGrid& segment : segments) {
    ENTRAIN_INVARIANT(2 * segment.features <= segment.tokens(),
                      concat(segment.features, " features of ", segment.tokens(), " tokens"));
    pieces.push_back(tokens.narrow(0, begin, 2 * segment.features));
    all = all && 2 * segment.features == segment.tokens();
    begin += segment.tokens();
  }
  return all ? tokens : at::cat(pieces);
}

at::Tensor patch_rows(const at::Tensor& tokens, std::span<const SegmentGrid> segments) {
  std::vector<at::Tensor> pieces;
  std::int64_t begin = 0;
  bool all = true;
  for (const SegmentGrid& segment : segments) {
    pieces.push_back(tokens.narrow(0, begin + segment.extra, segment.rows * segment.columns));
    all = all && segment.extra == 0;
    begin += segment.tokens();
  }
  return all ? tokens : at::cat(pieces);
}

}  // namespace entrain::engine
