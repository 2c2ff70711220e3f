// A small global batch that exists in memory alone, with the loss and gradients of one plain
// process.
//
// Read first: make_gradient_batch(). What pipelined steps are compared with (gradient_step.h).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "entrain/core/dataset/text.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/workload.h"

#include "entrain/engine/data/step_data.h"

#include "tests/oracle/engine/reference_model.h"

namespace entrain::oracle {

inline constexpr std::uint64_t kWeightSeed = 20260;

struct GradientBatch {
  ModelSpec model;  // frozen is what its BatchTraining names
  std::vector<std::string> ids;
  std::vector<SampleWork> work;
  std::vector<TokenizedSample> texts;
  std::vector<std::vector<std::vector<engine::SegmentData>>> segments;  // [module][sample][segment]
  std::int64_t target_tokens = 0;
  NamedWeights weights;                // float32
  std::vector<ReferenceSample> plain;  // the samples as the reference reads them, in float64
  ReferenceResult reference;           // in float64
};

// What the models of a batch have beside the usual.
enum class ModelParts : std::uint8_t {
  kUsual,
  // Biases, norms of heads, M-RoPE, scaled positions, two frames a patch, other constants: all that
  // rotary families have.
  kRotary,
  // LayerNorm, separate biased matrices, a plain MLP, layer scales, learned positions with a class
  // token, a norm of merged rows: all that CLIP's heirs have.
  kLearned,
  // Learned positions without class token, and a projector of one matrix without bias.
  kShuffled,
  // DeepStack, resized learned positions beside rotations, interleaved M-RoPE: what Qwen3-VL has.
  kDeepstack,
  // As kLearned, but of audio what Qwen2-Audio has: masked padding, stored positions, keys without
  // bias, another number of bands, tokens averaged before a norm and one matrix.
  kWhisper,
  // As kLearned, with images of several tiles in one segment, whose features are arranged, resized
  // and followed by newlines: what LLaVA-OneVision has.
  kTiled,
};

// What of a batch's model is trained; all of it by default.
struct BatchTraining {
  std::vector<std::string> freeze = {};  // as freeze_modules() reads
  LoraSpec lora = {};
};

// Samples of text alone, of one image and of several, and, where an encoder is called "audio", with
// clips of several windows beside them; for a model of two-layer encoders, the second layer of
// vision windowed, and a three-layer LLM. `interleaved`: one to three questions with answers, the
// features anywhere between their tokens.
GradientBatch make_gradient_batch(const std::vector<std::string>& encoders,
                                  int num_samples,
                                  std::uint64_t seed,
                                  bool tied = false,
                                  ModelParts parts = ModelParts::kUsual,
                                  const BatchTraining& training = {},
                                  bool interleaved = false);
// For one or two vision encoders.
GradientBatch make_gradient_batch(int num_encoders, int num_samples, std::uint64_t seed);

// One rank's view of the batch; nobody may ask for a segment twice.
class GradientData : public engine::StepData {
 public:
  // Requires  `batch` outlives this object.
  explicit GradientData(const GradientBatch& batch) : batch_(batch) {}
  engine::SegmentData segment(int module, int sample, int segment) override;
  const TokenizedSample& text(int sample) override;

 private:
  const GradientBatch& batch_;
  std::set<std::tuple<int, int, int>> asked_;
};

}  // namespace entrain::oracle
