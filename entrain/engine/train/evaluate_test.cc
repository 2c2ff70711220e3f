// A model whose weights are set by hand, so that every answer and every loss is known: it says "w"
// when the images are white, "b" when they are black, "n" without images, then ends.
#include "entrain/engine/train/evaluate.h"

#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/text.h"

#include "entrain/engine/models/weights.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

// Channels of the LLM's hidden state.
constexpr std::int64_t kImage = 0;      // +, 0 or -: white, no images, black
constexpr std::int64_t kAssistant = 1;  // the assistant mark
constexpr std::int64_t kLetter = 2;     // a letter of an answer
// Logits per unit of a channel.
constexpr double kImageGain = 10;
constexpr double kNoneGain = 1;
constexpr double kEndGain = 100;

ModelSpec known_model() {
  ModelSpec model;
  model.name = "known";
  EncoderSpec vision;
  vision.name = "vision";
  vision.num_layers = 1;
  vision.hidden = 4;
  vision.num_heads = 1;
  vision.intermediate = 4;
  vision.patch_size = 4;
  vision.merge_size = 2;
  vision.min_pixels = 64;
  vision.max_pixels = 1024;
  model.encoders = {vision};
  model.llm.num_layers = 1;
  model.llm.hidden = 16;
  model.llm.num_heads = 2;
  model.llm.num_kv_heads = 1;
  model.llm.head_dim = 8;
  model.llm.intermediate = 8;
  model.llm.vocab_size = kVocabSize;
  model.llm.max_tokens = 256;
  return model;
}

// All zero but the gains of norms and what the comments say.
std::vector<NamedParameter> known_weights(const ModelSpec& model) {
  std::vector<NamedParameter> weights;
  const auto keep = [&](const std::vector<NamedParameter>& parameters) {
    for (const NamedParameter& parameter : parameters) {
      const at::Tensor tensor = parameter.tensor.detach().clone();
      weights.push_back({parameter.name, tensor.dim() == 1 ? tensor : tensor.zero_()});
    }
  };
  keep(EncoderStage(model.encoders[0], model.llm.hidden, {0, num_layers(model, 0)}, {})
           .parameters());
  keep(LlmStage(model.llm, {0, num_layers(model, 1)}, {}).parameters());
  std::map<std::string, at::Tensor> named;
  for (const NamedParameter& weight : weights) {
    named[weight.name] = weight.tensor;
  }
  // Encoder: the patch's first value, 1 or -1, becomes 2 or -2 under the projector's norm; GELU
  // lets the white one through alone, and the bias makes it +1 or -1.
  named.at("visual.patch_embed.proj.weight")[0][0] = 1;
  named.at("visual.merger.mlp.0.weight")[0][0] = 10;
  named.at("visual.merger.mlp.2.weight")[kImage][0] = 0.1;
  named.at("visual.merger.mlp.2.bias")[kImage] = -1;
  // Decoder: without queries and keys attention is the mean over what came before; it adds the
  // image channel of the normed features (4 or -4) to the residual stream.
  named.at("model.embed_tokens.weight")[kAssistantToken][kAssistant] = 1;
  for (const char letter : {'w', 'b', 'n'}) {
    named.at("model.embed_tokens.weight")[letter][kLetter] = 1;
  }
  named.at("model.layers.0.self_attn.v_proj.weight")[0][kImage] = 1;
  named.at("model.layers.0.self_attn.o_proj.weight")[kImage][0] = 1;
  named.at("lm_head.weight")['w'][kImage] = kImageGain;
  named.at("lm_head.weight")['b'][kImage] = -kImageGain;
  named.at("lm_head.weight")['n'][kAssistant] = kNoneGain;
  named.at("lm_head.weight")[kEosToken][kLetter] = kEndGain;
  return weights;
}

struct KnownSample {
  std::string images;  // one letter an image: 'w' or 'b'
  std::string answer;  // what the data says
};

// The model is right about all but the fourth and the last.
const std::vector<KnownSample> kSamples = {
    {"w", "w"}, {"b", "b"}, {"", "n"}, {"b", "w"}, {"bb", "b"}, {"w", "w"}, {"", "w"}};

// Cross-entropy of the sample's two targets, by arithmetic alone.
double known_loss(const KnownSample& sample, bool blank_images) {
  const auto num_images = static_cast<double>(sample.images.size());
  double sign = 0;
  if (num_images > 0) {
    sign = blank_images || sample.images[0] == 'w' ? 1 : -1;
  }
  // 16 x 16 pixels make 4 features; marks: bos, user, assistant and two an image; one question
  // mark.
  const auto loss_at = [&](double length, std::int64_t own_channel, double gain, int target) {
    const double image = sign * 4 * 4 * num_images / length;
    const double scale = 1 / std::sqrt((image * image + 1) / 16 + 1e-6);
    std::vector<double> logits(kVocabSize, 0.0);
    logits['w'] = kImageGain * image * scale;
    logits['b'] = -logits['w'];
    logits[own_channel == kAssistant ? 'n' : kEosToken] += gain * scale;
    double sum = 0;
    for (const double logit : logits) {
      sum += std::exp(logit);
    }
    return std::log(sum) - logits[static_cast<std::size_t>(target)];
  };
  const double prompt = 4 + 6 * num_images;
  return loss_at(prompt, kAssistant, kNoneGain, sample.answer[0]) +
         loss_at(prompt + 1, kLetter, kEndGain, kEosToken);
}

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() {
    oracle::TarWriter tar;
    for (std::size_t i = 0; i < kSamples.size(); ++i) {
      const std::string name = concat("s", i);
      for (std::size_t image = 0; image < kSamples[i].images.size(); ++image) {
        const std::uint8_t value = kSamples[i].images[image] == 'w' ? 255 : 0;
        tar.add(concat(name, ".", image, ".png"), oracle::flat_png(16, 16, value, value, value));
      }
      tar.add(name + ".json",
              concat(R"({"question": "?", "answer": ")",
                     kSamples[i].answer,
                     R"(", "kind": ")",
                     kSamples[i].images.empty() ? "text" : "image",
                     R"("})"));
    }
    build_index({folder_.write("val-000000.tar", tar.archive())}, folder_.path() / "val.csv", {});
    data_ = load_data_set((folder_.path() / "val.csv").string(), model_);
    weights_ = folder_.path() / "weights.safetensors";
    write_weights(weights_, known_weights(model_));
  }

  [[nodiscard]] EvaluateResult judge(const EvaluateOptions& options = {}) const {
    return evaluate(model_, weights_, data_, options);
  }

  static std::string given(const EvaluateResult& result) {
    std::string text;
    for (const Answer& answer : result.answers) {
      text += answer.given + ",";
    }
    return text;
  }

  oracle::TemporaryFolder folder_;
  ModelSpec model_ = known_model();
  DataSet data_;
  std::filesystem::path weights_;
};

TEST_F(EvaluateTest, GivesTheKnownAnswersAndTheirAccuracy) {
  const EvaluateResult result = judge();
  ASSERT_EQ(result.answers.size(), kSamples.size());
  EXPECT_EQ(given(result), "w,b,n,b,b,w,n,");
  for (std::size_t i = 0; i < kSamples.size(); ++i) {
    EXPECT_EQ(result.answers[i].id, concat("val/s", i));
    EXPECT_EQ(result.answers[i].expected, kSamples[i].answer);
    EXPECT_EQ(result.answers[i].kind, kSamples[i].images.empty() ? "text" : "image");
    EXPECT_EQ(result.answers[i].correct(), i != 3 && i != 6);
  }
  EXPECT_DOUBLE_EQ(result.accuracy(), 5.0 / 7);
}

TEST_F(EvaluateTest, BlankedImagesAreAllWhite) {
  EvaluateOptions options;
  options.blank = true;
  const EvaluateResult result = judge(options);
  EXPECT_EQ(given(result), "w,w,n,w,w,w,n,");
  EXPECT_DOUBLE_EQ(result.accuracy(), 4.0 / 7);
}

TEST_F(EvaluateTest, LossIsTheMeanOverTargets) {
  for (const bool blank : {false, true}) {
    double expected = 0;
    for (const KnownSample& sample : kSamples) {
      expected += known_loss(sample, blank) / (2 * static_cast<double>(kSamples.size()));
    }
    EvaluateOptions options;
    options.blank = blank;
    EXPECT_NEAR(judge(options).loss, expected, 1e-4 * expected) << "blank " << blank;
  }
}

TEST_F(EvaluateTest, PackingChangesNothing) {
  const EvaluateResult packed = judge();
  for (const int batch : {1, 3}) {
    EvaluateOptions options;
    options.batch = batch;
    const EvaluateResult result = judge(options);
    EXPECT_EQ(given(result), given(packed));
    EXPECT_NEAR(result.loss, packed.loss, 1e-5);
  }
}

TEST_F(EvaluateTest, TakesAsManySamplesAsAskedFor) {
  EvaluateOptions options;
  options.samples = 4;
  EXPECT_EQ(given(judge(options)), "w,b,n,b,");
  options.samples = 100;
  EXPECT_EQ(judge(options).answers.size(), kSamples.size());
}

TEST_F(EvaluateTest, StopsAnAnswerThatDoesNotEnd) {
  std::vector<NamedParameter> weights = known_weights(model_);
  for (NamedParameter& weight : weights) {
    if (weight.name == "lm_head.weight") {
      weight.tensor['n'][kLetter] = 2 * kEndGain;  // every letter is followed by "n"
    }
  }
  write_weights(weights_, weights);
  EvaluateOptions options;
  options.max_answer_tokens = 5;
  const EvaluateResult result = judge(options);
  EXPECT_EQ(given(result), "wnnnn,bnnnn,nnnnn,bnnnn,bnnnn,wnnnn,nnnnn,");
  EXPECT_EQ(result.accuracy(), 0);
}

TEST_F(EvaluateTest, RefusesWeightsOfAnotherModel) {
  model_.llm.intermediate = 12;
  const std::string message = error_of<InvalidInput>([&] { (void)judge(); });
  EXPECT_NE(message.find("model.layers.0.mlp.gate_proj.weight"), std::string::npos) << message;
  EXPECT_NE(message.find(weights_.string()), std::string::npos) << message;
  model_.llm.intermediate = 8;
  std::filesystem::remove(weights_);
  error_of<InvalidInput>([&] { (void)judge(); });
}

TEST_F(EvaluateTest, RefusesAdaptersThatTheModelLacks) {
  std::vector<NamedParameter> weights = known_weights(model_);
  const std::string adapter = "model.layers.0.self_attn.q_proj.lora_A.weight";
  weights.push_back({adapter, at::zeros({2, 16})});
  write_weights(weights_, weights);
  const std::string message = error_of<InvalidInput>([&] { (void)judge(); });
  EXPECT_NE(message.find("has adapters, such as '" + adapter + "'"), std::string::npos) << message;
}

TEST_F(EvaluateTest, RefusesWeightsThatAreNoNumbersByName) {
  std::vector<NamedParameter> weights = known_weights(model_);
  const auto set = [&](double value) {
    for (NamedParameter& weight : weights) {
      if (weight.name == "lm_head.weight") {
        weight.tensor['n'][kLetter] = value;
      }
    }
    write_weights(weights_, weights);
  };
  set(std::numeric_limits<double>::quiet_NaN());
  const std::string message = error_of<InvalidInput>([&] { (void)judge(); });
  EXPECT_NE(message.find("'lm_head.weight': 1 of"), std::string::npos) << message;
  set(3e38);  // a number, unlike what it is multiplied to
  const std::string overflow = error_of<SystemFailure>([&] { (void)judge(); });
  EXPECT_NE(overflow.find("though every weight"), std::string::npos) << overflow;
}

TEST_F(EvaluateTest, NamesADamagedSample) {
  std::filesystem::resize_file(folder_.path() / "val-000000.tar", 1024);
  const std::string message = error_of<InvalidInput>([&] { (void)judge(); });
  EXPECT_NE(message.find("val-000000.tar"), std::string::npos) << message;
}

TEST(EvaluateResult, HasNoAccuracyWithoutAnswers) {
  EXPECT_EQ(EvaluateResult().accuracy(), 0);
}

}  // namespace
}  // namespace entrain::engine
