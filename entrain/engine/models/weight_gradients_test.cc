#include "entrain/engine/models/weight_gradients.h"

#include <string>
#include <string_view>
#include <vector>

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "entrain/engine/models/live_bytes.h"
#include "entrain/engine/models/recompute.h"
#include "entrain/engine/models/stages.h"

#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::random_tensor;

thread_local int products_so_far = 0;

std::unique_ptr<at::ObserverContext> count_product(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  products_so_far += name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm" ||
                             name == "aten::embedding_dense_backward"
                         ? 1
                         : 0;
  return nullptr;
}

// Matrix products, and gradients of tables, that `body` makes on this thread.
template <class Body>
int products_of(const Body& body) {
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(count_product).scopes({at::RecordScope::FUNCTION}));
  products_so_far = 0;
  body();
  at::removeCallback(handle);
  return products_so_far;
}

using Linear = at::Tensor (*)(const at::Tensor&,
                              const at::Tensor&,
                              const std::optional<at::Tensor>&);

at::Tensor split(const at::Tensor& input,
                 const at::Tensor& weight,
                 const std::optional<at::Tensor>& bias) {
  return split_linear(input, weight, bias);
}

// Two matrices, the second with a bias, and a factor between them that keeps nothing.
struct TwoMatrices {
  explicit TwoMatrices(at::ScalarType dtype = at::kFloat,
                       bool input_trains = true,
                       bool first_trains = true,
                       bool second_trains = true)
      : input(random_tensor({9, 6}, "input", dtype)),
        first(random_tensor({5, 6}, "first", dtype)),
        second(random_tensor({7, 5}, "second", dtype)),
        bias(random_tensor({7}, "bias", dtype)) {
    input.set_requires_grad(input_trains);
    first.set_requires_grad(first_trains);
    second.set_requires_grad(second_trains);
    bias.set_requires_grad(second_trains);
  }

  [[nodiscard]] at::Tensor forward(Linear linear) const {
    return linear(2 * linear(input, first, std::nullopt), second, bias);
  }
  // Of a graph whose weight gradients are `weight_gradients`.
  [[nodiscard]] at::Tensor forward(const WeightGradientsPtr& weight_gradients) const {
    const WeightGradientsScope scope(weight_gradients);
    return forward(split);
  }
  [[nodiscard]] at::Tensor output_gradient() const {
    return random_tensor({9, 7}, "output", input.scalar_type());
  }
  void clear() const {
    for (const at::Tensor* tensor : {&input, &first, &second, &bias}) {
      tensor->mutable_grad() = at::Tensor();
    }
  }

  at::Tensor input;
  at::Tensor first;
  at::Tensor second;
  at::Tensor bias;
};

at::Tensor plain_linear(const at::Tensor& input,
                        const at::Tensor& weight,
                        const std::optional<at::Tensor>& bias) {
  return at::linear(input, weight, bias);
}

void expect_same_gradient(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.grad().defined(), expected.grad().defined());
  EXPECT_TRUE(!expected.grad().defined() || at::equal(actual.grad(), expected.grad()));
}

void expect_same_gradients(const TwoMatrices& actual, const TwoMatrices& expected) {
  expect_same_gradient(actual.input, expected.input);
  expect_same_gradient(actual.first, expected.first);
  expect_same_gradient(actual.second, expected.second);
  expect_same_gradient(actual.bias, expected.bias);
}

TEST(SplitLinear, IsAtLinearBitForBitWholeOrInHalves) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (int trains = 1; trains < 8; ++trains) {
      const auto make = [&] {
        return TwoMatrices(dtype, (trains & 1) != 0, (trains & 2) != 0, (trains & 4) != 0);
      };
      const TwoMatrices expected = make();
      const TwoMatrices whole = make();
      const TwoMatrices halves = make();
      // Twice: gradients are added to those that are there.
      for (int pass = 0; pass < 2; ++pass) {
        const at::Tensor output = expected.forward(plain_linear);
        output.backward(expected.output_gradient());
        const at::Tensor whole_output = whole.forward(c10::make_intrusive<WeightGradients>());
        EXPECT_TRUE(at::equal(whole_output, output));
        whole_output.backward(whole.output_gradient());
        const auto waiting = c10::make_intrusive<WeightGradients>();
        const at::Tensor split_output = halves.forward(waiting);
        waiting->defer();
        split_output.backward(halves.output_gradient());
        if (pass == 0) {
          EXPECT_FALSE(halves.first.grad().defined());
          EXPECT_FALSE(halves.second.grad().defined());
          EXPECT_FALSE(halves.bias.grad().defined());
        }
        waiting->run();
        expect_same_gradients(whole, expected);
        expect_same_gradients(halves, expected);
      }
    }
  }
}

TEST(SplitLinear, MakesTheProductsOfEachHalfInItsHalf) {
  const TwoMatrices of;
  const auto waiting = c10::make_intrusive<WeightGradients>();
  const at::Tensor output = of.forward(waiting);
  waiting->defer();
  EXPECT_EQ(products_of([&] { output.backward(of.output_gradient()); }), 2);
  EXPECT_TRUE(of.input.grad().defined());
  EXPECT_EQ(products_of([&] { waiting->run(); }), 2);
  EXPECT_EQ(products_of([&] { waiting->run(); }), 0) << "nothing waits any more";
}

TEST(SplitLinear, MakesNoProductThatFreezingSaves) {
  const TwoMatrices first_alone(at::kFloat, false, true, false);
  const auto waiting = c10::make_intrusive<WeightGradients>();
  const at::Tensor output = first_alone.forward(waiting);
  waiting->defer();
  // To the first matrix's output and no further.
  EXPECT_EQ(products_of([&] { output.backward(first_alone.output_gradient()); }), 1);
  EXPECT_EQ(products_of([&] { waiting->run(); }), 1);
  const TwoMatrices frozen(at::kFloat, false, false, false);
  EXPECT_FALSE(frozen.forward(c10::make_intrusive<WeightGradients>()).requires_grad());
  const TwoMatrices input_alone(at::kFloat, true, false, false);
  const auto nothing = c10::make_intrusive<WeightGradients>();
  const at::Tensor passed = input_alone.forward(nothing);
  nothing->defer();
  EXPECT_EQ(products_of([&] { passed.backward(input_alone.output_gradient()); }), 2);
  EXPECT_EQ(products_of([&] { nothing->run(); }), 0);
}

TEST(SplitLinear, WholeCostsNoProductAndNoByteMoreThanAtLinear) {
  for (int trains = 1; trains < 8; ++trains) {
    struct Use {
      int products = 0;
      std::int64_t kept_bytes = 0;
      std::int64_t peak_bytes = 0;
    };
    const auto use_of = [&](const auto& forward) {
      const TwoMatrices of(at::kFloat, (trains & 1) != 0, (trains & 2) != 0, (trains & 4) != 0);
      const at::Tensor output_gradient = of.output_gradient();
      const LiveBytes live;
      at::Tensor output = forward(of);
      Use use;
      use.kept_bytes = live.bytes();
      use.products = products_of([&] { output.backward(output_gradient); });
      use.peak_bytes = live.peak();
      return use;
    };
    const Use plain = use_of([](const TwoMatrices& of) { return of.forward(plain_linear); });
    const Use split = use_of(
        [](const TwoMatrices& of) { return of.forward(c10::make_intrusive<WeightGradients>()); });
    EXPECT_EQ(split.products, plain.products) << trains;
    EXPECT_EQ(split.kept_bytes, plain.kept_bytes) << trains;
    EXPECT_LE(split.peak_bytes, plain.peak_bytes) << trains;
  }
}

TEST(WeightGradients, FreeWhatWaitedWhenTheyHaveRun) {
  const TwoMatrices of;
  const at::Tensor output_gradient = of.output_gradient();
  const auto waiting = c10::make_intrusive<WeightGradients>();
  waiting->defer();
  const LiveBytes live;
  of.forward(waiting).backward(output_gradient);
  constexpr std::int64_t kFloatBytes = 4;
  // The input's gradient; what the second matrix took; the first one's output gradient. The graph
  // is gone.
  EXPECT_EQ(live.bytes(), (9 * 6 + 9 * 5 + 9 * 5) * kFloatBytes);
  waiting->run();
  EXPECT_EQ(live.bytes(), (9 * 6 + of.first.numel() + of.second.numel() + 7) * kFloatBytes);
  of.clear();
  EXPECT_EQ(live.bytes(), 0);
}

TEST(WeightGradients, FreeEachPieceAfterItsUse) {
  const at::Tensor parameter = at::zeros({1});
  const auto waiting = c10::make_intrusive<WeightGradients>();
  const LiveBytes live;
  waiting->add(parameter, [held = at::zeros({1000})] { return held.narrow(0, 0, 1).clone(); });
  EXPECT_GE(live.bytes(), 4000);
  waiting->add(parameter, [&] {
    EXPECT_LT(live.bytes(), 4000);
    return at::ones({1});
  });
  waiting->run();
  EXPECT_EQ(parameter.grad().item<float>(), 1);
}

TEST(WeightGradients, OfATableAndAMatrixInOneAddUp) {
  const auto gradient_of = [](const WeightGradientsPtr& waiting) {
    const at::Tensor table = random_tensor({8, 6}, "table").set_requires_grad(true);
    const at::Tensor ids = at::tensor({3, 1, 3, 7}, at::kLong);
    const at::Tensor chosen = random_tensor({4, 8}, "chosen");
    if (!waiting) {
      at::linear(at::tanh(at::embedding(table, ids)), table).backward(chosen);
      return table.grad();
    }
    const WeightGradientsScope scope(waiting);
    split_linear(at::tanh(split_embedding(table, ids)), table).backward(chosen);
    EXPECT_EQ(table.grad().defined(), !waiting->deferred());
    EXPECT_EQ(products_of([&] { waiting->run(); }), waiting->deferred() ? 2 : 0);
    return table.grad();
  };
  const at::Tensor expected = gradient_of({});
  EXPECT_TRUE(at::allclose(gradient_of(c10::make_intrusive<WeightGradients>()), expected));
  const auto waiting = c10::make_intrusive<WeightGradients>();
  waiting->defer();
  EXPECT_TRUE(at::allclose(gradient_of(waiting), expected));
}

TEST(WeightGradients, OfBfloat16AreAddedUpInFloat32WholeOrInHalves) {
  const auto make = [] {
    TwoMatrices of(at::kBFloat16);
    for (const at::Tensor* weight : {&of.first, &of.second, &of.bias}) {
      weight->set_grad_dtype(at::kFloat);
    }
    return of;
  };
  const TwoMatrices whole = make();
  const TwoMatrices halves = make();
  const auto waiting = c10::make_intrusive<WeightGradients>();
  for (int pass = 0; pass < 3; ++pass) {
    whole.forward(c10::make_intrusive<WeightGradients>()).backward(whole.output_gradient());
    const at::Tensor output = halves.forward(waiting);
    waiting->defer();
    output.backward(halves.output_gradient());
    waiting->run();
    expect_same_gradients(halves, whole);
  }
  EXPECT_EQ(halves.first.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(whole.first.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(whole.input.grad().scalar_type(), at::kBFloat16);
}

// In bfloat16 the sum would stand still at 256.
TEST(WeightGradients, OfATokenThatStandsAThousandTimesAreExactInBfloat16) {
  const at::Tensor ids = at::full({1001}, 3, at::kLong);
  for (const bool deferred : {false, true}) {
    const at::Tensor table = at::ones({5, 2}, at::kBFloat16).set_requires_grad(true);
    table.set_grad_dtype(at::kFloat);
    const auto waiting = c10::make_intrusive<WeightGradients>();
    {
      const WeightGradientsScope scope(waiting);
      const at::Tensor chosen = split_embedding(table, ids);
      if (deferred) {
        waiting->defer();
      }
      chosen.backward(at::ones_like(chosen.detach()));
    }
    waiting->run();
    EXPECT_EQ(table.grad()[3][0].item<float>(), 1001.0F) << deferred;
    EXPECT_EQ(table.grad().sum().item<float>(), 2002.0F) << deferred;
  }
}

TEST(WeightGradients, OfRecomputedLayersWaitToo) {
  const auto run = [](const TwoMatrices& of, const WeightGradientsPtr& waiting) {
    const std::vector<NamedParameter> parameters = {
        {"first", of.first}, {"second", of.second}, {"bias", of.bias}};
    const WeightGradientsScope scope(waiting);
    return run_recomputed(of.input, parameters, [&of](const at::Tensor& x) {
      return split_linear(2 * split_linear(x, of.first), of.second, of.bias);
    });
  };
  const TwoMatrices expected;
  expected.forward(plain_linear).backward(expected.output_gradient());
  const TwoMatrices of;
  const auto waiting = c10::make_intrusive<WeightGradients>();
  const at::Tensor output = run(of, waiting);
  waiting->defer();
  // Two forward once more, two of the input gradient.
  EXPECT_EQ(products_of([&] { output.backward(of.output_gradient()); }), 4);
  EXPECT_FALSE(of.first.grad().defined() || of.bias.grad().defined());
  EXPECT_EQ(products_of([&] { waiting->run(); }), 2);
  expect_same_gradients(of, expected);
  const TwoMatrices whole;
  run(whole, c10::make_intrusive<WeightGradients>()).backward(whole.output_gradient());
  expect_same_gradients(whole, expected);
}

TEST(WeightGradientsScope, EndsWithItsBlock) {
  const auto outer = c10::make_intrusive<WeightGradients>();
  const auto inner = c10::make_intrusive<WeightGradients>();
  EXPECT_FALSE(WeightGradientsScope::current());
  {
    const WeightGradientsScope first(outer);
    {
      const WeightGradientsScope second(inner);
      EXPECT_EQ(WeightGradientsScope::current(), inner);
    }
    EXPECT_EQ(WeightGradientsScope::current(), outer);
  }
  EXPECT_FALSE(WeightGradientsScope::current());
}

// Whole stages: in the first half no parameter but norm gains gets a gradient, after the second all
// have the gradients of a whole backward, bit for bit.
void expect_split(const std::vector<NamedParameter>& parameters,
                  const std::function<at::Tensor()>& forward) {
  forward().sum().backward();
  const auto expected = oracle::gradients_of(parameters);
  for (const NamedParameter& parameter : parameters) {
    parameter.tensor.mutable_grad() = at::Tensor();
  }
  const auto waiting = c10::make_intrusive<WeightGradients>();
  waiting->defer();
  {
    const WeightGradientsScope scope(waiting);
    forward().sum().backward();
  }
  for (const NamedParameter& parameter : parameters) {
    const bool gain = parameter.name.find("norm") != std::string::npos ||
                      parameter.name.find("ln_q") != std::string::npos;
    EXPECT_EQ(parameter.tensor.grad().defined(), gain) << parameter.name;
  }
  waiting->run();
  for (const NamedParameter& parameter : parameters) {
    EXPECT_TRUE(at::equal(parameter.tensor.grad(), expected.at(parameter.name))) << parameter.name;
  }
}

EncoderSpec small_encoder() {
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.num_layers = 2;
  encoder.hidden = 16;
  encoder.num_heads = 2;
  encoder.intermediate = 24;
  encoder.patch_size = 4;
  encoder.merge_size = 2;
  return encoder;
}

TEST(WeightGradients, OfAnEncoderWaitButForGains) {
  for (const int recompute : {0, 2, 4}) {
    const EncoderStage stage(small_encoder(), 24, {0, 4}, {.seed = 3}, recompute);
    const at::Tensor patches = random_tensor({24, 48}, "patches", at::kFloat);
    const std::vector<SegmentGrid> grids = {{4, 4}, {2, 4}};
    expect_split(stage.parameters(), [&] { return stage.forward(patches, grids); });
  }
}

TEST(WeightGradients, OfAnLlmWaitButForGains) {
  LlmSpec llm;
  llm.num_layers = 2;
  llm.hidden = 24;
  llm.num_heads = 4;
  llm.num_kv_heads = 2;
  llm.head_dim = 6;
  llm.intermediate = 32;
  llm.vocab_size = 40;
  for (const int recompute : {0, 2, 4}) {
    const LlmStage stage(llm, {0, 4}, {.seed = 3}, recompute);
    const at::Tensor ids = at::arange(11, at::kLong);
    const at::Tensor features = random_tensor({2, 24}, "features", at::kFloat);
    const at::Tensor positions = at::tensor({1, 2}, at::kLong);
    const at::Tensor rows = at::tensor({3, 4, 9}, at::kLong);
    const std::vector<std::int64_t> lengths = {6, 5};
    expect_split(stage.parameters(), [&] {
      return stage.loss_sum(
          stage.decode(stage.embed(ids, features, positions), lengths), rows, rows);
    });
  }
}

// Two matrices read one input that is made again: once a backward, and not at all where both are
// frozen.
TEST(RecomputedInput, ChangesNoBitAndIsMadeOnceForAllReaders) {
  const at::Tensor values = random_tensor({9, 6}, "input", at::kFloat);
  const at::Tensor first = random_tensor({5, 6}, "first", at::kFloat);
  const at::Tensor second = random_tensor({7, 6}, "second", at::kFloat);
  const auto gradients_of = [&](bool recomputes, bool defers, bool trains, int& made) {
    at::Tensor input = values.clone().set_requires_grad(true);
    const at::Tensor one = first.clone().set_requires_grad(trains);
    const at::Tensor two = second.clone().set_requires_grad(trains);
    RecomputedInputPtr recomputed;
    if (recomputes) {
      recomputed = c10::make_intrusive<RecomputedInput>([&made, values] {
        ++made;
        return values.clone();
      });
    }
    const auto waiting = c10::make_intrusive<WeightGradients>();
    at::Tensor output;
    {
      const WeightGradientsScope scope(waiting);
      output = split_linear(input, one, {}, recomputed).sum() +
               split_linear(input, two, {}, recomputed).sum();
    }
    if (defers) {
      waiting->defer();
    }
    output.backward();
    EXPECT_EQ(made, recomputes && trains && !defers ? 1 : 0);
    waiting->run();
    return std::vector<at::Tensor>{input.grad(), one.grad(), two.grad()};
  };
  for (const bool trains : {true, false}) {
    int never = 0;
    const std::vector<at::Tensor> expected = gradients_of(false, false, trains, never);
    for (const bool defers : {false, true}) {
      int made = 0;
      const std::vector<at::Tensor> actual = gradients_of(true, defers, trains, made);
      EXPECT_EQ(made, trains ? 1 : 0);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(actual[i].defined(), expected[i].defined());
        EXPECT_TRUE(!expected[i].defined() || at::equal(actual[i], expected[i])) << i;
      }
    }
    EXPECT_EQ(never, 0);
  }
}

}  // namespace
}  // namespace entrain::engine
