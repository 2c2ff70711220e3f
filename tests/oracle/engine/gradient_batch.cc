#include "tests/oracle/engine/gradient_batch.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/parameters.h"
#include "entrain/core/spec/training.h"

#include "entrain/engine/models/stages.h"

namespace entrain::oracle {
namespace {

EncoderSpec tiny_encoder(const std::string& name) {
  EncoderSpec encoder;
  encoder.name = name;
  encoder.modality = name == "audio" ? Modality::kAudio : Modality::kVision;
  encoder.num_layers = 2;
  encoder.hidden = 16;
  encoder.num_heads = 2;
  encoder.intermediate = 24;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  encoder.min_pixels = 64;
  encoder.max_pixels = 1200;
  encoder.window_size = 16;  // four patches a side, in the second of two layers
  encoder.full_attention_layers = {0};
  if (encoder.modality == Modality::kAudio) {
    encoder.window_size = 0;
    encoder.full_attention_layers.clear();
    encoder.window_seconds = 0.15;
  }
  return encoder;
}

ModelSpec tiny_model(const std::vector<std::string>& encoders) {
  ModelSpec model;
  model.name = "tiny";
  for (const std::string& name : encoders) {
    model.encoders.push_back(tiny_encoder(name));
  }
  model.llm.num_layers = 3;
  model.llm.hidden = 24;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 6;
  model.llm.intermediate = 32;
  model.llm.vocab_size = kVocabSize;
  return model;
}

void add_rotary_parts(ModelSpec& model) {
  for (EncoderSpec& encoder : model.encoders) {
    encoder.qkv_bias = encoder.output_bias = encoder.mlp_bias = true;
    encoder.rotary = RotaryLayout::kHalves;
    encoder.rope_theta = 500.0;
    encoder.norm_epsilon = 1e-3;
    encoder.temporal_patch_size = encoder.modality == Modality::kVision ? 2 : 1;
  }
  LlmSpec& llm = model.llm;
  llm.qkv_bias = llm.output_bias = llm.mlp_bias = llm.qk_norm = true;
  llm.norm_epsilon = 1e-3;
  llm.mrope_sections = {1, 1, 1};
  llm.rope_theta = 100.0;
  llm.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 2.0};
}

void add_learned_parts(ModelSpec& model, bool shuffled) {
  for (EncoderSpec& encoder : model.encoders) {
    encoder.norm = NormKind::kLayer;
    encoder.norm_epsilon = 1e-3;
    encoder.packed_qkv = encoder.gated_mlp = false;
    encoder.qkv_bias = encoder.output_bias = encoder.mlp_bias = true;
    encoder.activation = shuffled ? Activation::kGeluTanh : Activation::kQuickGelu;
    if (encoder.modality == Modality::kVision) {
      encoder.table_side = 4;
      encoder.patch_bias = true;
      encoder.class_token = encoder.embedding_norm = encoder.layer_scale = !shuffled;
      encoder.window_size = 0;
      encoder.full_attention_layers.clear();
    }
    ProjectorSpec& projector = encoder.projector;
    projector.norm_merged = !shuffled;
    projector.norm_tokens = shuffled;
    projector.norm_epsilon = 1e-4;
    projector.num_matrices = shuffled ? 1 : 2;
    projector.bias = !shuffled;
    projector.intermediate = shuffled ? 0 : 20;
    projector.activation = Activation::kGeluTanh;
  }
}

void add_deepstack_parts(ModelSpec& model) {
  for (EncoderSpec& encoder : model.encoders) {
    if (encoder.modality == Modality::kVision) {
      encoder.norm = NormKind::kLayer;
      encoder.gated_mlp = false;
      encoder.qkv_bias = encoder.output_bias = encoder.mlp_bias = encoder.patch_bias = true;
      encoder.rotary = RotaryLayout::kHalves;
      encoder.table_side = 5;
      encoder.table_interpolated = true;
      encoder.deepstack_layers = {0, 1};
    }
  }
  LlmSpec& llm = model.llm;
  llm.qk_norm = true;
  llm.head_dim = 12;
  llm.mrope_sections = {2, 2, 2};
  llm.mrope_interleaved = true;
  llm.deepstack = 2;
}

void add_whisper_parts(ModelSpec& model) {
  add_learned_parts(model, /*shuffled=*/false);
  for (EncoderSpec& encoder : model.encoders) {
    if (encoder.modality == Modality::kAudio) {
      encoder.key_bias = false;
      encoder.masked_padding = encoder.stored_positions = true;
      encoder.mel_bands = 12;
      encoder.projector.average = true;
      encoder.projector.num_matrices = 1;
    }
  }
}

void add_tiled_parts(ModelSpec& model) {
  add_learned_parts(model, /*shuffled=*/false);
  for (EncoderSpec& encoder : model.encoders) {
    if (encoder.modality == Modality::kVision) {
      encoder.merge_size = 1;
      encoder.tiling.kind = TilingSpec::Kind::kAnyResolution;
      encoder.tiling.canvases = {{1, 2}, {2, 1}, {2, 2}};
      encoder.tiling.feature_tiles = 1;
      encoder.tiling.single_image = true;
    }
  }
}

void add_parts(ModelSpec& model, ModelParts parts) {
  if (parts == ModelParts::kTiled) {
    add_tiled_parts(model);
  } else if (parts == ModelParts::kDeepstack) {
    add_deepstack_parts(model);
  } else if (parts == ModelParts::kRotary) {
    add_rotary_parts(model);
  } else if (parts == ModelParts::kWhisper) {
    add_whisper_parts(model);
  } else if (parts != ModelParts::kUsual) {
    add_learned_parts(model, parts == ModelParts::kShuffled);
  }
}

std::string random_text(Rng& rng, std::int64_t length) {
  std::string text;
  for (std::int64_t i = 0; i < length; ++i) {
    text.push_back(static_cast<char>('a' + static_cast<char>(rng.below(26))));
  }
  return text;
}

// Of a window of audio, the mel frames that the reference reads: with masked padding all, else of
// the two numbers that make so many tokens either.
std::int64_t reference_frames(Rng& rng, const EncoderSpec& encoder, std::int64_t tokens) {
  return encoder.masked_padding ? window_frames(encoder)
                                : 2 * tokens - static_cast<std::int64_t>(rng.below(2));
}

// What the encoders read of one sample, and the sample as the reference reads it.
ReferenceSample add_segments(Rng& rng, int sample, GradientBatch& batch) {
  const SampleWork& work = batch.work.back();
  const TokenizedSample& text = batch.texts.back();
  ReferenceSample plain;
  plain.ids = text.ids;
  plain.targets = text.targets;
  std::size_t number = 0;
  for (std::size_t module = 0; module < work.segments.size(); ++module) {
    const EncoderSpec& encoder = batch.model.encoders[module];
    std::vector<engine::SegmentData>& segments = batch.segments[module].emplace_back();
    for (const SegmentWork& segment : work.segments[module]) {
      const std::string name = concat("segment ", sample, " ", number, " ", rng.next());
      const std::vector<std::int64_t> shape =
          encoder.modality == Modality::kVision
              ? std::vector<std::int64_t>{segment.canvas.tiles.count() * segment.rows *
                                              segment.columns,
                                          patch_values(encoder)}
              : std::vector<std::int64_t>{reference_frames(rng, encoder, segment.tokens),
                                          encoder.mel_bands};
      const at::Tensor input = engine::initial_weight(name, shape, 1.0, {.seed = kWeightSeed});
      const bool cut = encoder.modality == Modality::kAudio && encoder.masked_padding;
      segments.push_back(
          {cut ? input.narrow(0, 0, input_frames(encoder, 2 * segment.tokens - 1)) : input,
           segment.rows,
           segment.columns});
      plain.segments.push_back({static_cast<int>(module),
                                input.to(at::kDouble),
                                segment.rows,
                                segment.columns,
                                segment.tokens,
                                text.feature_begin[number],
                                segment.canvas});
      ++number;
    }
  }
  std::stable_sort(plain.segments.begin(), plain.segments.end(), [](const auto& a, const auto& b) {
    return a.feature_begin < b.feature_begin;
  });
  return plain;
}

// Several questions and answers, with the segments' features anywhere between their tokens, in
// order. `features`: [segment].
TokenizedSample interleaved_text(Rng& rng, const std::vector<std::int64_t>& features) {
  TokenizedSample text;
  text.ids = {kBosToken};
  const auto add_tokens = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      text.ids.push_back(static_cast<std::int64_t>(rng.below(256)));
    }
  };
  const std::uint64_t turns = 1 + rng.below(3);
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    const std::size_t left = features.size() - text.feature_begin.size();
    const std::uint64_t here = turn + 1 < turns ? rng.below(left + 1) : left;
    for (std::uint64_t k = 0; k < here; ++k) {
      add_tokens(rng.below(4));
      const std::int64_t count = features[text.feature_begin.size()];
      text.feature_begin.push_back(std::ssize(text.ids));
      text.ids.insert(text.ids.end(), static_cast<std::size_t>(count), kFeatureToken);
    }
    add_tokens(rng.below(3));
    text.targets.push_back({std::ssize(text.ids), 0});
    add_tokens(1 + rng.below(5));
    text.targets.back().end = std::ssize(text.ids);
  }
  add_tokens(rng.below(3));
  return text;
}

// Gains, biases and adapters away from one and zero, so that a mistake in them shows.
void roughen(NamedWeights& weights) {
  for (auto& [name, tensor] : weights) {
    if (tensor.dim() == 1 || name.ends_with(kLoraB) ||
        name.find("class_token") != std::string::npos || name == "audio_tower.positions.weight") {
      tensor.add_(engine::initial_weight(
          name + " noise", tensor.sizes().vec(), 0.3, {.seed = kWeightSeed}));
    }
  }
}

}  // namespace

GradientBatch make_gradient_batch(const std::vector<std::string>& encoders,
                                  int num_samples,
                                  std::uint64_t seed,
                                  bool tied,
                                  ModelParts parts,
                                  const BatchTraining& training,
                                  bool interleaved) {
  Rng rng(seed);
  GradientBatch batch;
  batch.model = tiny_model(encoders);
  batch.model.llm.tie_word_embeddings = tied;
  add_parts(batch.model, parts);
  freeze_modules(batch.model, training.freeze, "freeze");
  if (training.lora.rank > 0) {
    add_lora(batch.model, training.lora, "lora");
  }
  const bool sound = std::count(encoders.begin(), encoders.end(), "audio") > 0;
  batch.segments.resize(batch.model.encoders.size());
  for (int i = 0; i < num_samples; ++i) {
    SampleSizes sizes;
    sizes.id = concat("sample-", i);
    // Every fourth is text alone, every fourth has several images.
    const std::uint64_t images = i % 4 == 0 ? 0 : i % 4 == 1 ? 2 + rng.below(4) : 1;
    for (std::uint64_t image = 0; image < images; ++image) {
      sizes.images.push_back(
          {static_cast<int>(8 * (1 + rng.below(5))), static_cast<int>(8 * (1 + rng.below(3)))});
    }
    // Clips of one to several windows: none, one or two of them in turn.
    for (int clip = 0; sound && clip < i % 3; ++clip) {
      sizes.audio_seconds.push_back(0.01 * static_cast<double>(2 + rng.below(38)));
    }
    const SampleText text = {random_text(rng, static_cast<std::int64_t>(rng.below(12))),
                             random_text(rng, 1 + static_cast<std::int64_t>(rng.below(9)))};
    batch.ids.push_back(sizes.id);
    // Every segment between marks of its own.
    std::vector<std::int64_t> features;
    for (const auto& segments : sample_work(batch.model, sizes).segments) {
      for (const SegmentWork& segment : segments) {
        features.push_back(segment.llm_tokens);
      }
    }
    batch.texts.push_back(interleaved ? interleaved_text(rng, features) : tokenize(text, features));
    const TokenizedSample& tokens = batch.texts.back();
    sizes.response_tokens = tokens.num_targets();
    sizes.prompt_tokens = std::ssize(tokens.ids) - tokens.num_targets() -
                          std::reduce(features.begin(), features.end());
    batch.work.push_back(sample_work(batch.model, sizes));
    batch.target_tokens += batch.work.back().target_tokens;
    batch.plain.push_back(add_segments(rng, i, batch));
  }
  batch.weights = initial_weights(batch.model, kWeightSeed);
  roughen(batch.weights);
  NamedWeights exact;
  for (const auto& [name, tensor] : batch.weights) {
    exact[name] = tensor.to(at::kDouble);
  }
  batch.reference = reference_step(batch.model, exact, batch.plain);
  return batch;
}

GradientBatch make_gradient_batch(int num_encoders, int num_samples, std::uint64_t seed) {
  static const std::vector<std::string> kNames = {"vision", "thermal"};
  return make_gradient_batch(
      std::vector<std::string>(kNames.begin(), kNames.begin() + num_encoders), num_samples, seed);
}

engine::SegmentData GradientData::segment(int module, int sample, int segment) {
  EXPECT_TRUE(asked_.insert({module, sample, segment}).second)
      << "sample " << sample << " segment " << segment << " asked for twice";
  return batch_.segments.at(static_cast<std::size_t>(module))
      .at(static_cast<std::size_t>(sample))
      .at(static_cast<std::size_t>(segment));
}

const TokenizedSample& GradientData::text(int sample) {
  return batch_.texts.at(static_cast<std::size_t>(sample));
}

}  // namespace entrain::oracle
