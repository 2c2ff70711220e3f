// FLOPs of models known for costs alone are those that torch counts (tests/parity/sizes.py).
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/cost/layer_work.h"
#include "entrain/core/families/family.h"
#include "entrain/core/spec/workload.h"

namespace entrain {
namespace {

struct Flops {
  double matrices = 0;
  double attention = 0;
};

Flops forward_flops(const ModelSpec& model, int module, const SampleWork& work) {
  Flops flops;
  const auto add = [&](std::int64_t tokens, std::int64_t pairs, std::int64_t window_pairs) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      const bool windowed = layer_kind(model, module, layer) == LayerKind::kWindowedTransformer;
      const LayerWork of_layer = layer_work(model, module, layer, 2);
      flops.matrices += of_layer.matrix_flops * static_cast<double>(tokens);
      flops.attention +=
          of_layer.attention_flops * static_cast<double>(windowed ? window_pairs : pairs);
    }
  };
  if (module == model.llm_module()) {
    add(work.llm_tokens, work.llm_attention_pairs, work.llm_window_pairs);
    return flops;
  }
  for (const SegmentWork& segment : work.segments[static_cast<std::size_t>(module)]) {
    add(segment.tokens, segment.attention_pairs, segment.window_pairs);
  }
  return flops;
}

SampleSizes sizes_of_text() {
  SampleSizes sizes;
  sizes.prompt_tokens = 4;
  sizes.response_tokens = 100;
  return sizes;
}

TEST(CostsAlone, CountWhispersFlopsAsTorch) {
  const ModelSpec model = hf_model_from_json({{"model_type", "whisper"}}, "tiny").model;
  SampleSizes sizes = sizes_of_text();
  sizes.audio_seconds = {7.0};
  const SampleWork work = sample_work(model, sizes);
  const Flops audio = forward_flops(model, 0, work);
  EXPECT_EQ(audio.matrices, 23'113'728'000);
  EXPECT_EQ(audio.attention, 13'824'000'000);
  const Flops text = forward_flops(model, 1, work);
  // Torch computes the other half of causal self-attention as well.
  const double half = 4 * (4.0 * 384) * (104 * 104 / 2);
  EXPECT_EQ(text.matrices + text.attention + half, 10'423'990'272);
}

TEST(CostsAlone, CountGemma3sFlopsAsTorch) {
  const Json text = {{"model_type", "gemma3_text"},
                     {"hidden_size", 64},
                     {"intermediate_size", 160},
                     {"num_hidden_layers", 6},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"head_dim", 32},
                     {"vocab_size", 512},
                     {"sliding_window", 64}};
  const Json vision = {{"model_type", "siglip_vision_model"},
                       {"hidden_size", 48},
                       {"intermediate_size", 100},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"image_size", 224},
                       {"patch_size", 14}};
  const Json config = {{"model_type", "gemma3"},
                       {"text_config", text},
                       {"vision_config", vision},
                       {"mm_tokens_per_image", 64}};
  const ModelSpec model = hf_model_from_json(config, "small").model;
  SampleSizes sizes = sizes_of_text();
  sizes.images = {{300, 200}};
  const SampleWork work = sample_work(model, sizes);
  const Flops images = forward_flops(model, 0, work);
  EXPECT_EQ(images.matrices, 34'111'488);
  EXPECT_EQ(images.attention, 25'165'824);
  const Flops llm = forward_flops(model, 1, work);
  EXPECT_EQ(llm.matrices, 122'486'784);
  // Torch's masks leave nothing out: one layer of full causal attention, five within windows.
  EXPECT_EQ(llm.attention, 4.0 * 128 * (16'160 + 5 * 10'752));
}

}  // namespace
}  // namespace entrain
