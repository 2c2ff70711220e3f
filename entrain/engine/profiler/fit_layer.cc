#include "entrain/engine/profiler/fit_layer.h"

#include <algorithm>
#include <vector>

#include "entrain/core/base/errors.h"

#include "entrain/engine/profiler/fit.h"
#include "entrain/engine/profiler/statistics.h"

namespace entrain::engine {
namespace {

void add_exchange(const RankExchange& exchange,
                  int degree,
                  const LinkSpec& link,
                  CostCurve& curve) {
  const double hops = degree - 1;
  curve.per_launch_ns += exchange.count * hops * static_cast<double>(link.latency.count());
  if (link.bytes_per_second > 0) {
    curve.per_token_ns += hops / degree * exchange.bytes * 1e9 / link.bytes_per_second;
  }
}

}  // namespace

RankExchanges rank_exchanges(const ModelSpec& model,
                             const std::string& module,
                             LayerKind kind,
                             double bytes_of_number) {
  constexpr double kScore = 4;  // bytes: scores are float32
  const auto found = std::ranges::find(model.encoders, module, &EncoderSpec::name);
  const EncoderSpec* encoder = found == model.encoders.end() ? nullptr : &*found;
  const double hidden = bytes_of_number * (encoder == nullptr ? model.llm.hidden : encoder->hidden);
  switch (kind) {
    case LayerKind::kEncoderTransformer:
    case LayerKind::kWindowedTransformer:
    case LayerKind::kDecoder:
      return {{4, 4 * hidden}, {4, 4 * hidden}, {2, 2 * hidden}};
    case LayerKind::kProjector: {
      const double block = encoder == nullptr ? 1.0 : static_cast<double>(merged_tokens(*encoder));
      const double result = bytes_of_number * model.llm.hidden / block;
      const int levels = encoder == nullptr ? 1 : feature_levels(*encoder);
      const double in = levels * hidden;
      return {{3 * levels, in + 2 * levels * result}, {levels, in}, {levels, in}};
    }
    case LayerKind::kTokenEmbedding:
      return {{2, 2 * hidden}, {}, {}};
    case LayerKind::kOutputHead:
      // The maximum is gathered; the sum of exponentials and the target's score are all-reduced.
      return {{4, hidden + 5 * kScore}, {2, 2 * hidden}, {1, hidden}};
    case LayerKind::kPatchEmbedding:
    case LayerKind::kAudioEmbedding:
      return {};
  }
  return {};
}

LayerProfile fit_layer(const ModelSpec& model,
                       const MeasuredLayer& layer,
                       const std::string& dtype,
                       const LinkSpec& link) {
  ENTRAIN_INVARIANT(!layer.points.empty(), "a layer without points");
  const bool attention = has_attention(layer.kind);
  std::vector<CostPoint> forward;
  std::vector<CostPoint> backward_input;
  std::vector<CostPoint> backward_weight;
  std::vector<CostPoint> split;
  std::vector<CostPoint> recompute;
  std::vector<double> spreads;
  LayerProfile profile;
  profile.range.least_tokens = layer.points.front().tokens;
  for (const MeasuredPoint& point : layer.points) {
    const double pairs = point.attention_pairs;
    const double tokens = point.tokens;
    const double backward = capped_mean(point.backward);
    const double input = capped_mean(point.backward_input);
    forward.push_back({pairs, tokens, capped_mean(point.forward)});
    backward_input.push_back({pairs, tokens, input});
    backward_weight.push_back({pairs, tokens, std::max(0.0, backward - input), backward});
    const double halves = capped_mean(point.backward_halves);
    split.push_back({pairs, tokens, std::max(0.0, halves - backward), backward});
    if (!point.recompute.empty()) {
      recompute.push_back({pairs, tokens, capped_mean(point.recompute)});
    }
    spreads.push_back(relative_spread(point.forward));
    profile.range.least_tokens = std::min(profile.range.least_tokens, tokens);
    profile.range.most_tokens = std::max(profile.range.most_tokens, tokens);
    profile.range.most_pairs = std::max(profile.range.most_pairs, attention ? pairs : 0.0);
  }
  const CurveTerms terms = attention ? CurveTerms::kAttention : CurveTerms::kLinear;
  profile.module = layer.module;
  profile.kind = layer.kind;
  profile.tensor_parallel = layer.tensor_parallel;
  profile.forward = fit_curve(forward, terms);
  profile.backward_input = fit_curve(backward_input, terms);
  profile.backward_weight = fit_curve(backward_weight, CurveTerms::kLinear);
  profile.split = fit_curve(split, CurveTerms::kLinear);
  if (!recompute.empty()) {
    profile.recompute = fit_curve(recompute, terms);
  }
  const double bytes_of_number = dtype == "float32" ? 4 : 2;
  if (layer.tensor_parallel > 1) {
    const RankExchanges exchanges =
        rank_exchanges(model, layer.module, layer.kind, bytes_of_number);
    const int degree = layer.tensor_parallel;
    add_exchange(exchanges.forward, degree, link, profile.forward);
    add_exchange(exchanges.backward_input, degree, link, profile.backward_input);
    add_exchange(exchanges.backward_weight, degree, link, profile.backward_weight);
    if (!recompute.empty()) {
      add_exchange(exchanges.forward, degree, link, profile.recompute);
    }
  }
  profile.activation_bytes_per_token = layer.activation_bytes_per_token;
  profile.output_bytes_per_token = layer.output_bytes_per_token;
  profile.parameter_bytes = layer.parameter_bytes;
  profile.optimizer_bytes =
      static_cast<double>(layer.parameters) * (8 + (bytes_of_number < 4 ? 4 : 0));
  profile.spread = median(spreads);
  return profile;
}

}  // namespace entrain::engine
