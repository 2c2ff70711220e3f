// Stages whose layers lie on the ranks of a tensor group, against the same stages on one rank.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/text.h"

#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/tensor_group.h"
#include "entrain/engine/models/weight_gradients.h"

#include "tests/oracle/engine/tensor_ranks.h"
#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::largest_difference;
using oracle::on_tensor_ranks;
using oracle::random_tensor;

constexpr double kTolerance = 1e-11;

EncoderSpec encoder_of(Modality modality) {
  EncoderSpec encoder;
  encoder.name = modality == Modality::kVision ? "vision" : "audio";
  encoder.modality = modality;
  encoder.num_layers = 2;
  encoder.hidden = 24;
  encoder.num_heads = 6;
  encoder.intermediate = 12;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  return encoder;
}

LlmSpec llm_of() {
  LlmSpec llm;
  llm.num_layers = 2;
  llm.hidden = 20;
  llm.num_heads = 12;
  llm.num_kv_heads = 6;
  llm.head_dim = 4;
  llm.intermediate = 18;
  llm.vocab_size = 42;
  return llm;
}

StageOptions options_of(const TensorGroupPtr& group) {
  StageOptions options;
  options.seed = 3;
  options.dtype = at::kDouble;
  options.tensor_parallel = group == nullptr ? 1 : group->size();
  options.tensor_group = group;
  return options;
}

// How a backward runs.
struct Way {
  bool recompute = false;
  bool split = false;  // weight gradients in a half of their own
};

struct Outcome {
  at::Tensor output;
  at::Tensor input_gradient;                    // undefined where the input takes none
  std::map<std::string, at::Tensor> gradients;  // of whole parameters
  std::map<std::string, at::Tensor> values;
};

// One forward and backward; gradients come together from all ranks as the pipeline brings them.
Outcome run(const std::vector<NamedParameter>& parameters,
            const TensorGroupPtr& group,
            const Way& way,
            const at::Tensor& input,
            const std::function<at::Tensor(const at::Tensor&)>& forward) {
  const auto weight_gradients = c10::make_intrusive<WeightGradients>();
  Outcome outcome;
  {
    const WeightGradientsScope scope(weight_gradients);
    outcome.output = forward(input);
  }
  if (way.split) {
    weight_gradients->defer();
  }
  outcome.output.backward(random_tensor(outcome.output.sizes().vec(), "output gradient"));
  weight_gradients->run();
  outcome.input_gradient = input.grad();
  std::vector<NamedParameter> gradients;
  for (const NamedParameter& parameter : parameters) {
    at::Tensor gradient = parameter.tensor.grad().defined() ? parameter.tensor.grad()
                                                            : at::zeros_like(parameter.tensor);
    gradient = gradient.detach().clone();
    if (group != nullptr && parameter.split.whole()) {
      sum_over(*group, gradient);
    }
    gradients.push_back({parameter.name, gradient, parameter.split});
  }
  const bool alone = group == nullptr;
  for (const NamedParameter& whole : alone ? gradients : whole_parameters(gradients, *group)) {
    outcome.gradients[whole.name] = whole.tensor;
  }
  for (const NamedParameter& whole : alone ? parameters : whole_parameters(parameters, *group)) {
    outcome.values[whole.name] = whole.tensor.detach();
  }
  return outcome;
}

void expect_same(const Outcome& actual, const Outcome& expected) {
  EXPECT_LT(largest_difference(actual.output, expected.output), kTolerance);
  ASSERT_EQ(actual.input_gradient.defined(), expected.input_gradient.defined());
  if (expected.input_gradient.defined()) {
    EXPECT_LT(largest_difference(actual.input_gradient, expected.input_gradient), kTolerance);
  }
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    EXPECT_TRUE(at::equal(actual.values.at(name), expected.values.at(name))) << name;
    ASSERT_EQ(actual.gradients.at(name).sizes(), gradient.sizes()) << name;
    EXPECT_LT(largest_difference(actual.gradients.at(name), gradient), kTolerance) << name;
  }
}

using RunStage = std::function<Outcome(const TensorGroupPtr&, const Way&)>;

void expect_split_equals_whole(const RunStage& run_stage) {
  const Outcome expected = run_stage(nullptr, {});
  for (const int num_ranks : {1, 2, 3}) {
    for (const Way way : {Way{}, Way{true, false}, Way{false, true}, Way{true, true}}) {
      SCOPED_TRACE(concat(num_ranks, " ranks, recompute ", way.recompute, ", split ", way.split));
      on_tensor_ranks(num_ranks, [&](const TensorGroupPtr& group) {
        expect_same(run_stage(group, way), expected);
      });
    }
  }
}

at::Tensor leaf(std::vector<std::int64_t> shape, const std::string& name, bool takes_gradients) {
  return random_tensor(std::move(shape), name).set_requires_grad(takes_gradients);
}

void expect_encoder(const EncoderSpec& encoder,
                    const std::vector<SegmentGrid>& grids,
                    std::int64_t first_rows,
                    std::int64_t first_width) {
  std::int64_t tokens = 0;
  for (const SegmentGrid& grid : grids) {
    tokens += grid.tokens();
  }
  for (const LayerRange layers : {LayerRange{0, 4},
                                  LayerRange{0, 1},
                                  LayerRange{0, 2},
                                  LayerRange{1, 3},
                                  LayerRange{1, 4},
                                  LayerRange{3, 4}}) {
    SCOPED_TRACE(concat(encoder.name, " layers ", layers.begin, " to ", layers.end));
    expect_split_equals_whole([&](const TensorGroupPtr& group, const Way& way) {
      const EncoderStage stage(
          encoder, 20, layers, options_of(group), way.recompute ? layers.end - layers.begin : 0);
      const at::Tensor input = layers.begin == 0 ? leaf({first_rows, first_width}, "first", false)
                                                 : leaf({tokens, encoder.hidden}, "input", true);
      return run(stage.parameters(), group, way, input, [&](const at::Tensor& x) {
        return stage.forward(x, grids);
      });
    });
  }
}

TEST(SplitStages, VisionEqualsOneRank) {
  EncoderSpec encoder = encoder_of(Modality::kVision);
  expect_encoder(encoder, {{2, 4}, {6, 2}, {2, 2}, {2, 2}}, 28, 48);
  expect_encoder(encoder, {{2, 2}}, 4, 48);  // three ranks: runs of two, two and no rows
}

TEST(SplitStages, AudioEqualsOneRank) {
  const EncoderSpec encoder = encoder_of(Modality::kAudio);
  expect_encoder(encoder, {{5, 1, 9, 2}, {6, 1, 12, 3}, {2, 1, 4, 1}}, 25, encoder.mel_bands);
}

class SplitLlm : public testing::Test {
 protected:
  static at::Tensor forward(const LlmStage& stage, LayerRange layers, const at::Tensor& input) {
    const at::Tensor ids = at::tensor({1, 41, 20, 21, 7, 0, 14, 13, 27, 28, 40}, at::kLong);
    const at::Tensor positions = at::tensor({1, 2, 7}, at::kLong);
    const std::vector<std::int64_t> lengths = {4, 1, 6};
    at::Tensor hidden = layers.begin == 0 ? stage.embed(ids, input, positions) : input;
    hidden = stage.decode(hidden, lengths);
    if (layers.end < 4) {
      return hidden;
    }
    return stage.loss_sum(
        hidden, at::tensor({2, 5, 6, 7, 9}, at::kLong), at::tensor({3, 41, 20, 21, 8}, at::kLong));
  }
};

TEST_F(SplitLlm, EqualsOneRank) {
  for (const bool tied : {false, true}) {
    LlmSpec llm = llm_of();
    llm.tie_word_embeddings = tied;
    for (const LayerRange layers : {LayerRange{0, 4},
                                    LayerRange{0, 1},
                                    LayerRange{0, 2},
                                    LayerRange{1, 3},
                                    LayerRange{2, 4},
                                    LayerRange{3, 4}}) {
      SCOPED_TRACE(concat("layers ", layers.begin, " to ", layers.end, ", tied ", tied));
      expect_split_equals_whole([&](const TensorGroupPtr& group, const Way& way) {
        const LlmStage stage(
            llm, layers, options_of(group), way.recompute ? layers.end - layers.begin : 0);
        std::vector<NamedParameter> parameters = stage.parameters();
        if (tied && layers.begin > 0 && layers.end == 4) {
          parameters.push_back({"copy of the table", stage.table(), ParameterSplit{0}});
        }
        const at::Tensor input = leaf({layers.begin == 0 ? 3 : 11, llm.hidden}, "input", true);
        return run(parameters, group, way, input, [&](const at::Tensor& x) {
          return forward(stage, layers, x);
        });
      });
    }
  }
}

// A group of chunks may hold no target.
TEST_F(SplitLlm, ALossWithoutRowsIsZeroAndReachesTheInput) {
  on_tensor_ranks(2, [](const TensorGroupPtr& group) {
    const LlmStage stage(llm_of(), {3, 4}, options_of(group));
    const at::Tensor input = leaf({5, 20}, "input", true);
    const at::Tensor none = at::empty({0}, at::kLong);
    const at::Tensor loss = stage.loss_sum(input, none, none);
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
    EXPECT_TRUE(at::equal(input.grad(), at::zeros({5, 20}, at::kDouble)));
  });
}

}  // namespace
}  // namespace entrain::engine
