#include "tests/oracle/engine/reference_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/stages.h"

namespace entrain::oracle {
namespace {

// The weights of one step as leaves, looked up by name.
class Model {
 public:
  Model(const ModelSpec& spec, const NamedWeights& weights) : spec_(spec) {
    for (const auto& [name, tensor] : weights) {
      leaves_[name] = tensor.detach().clone().set_requires_grad(true);
    }
  }

  // Sum of the cross-entropy of one sample's targets.
  [[nodiscard]] at::Tensor loss_sum(const ReferenceSample& sample) const;
  [[nodiscard]] const NamedWeights& leaves() const { return leaves_; }

 private:
  [[nodiscard]] const at::Tensor& weight(const std::string& name) const { return leaves_.at(name); }
  [[nodiscard]] at::Tensor features_of(const ReferenceSegment& segment) const;
  [[nodiscard]] at::Tensor image_features(const ReferenceSegment& image) const;
  [[nodiscard]] at::Tensor canvas_features(const ReferenceSegment& image) const;
  [[nodiscard]] at::Tensor audio_features(const ReferenceSegment& window) const;
  // One transformer layer of an encoder; `positioned` puts queries and keys where they stand.
  template <class Positioned>
  [[nodiscard]] at::Tensor transform(const at::Tensor& x,
                                     const EncoderSpec& encoder,
                                     const std::string& prefix,
                                     const at::Tensor& mask,
                                     const Positioned& positioned) const;
  [[nodiscard]] at::Tensor project(const at::Tensor& tokens,
                                   const EncoderSpec& encoder,
                                   std::int64_t block,
                                   const std::string& merger) const;
  // `deep`: [level] rows to add after the first layers.
  [[nodiscard]] at::Tensor decode(at::Tensor hidden,
                                  const std::vector<at::Tensor>& deep,
                                  const ReferenceSample& sample) const;
  [[nodiscard]] at::Tensor norm(const at::Tensor& x, const std::string& name, double epsilon) const;
  // The weight, with its adapter added if it has one.
  [[nodiscard]] at::Tensor matrix(const std::string& name) const;
  // With the bias, if the model has one of this name.
  [[nodiscard]] at::Tensor linear(const at::Tensor& x, const std::string& name) const;
  // Of every head, if the model has such a norm.
  [[nodiscard]] at::Tensor head_norm(const at::Tensor& heads, const std::string& name) const;
  [[nodiscard]] at::Tensor mlp(const at::Tensor& x,
                               const std::string& prefix,
                               Activation activation) const;
  // By a gain, if the model has one of this name.
  [[nodiscard]] at::Tensor scaled(const at::Tensor& x, const std::string& name) const;

  const ModelSpec& spec_;
  NamedWeights leaves_;
};

at::Tensor times(const at::Tensor& x, const at::Tensor& weight) {
  return at::matmul(x, weight.transpose(0, 1));
}

at::Tensor Model::norm(const at::Tensor& x, const std::string& name, double epsilon) const {
  const std::string bias = name.substr(0, name.rfind('.')) + ".bias";
  if (!leaves_.contains(bias)) {
    return x / at::sqrt(at::mean(x * x, {-1}, true) + epsilon) * weight(name);
  }
  const at::Tensor centred = x - at::mean(x, {-1}, true);
  return centred / at::sqrt(at::mean(centred * centred, {-1}, true) + epsilon) * weight(name) +
         weight(bias);
}

at::Tensor Model::matrix(const std::string& name) const {
  const at::Tensor& base = weight(name + ".weight");
  const auto down = leaves_.find(name + ".lora_A.weight");
  if (down == leaves_.end()) {
    return base;
  }
  const LoraSpec& lora = spec_.llm.lora;
  return base + at::matmul(weight(name + ".lora_B.weight"), down->second) * lora.alpha / lora.rank;
}

at::Tensor Model::linear(const at::Tensor& x, const std::string& name) const {
  const at::Tensor product = times(x, matrix(name));
  return leaves_.contains(name + ".bias") ? product + weight(name + ".bias") : product;
}

at::Tensor Model::head_norm(const at::Tensor& heads, const std::string& name) const {
  return leaves_.contains(name) ? norm(heads, name, spec_.llm.norm_epsilon) : heads;
}

at::Tensor act(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return x * at::sigmoid(x);
    case Activation::kGelu:
      return x * 0.5 * (1 + at::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return x * 0.5 * (1 + at::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return x / (1 + at::exp(-1.702 * x));
  }
  return {};
}

at::Tensor Model::mlp(const at::Tensor& x, const std::string& prefix, Activation activation) const {
  const at::Tensor up = linear(x, prefix + "up_proj");
  const bool gated = leaves_.contains(prefix + "gate_proj.weight");
  const at::Tensor inner =
      gated ? act(linear(x, prefix + "gate_proj"), activation) * up : act(up, activation);
  return linear(inner, prefix + "down_proj");
}

at::Tensor Model::scaled(const at::Tensor& x, const std::string& name) const {
  return leaves_.contains(name) ? x * weight(name) : x;
}

// x: [n, heads, width]; positions: [n] or [n, pairs] float64. Hugging Face's form: x·cos +
// rotate_half(x)·sin.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& positions, double theta) {
  const std::int64_t width = x.size(2);
  const at::Tensor exponent = at::arange(0, width, 2, at::kDouble) / static_cast<double>(width);
  const at::Tensor frequency = 1.0 / at::pow(at::Scalar(theta), exponent);
  const at::Tensor half =
      (positions.dim() == 1 ? positions.unsqueeze(1) : positions) * frequency.unsqueeze(0);
  const at::Tensor angle = at::cat({half, half}, 1).unsqueeze(1);
  const at::Tensor turned =
      at::cat({-x.narrow(2, width / 2, width / 2), x.narrow(2, 0, width / 2)}, 2);
  return x * angle.cos().to(x.dtype()) + turned * angle.sin().to(x.dtype());
}

// query: [n, heads, width]; key, value: [n, kv heads, width]; mask: [n, n] true where allowed.
at::Tensor attend(const at::Tensor& query,
                  const at::Tensor& key,
                  const at::Tensor& value,
                  const at::Tensor& mask) {
  const std::int64_t shared = query.size(1) / key.size(1);
  std::vector<at::Tensor> heads;
  for (std::int64_t head = 0; head < query.size(1); ++head) {
    const at::Tensor q = query.select(1, head);
    const at::Tensor k = key.select(1, head / shared);
    const at::Tensor v = value.select(1, head / shared);
    const at::Tensor scores =
        at::matmul(q, k.transpose(0, 1)) / std::sqrt(static_cast<double>(query.size(2)));
    const at::Tensor masked =
        scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
    heads.push_back(at::matmul(at::softmax(masked, 1), v));
  }
  return at::cat(heads, 1);
}

template <class Positioned>
at::Tensor Model::transform(const at::Tensor& x,
                            const EncoderSpec& encoder,
                            const std::string& prefix,
                            const at::Tensor& mask,
                            const Positioned& positioned) const {
  const double epsilon = encoder.norm_epsilon;
  const at::Tensor normed = norm(x, prefix + "norm1.weight", epsilon);
  const bool packed = leaves_.contains(prefix + "attn.qkv.weight");
  const char* const names[3] = {"attn.q_proj", "attn.k_proj", "attn.v_proj"};
  const auto heads = [&](std::int64_t which) {
    const at::Tensor rows =
        packed
            ? linear(normed, prefix + "attn.qkv").narrow(1, which * encoder.hidden, encoder.hidden)
            : linear(normed, prefix + names[which]);
    return rows.reshape({x.size(0), encoder.num_heads, encoder.hidden / encoder.num_heads});
  };
  const at::Tensor attended = attend(positioned(heads(0)), positioned(heads(1)), heads(2), mask);
  const at::Tensor middle =
      x + scaled(linear(attended, prefix + "attn.proj"), prefix + "scale1.weight");
  return middle + scaled(mlp(norm(middle, prefix + "norm2.weight", epsilon),
                             prefix + "mlp.",
                             encoder.activation),
                         prefix + "scale2.weight");
}

// `tokens`: those that are merged, [blocks · block, hidden].
at::Tensor Model::project(const at::Tensor& tokens,
                          const EncoderSpec& encoder,
                          std::int64_t block,
                          const std::string& merger) const {
  const double epsilon =
      encoder.projector.norm_epsilon > 0 ? encoder.projector.norm_epsilon : encoder.norm_epsilon;
  at::Tensor x = tokens;
  if (leaves_.contains(merger + "ln_q.weight")) {
    x = norm(x, merger + "ln_q.weight", epsilon);
  }
  x = encoder.projector.average
          ? x.reshape({x.size(0) / block, block, encoder.hidden}).sum(1) / block
          : x.reshape({x.size(0) / block, block * encoder.hidden});
  if (leaves_.contains(merger + "norm.weight")) {
    x = norm(x, merger + "norm.weight", epsilon);
  }
  if (leaves_.contains(merger + "mlp.0.weight")) {
    x = act(linear(x, merger + "mlp.0"), encoder.projector.activation);
  }
  return linear(x, merger + "mlp.2");
}

// Between the places of a resized axis: for each the two it lies between, and the second's share.
struct Taps {
  std::int64_t first, second;
  double share;
};
Taps taps_of(std::int64_t place, std::int64_t places, std::int64_t length) {
  const double middle = (static_cast<double>(place) + 0.5) * static_cast<double>(length) /
                            static_cast<double>(places) -
                        0.5;
  const double at_place = std::max(middle, 0.0);
  const auto first = static_cast<std::int64_t>(at_place);
  return {first, std::min(first + 1, length - 1), at_place - static_cast<double>(first)};
}

// Feature by feature.
at::Tensor Model::canvas_features(const ReferenceSegment& image) const {
  const EncoderSpec& encoder = spec_.encoders.at(static_cast<std::size_t>(image.module));
  const FeatureCanvas& canvas = image.canvas;
  const std::int64_t side = encoder.table_side;
  std::vector<at::Tensor> tiles;
  for (int tile = 0; tile < canvas.tiles.count(); ++tile) {
    ReferenceSegment one = image;
    one.input = image.input.narrow(0, tile * side * side, side * side);
    tiles.push_back(image_features(one));
  }
  const at::Tensor newline = weight("visual.merger.newline.weight")[0];
  std::vector<at::Tensor> rows(at::unbind(tiles.front()));
  if (canvas.tiles.count() == 1) {
    rows.push_back(newline);
    return at::stack(rows);
  }
  const auto feature = [&](std::int64_t row, std::int64_t column) {
    const std::int64_t y = canvas.top + row;
    const std::int64_t x = canvas.left + column;
    const auto tile = static_cast<std::size_t>(1 + y / side * canvas.tiles.columns + x / side);
    return tiles[tile][y % side * side + x % side];
  };
  for (int row = 0; row < canvas.resized_rows; ++row) {
    const Taps down = taps_of(row, canvas.resized_rows, canvas.rows);
    for (int column = 0; column < canvas.resized_columns; ++column) {
      const Taps right = taps_of(column, canvas.resized_columns, canvas.columns);
      const auto along = [&](std::int64_t y) {
        return (1 - right.share) * feature(y, right.first) + right.share * feature(y, right.second);
      };
      rows.push_back((1 - down.share) * along(down.first) + down.share * along(down.second));
    }
    rows.push_back(newline);
  }
  return at::stack(rows);
}

at::Tensor Model::features_of(const ReferenceSegment& segment) const {
  const EncoderSpec& encoder = spec_.encoders.at(static_cast<std::size_t>(segment.module));
  if (encoder.tiling.kind == TilingSpec::Kind::kAnyResolution) {
    return canvas_features(segment);
  }
  return encoder.modality == Modality::kVision ? image_features(segment) : audio_features(segment);
}

// Whisper's front end in torch's own convolutions, which pad the window with zeros.
at::Tensor Model::audio_features(const ReferenceSegment& window) const {
  const EncoderSpec& encoder = spec_.encoders.at(static_cast<std::size_t>(window.module));
  const std::string root = encoder.name == "audio" ? "audio_tower" : encoder.name;
  const auto convolved = [&](const at::Tensor& x, const std::string& name, std::int64_t stride) {
    const at::Tensor& filters = weight(root + "." + name + ".weight");
    return act(at::conv1d(x, filters, weight(root + "." + name + ".bias"), stride, 1),
               Activation::kGelu);
  };
  const at::Tensor mel = window.input.to(weight(root + ".conv1.weight").dtype());
  at::Tensor x = convolved(mel.transpose(0, 1).unsqueeze(0), "conv1", 1);
  x = convolved(x, "conv2", 2).squeeze(0).transpose(0, 1);
  const std::int64_t tokens = x.size(0);
  const std::int64_t real = window.tokens > 0 ? window.tokens : tokens;
  const std::int64_t half = encoder.hidden / 2;
  at::Tensor positions = at::empty({tokens, encoder.hidden}, x.options().requires_grad(false));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(t) *
          std::pow(10'000.0, -static_cast<double>(i) / static_cast<double>(half - 1));
      positions[t][i] = std::sin(angle);
      positions[t][half + i] = std::cos(angle);
    }
  }
  x = x + (encoder.stored_positions
               ? weight(root + ".positions.weight").detach().narrow(0, 0, tokens)
               : positions);
  const at::Tensor heard =
      (at::arange(tokens, at::kLong) < real).unsqueeze(0).expand({tokens, tokens});
  for (int layer = 0; layer < encoder.num_layers; ++layer) {
    const auto as_they_are = [](const at::Tensor& heads) { return heads; };
    x = transform(x, encoder, concat(root, ".blocks.", layer, "."), heard, as_they_are);
  }
  const std::string merger = root + ".merger.";
  return project(x.narrow(0, 0, real / 2 * 2), encoder, 2, merger);
}

at::Tensor Model::image_features(const ReferenceSegment& image) const {
  const EncoderSpec& encoder = spec_.encoders.at(static_cast<std::size_t>(image.module));
  const std::string root = encoder.name == "vision" ? "visual" : encoder.name;
  const std::int64_t patches = image.rows * image.columns;
  const std::int64_t extra = encoder.class_token ? 1 : 0;
  const std::int64_t tokens = patches + extra;
  const std::int64_t merge = encoder.merge_size;
  const std::int64_t head_dim = encoder.hidden / encoder.num_heads;
  // Coordinates of a plain image, brought into merge-block order by a permutation of axes.
  const auto blocked = [&](const at::Tensor& plane) {
    return plane.reshape({image.rows / merge, merge, image.columns / merge, merge})
        .permute({0, 2, 1, 3})
        .reshape({patches});
  };
  const at::Tensor rows =
      blocked(at::arange(image.rows, at::kDouble).unsqueeze(1).expand({image.rows, image.columns}));
  const at::Tensor columns = blocked(
      at::arange(image.columns, at::kDouble).unsqueeze(0).expand({image.rows, image.columns}));
  const double theta = encoder.rope_theta;
  const auto positioned = [&](const at::Tensor& heads) {
    if (encoder.table_side > 0 && !encoder.table_interpolated) {
      return heads;
    }
    if (encoder.rotary == RotaryLayout::kHalves) {
      // Quarters 0 and 2 of the head turn by rows, 1 and 3 by columns.
      const std::vector<at::Tensor> q = at::chunk(heads, 4, 2);
      const std::vector<at::Tensor> by_row =
          at::chunk(rotary(at::cat({q[0], q[2]}, 2), rows, theta), 2, 2);
      const std::vector<at::Tensor> by_column =
          at::chunk(rotary(at::cat({q[1], q[3]}, 2), columns, theta), 2, 2);
      return at::cat({by_row[0], by_column[0], by_row[1], by_column[1]}, 2);
    }
    return at::cat({rotary(heads.narrow(2, 0, head_dim / 2), rows, theta),
                    rotary(heads.narrow(2, head_dim / 2, head_dim / 2), columns, theta)},
                   2);
  };
  const at::Tensor everything = at::ones({tokens, tokens}, at::kBool);
  // Patches whose row and column fall into the same window.
  const auto same_window = [&](const at::Tensor& coordinate) {
    const double side = static_cast<double>(encoder.window_size) / encoder.patch_size;
    const at::Tensor window = at::floor(coordinate / side);
    return window.unsqueeze(0).eq(window.unsqueeze(1));
  };
  const at::Tensor& embedding = weight(root + ".patch_embed.proj.weight");
  at::Tensor x = linear(image.input.to(embedding.dtype()), root + ".patch_embed.proj");
  if (extra > 0) {
    x = at::cat({weight(root + ".class_token.weight"), x});
  }
  if (encoder.table_interpolated) {
    // As an image of `hidden` channels that is resized.
    const at::Tensor table = weight(root + ".positions.weight")
                                 .reshape({1, encoder.table_side, encoder.table_side, -1})
                                 .permute({0, 3, 1, 2});
    const at::Tensor resized =
        at::upsample_bilinear2d(table, {image.rows, image.columns}, /*align_corners=*/true)
            .permute({0, 2, 3, 1})
            .reshape({patches, encoder.hidden});
    x = x + resized.index_select(0, (rows * image.columns + columns).to(at::kLong));
  } else if (encoder.table_side > 0) {
    const at::Tensor& table = weight(root + ".positions.weight");
    const at::Tensor of_patches = (rows * encoder.table_side + columns).to(at::kLong) + extra;
    x = x + at::cat({table.narrow(0, 0, extra), table.index_select(0, of_patches)});
  }
  if (leaves_.contains(root + ".embedding_norm.weight")) {
    x = norm(x, root + ".embedding_norm.weight", encoder.norm_epsilon);
  }
  std::vector<at::Tensor> deep;
  for (int layer = 0; layer < encoder.num_layers; ++layer) {
    const std::string prefix = concat(root, ".blocks.", layer, ".");
    const bool full = encoder.window_size == 0 || std::count(encoder.full_attention_layers.begin(),
                                                             encoder.full_attention_layers.end(),
                                                             layer) > 0;
    const at::Tensor mask = full ? everything : same_window(rows).logical_and(same_window(columns));
    x = transform(x, encoder, prefix, mask, positioned);
    for (std::size_t level = 0; level < encoder.deepstack_layers.size(); ++level) {
      if (encoder.deepstack_layers[level] == layer) {
        const std::string own = concat(root, ".deepstack.", level, ".");
        deep.push_back(project(x, encoder, merge * merge, own));
      }
    }
  }
  const std::string merger = root + ".merger.";
  deep.insert(deep.begin(), project(x.narrow(0, extra, patches), encoder, merge * merge, merger));
  return at::cat(deep, 1);
}

// The position by which each of a head's pairs turns, for every token: [n, pairs].
at::Tensor positions_of(const ModelSpec& model, const ReferenceSample& sample) {
  const LlmSpec& llm = model.llm;
  const std::int64_t pairs = (llm.head_dim > 0 ? llm.head_dim : llm.hidden / llm.num_heads) / 2;
  const auto tokens = static_cast<std::int64_t>(sample.ids.size());
  at::Tensor result = at::arange(tokens, at::kDouble).unsqueeze(1).repeat({1, pairs});
  if (llm.mrope_sections.empty()) {
    return result;
  }
  double next = 0;
  for (std::int64_t token = 0; token < tokens;) {
    const ReferenceSegment* image = nullptr;
    for (const ReferenceSegment& segment : sample.segments) {
      image = segment.rows > 0 && segment.feature_begin == token ? &segment : image;
    }
    if (image == nullptr) {
      result[token++].fill_(next++);
      continue;
    }
    const EncoderSpec& encoder = model.encoders.at(static_cast<std::size_t>(image->module));
    const std::int64_t rows = image->rows / encoder.merge_size;
    const std::int64_t columns = image->columns / encoder.merge_size;
    for (std::int64_t i = 0; i < rows * columns; ++i, ++token) {
      const double axes[3] = {
          next, next + static_cast<double>(i / columns), next + static_cast<double>(i % columns)};
      std::int64_t pair = 0;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        for (int k = 0; k < llm.mrope_sections[axis]; ++k, ++pair) {
          // Interleaved sections are equally long here.
          result[token][pair] =
              axes[llm.mrope_interleaved ? static_cast<std::size_t>(pair % 3) : axis];
        }
      }
    }
    next += static_cast<double>(std::max(rows, columns));
  }
  return result;
}

at::Tensor Model::decode(at::Tensor x,
                         const std::vector<at::Tensor>& deep,
                         const ReferenceSample& sample) const {
  const LlmSpec& llm = spec_.llm;
  const std::int64_t tokens = x.size(0);
  const std::int64_t head_dim = llm.head_dim > 0 ? llm.head_dim : llm.hidden / llm.num_heads;
  ENTRAIN_INVARIANT(llm.rope_scaling.kind != RopeScaling::Kind::kLlama3,
                    "the reference knows linear scaling alone");
  const at::Tensor positions = positions_of(spec_, sample) / llm.rope_scaling.factor;
  const at::Tensor index = at::arange(tokens, at::kLong);
  const at::Tensor causal = index.unsqueeze(0) <= index.unsqueeze(1);
  for (int layer = 0; layer < llm.num_layers; ++layer) {
    const std::string prefix = concat("model.layers.", layer, ".");
    const at::Tensor normed = norm(x, prefix + "input_layernorm.weight", llm.norm_epsilon);
    const auto heads = [&](const char* which, int count) {
      const std::string name = concat(prefix, "self_attn.", which);
      return head_norm(linear(normed, name + "_proj").reshape({tokens, count, head_dim}),
                       name + "_norm.weight");
    };
    const at::Tensor attended =
        attend(rotary(heads("q", llm.num_heads), positions, llm.rope_theta),
               rotary(heads("k", llm.num_kv_heads), positions, llm.rope_theta),
               heads("v", llm.num_kv_heads),
               causal);
    x = x + linear(attended, prefix + "self_attn.o_proj");
    x = x + mlp(norm(x, prefix + "post_attention_layernorm.weight", llm.norm_epsilon),
                prefix + "mlp.",
                llm.activation);
    if (static_cast<std::size_t>(layer) < deep.size()) {
      x = x + deep[static_cast<std::size_t>(layer)];
    }
  }
  return norm(x, "model.norm.weight", llm.norm_epsilon);
}

at::Tensor Model::loss_sum(const ReferenceSample& sample) const {
  const at::Tensor ids = at::tensor(sample.ids, at::kLong);
  const at::Tensor embedded = weight("model.embed_tokens.weight").index_select(0, ids);
  std::vector<at::Tensor> pieces;
  std::vector<at::Tensor> deep(static_cast<std::size_t>(spec_.llm.deepstack),
                               at::zeros_like(embedded));
  std::int64_t position = 0;
  for (const ReferenceSegment& segment : sample.segments) {
    const std::vector<at::Tensor> features_by_level =
        at::split(features_of(segment), spec_.llm.hidden, 1);
    const at::Tensor& features = features_by_level.front();
    for (std::size_t level = 1; level < features_by_level.size(); ++level) {
      at::Tensor& rows = deep[level - 1];
      rows = at::slice_scatter(rows,
                               features_by_level[level],
                               0,
                               segment.feature_begin,
                               segment.feature_begin + features.size(0));
    }
    pieces.push_back(embedded.narrow(0, position, segment.feature_begin - position));
    pieces.push_back(features);
    position = segment.feature_begin + features.size(0);
  }
  const auto tokens = static_cast<std::int64_t>(sample.ids.size());
  pieces.push_back(embedded.narrow(0, position, tokens - position));
  const at::Tensor head = matrix(spec_.llm.tie_word_embeddings ? "model.embed_tokens" : "lm_head");
  const at::Tensor logits = times(decode(at::cat(pieces), deep, sample), head);
  std::vector<at::Tensor> losses;
  for (const TokenRange& range : sample.targets) {
    const at::Tensor log_probability =
        at::log_softmax(logits.narrow(0, range.begin - 1, range.size()), 1);
    const at::Tensor targets = ids.narrow(0, range.begin, range.size()).unsqueeze(1);
    losses.push_back(-log_probability.gather(1, targets).sum());
  }
  return at::stack(losses).sum();
}

}  // namespace

ReferenceResult reference_step(const ModelSpec& model,
                               const NamedWeights& weights,
                               std::span<const ReferenceSample> samples) {
  const Model reference(model, weights);
  ReferenceResult result;
  std::vector<at::Tensor> losses;
  for (const ReferenceSample& sample : samples) {
    losses.push_back(reference.loss_sum(sample));
    for (const TokenRange& range : sample.targets) {
      result.target_tokens += range.size();
    }
  }
  const at::Tensor loss = at::stack(losses).sum() / static_cast<double>(result.target_tokens);
  loss.backward();
  result.loss = loss.item<double>();
  for (const auto& [name, leaf] : reference.leaves()) {
    result.gradients[name] = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
  }
  return result;
}

NamedWeights initial_weights(const ModelSpec& model, std::uint64_t seed) {
  const engine::StageOptions options = {.seed = seed};
  NamedWeights weights;
  const auto keep = [&](const std::vector<engine::NamedParameter>& parameters) {
    for (const engine::NamedParameter& parameter : parameters) {
      weights[parameter.name] = parameter.tensor.detach().clone();
    }
  };
  for (const EncoderSpec& encoder : model.encoders) {
    keep(engine::EncoderStage(encoder, model.llm.hidden, {0, encoder.num_layers + 2}, options)
             .parameters());
  }
  keep(engine::LlmStage(model.llm, {0, model.llm.num_layers + 2}, options).parameters());
  return weights;
}

}  // namespace entrain::oracle
