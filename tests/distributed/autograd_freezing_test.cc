// The four ways to freeze parts of a model: what autograd really does, operation by operation and
// by the clock, against what step_costs() charges.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "entrain/core/cost/step_costs.h"

#include "entrain/engine/models/stages.h"
#include "entrain/engine/profiler/profile_run.h"
#include "entrain/engine/profiler/stage_check.h"

#include "tests/oracle/engine/tiny_step.h"
#include "tests/oracle/random_cases.h"

namespace entrain::engine {
namespace {

using oracle::FrozenPattern;

const std::vector<std::pair<const char*, FrozenPattern>> kPatterns = {
    {"all trainable", FrozenPattern::kNone},
    {"encoder frozen, projector trainable", FrozenPattern::kEncoderBodies},
    {"encoder and projector frozen", FrozenPattern::kEncoders},
    {"LLM frozen, encoder trainable", FrozenPattern::kLlm},
    {"only the projector trainable", FrozenPattern::kOnlyProjector},
};

thread_local std::map<std::string, int> executed;

std::unique_ptr<at::ObserverContext> count_operation(const at::RecordFunction& operation) {
  ++executed[operation.name()];
  return nullptr;
}

// Matrix products that this thread runs while the object lives.
class ProductCounter {
 public:
  ProductCounter() {
    executed.clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(count_operation).scopes({at::RecordScope::FUNCTION}));
  }
  ~ProductCounter() { at::removeCallback(handle_); }
  ProductCounter(const ProductCounter&) = delete;
  ProductCounter& operator=(const ProductCounter&) = delete;

  [[nodiscard]] static int products() { return executed["aten::mm"] + executed["aten::addmm"]; }
  [[nodiscard]] static int attention_backwards() {
    return executed["aten::_scaled_dot_product_flash_attention_for_cpu_backward"];
  }

 private:
  at::CallbackHandle handle_ = 0;
};

// One layer's part in one microbatch, by autograd.
struct LayerRecord {
  LayerKind kind = LayerKind::kDecoder;
  int forward_products = 0;
  int backward_products = 0;
  int attention_backwards = 0;
  bool weights_have_gradients = false;
  bool input_has_gradient = false;
};

// A chain of single layers, each a graph of its own as a stage's group is.
class LayerChain {
 public:
  explicit LayerChain(const ModelSpec& model) : model_(model) {}

  // Forward through all layers, then backward through those that take part, last first.
  std::vector<std::vector<LayerRecord>> run() {
    at::Tensor features = encoder_forward();
    llm_forward(features);
    for (std::size_t i = graphs_.size(); i-- > 0;) {
      backward(i);
    }
    return records_;
  }

 private:
  struct Graph {
    at::Tensor input;
    at::Tensor output;
    std::vector<NamedParameter> parameters;
    int module = 0;
    std::size_t layer = 0;
  };

  at::Tensor encoder_forward() {
    const EncoderSpec& encoder = model_.encoders[0];
    const std::vector<SegmentGrid> grids = {{4, 4}, {4, 6}};
    at::Tensor hidden = at::ones({40, 3 * encoder.patch_size * encoder.patch_size});
    for (int layer = 0; layer < num_layers(model_, 0); ++layer) {
      const EncoderStage stage(encoder, model_.llm.hidden, {layer, layer + 1}, {});
      hidden = add(0, stage.parameters(), hidden, [&](const at::Tensor& input) {
        return stage.forward(input, grids);
      });
    }
    return hidden;
  }

  void llm_forward(const at::Tensor& features) {
    const std::vector<std::int64_t> lengths = {12, 8};
    const at::Tensor ids = at::arange(20, at::kLong);
    const at::Tensor positions = at::arange(features.size(0), at::kLong);
    at::Tensor hidden = features;
    const int last = num_layers(model_, 1) - 1;
    for (int layer = 0; layer <= last; ++layer) {
      const LlmStage stage(model_.llm, {layer, layer + 1}, {});
      hidden = add(1, stage.parameters(), hidden, [&](const at::Tensor& input) {
        return layer == 0      ? stage.embed(ids, input, positions)
               : layer == last ? stage.loss_sum(input, at::arange(4, at::kLong), ids.slice(0, 0, 4))
                               : stage.decode(input, lengths);
      });
    }
  }

  // The layer's input takes a gradient iff autograd carries one that far: iff the output before it
  // requires one.
  template <class Forward>
  at::Tensor add(int module,
                 const std::vector<NamedParameter>& parameters,
                 const at::Tensor& before,
                 const Forward& forward) {
    records_.resize(static_cast<std::size_t>(module) + 1);
    Graph graph;
    graph.module = module;
    graph.layer = records_.back().size();
    graph.parameters = parameters;
    graph.input = before.detach();
    graph.input.set_requires_grad(before.requires_grad());
    LayerRecord record;
    record.kind = layer_kind(model_, module, static_cast<int>(graph.layer));
    {
      const ProductCounter counter;
      graph.output = forward(graph.input);
      record.forward_products = ProductCounter::products();
    }
    records_.back().push_back(record);
    graphs_.push_back(graph);
    return graph.output;
  }

  void backward(std::size_t index) {
    Graph& graph = graphs_[index];
    if (!graph.output.requires_grad()) {
      return;
    }
    const at::Tensor gradient =
        index + 1 == graphs_.size() ? at::Tensor() : graphs_[index + 1].input.grad();
    LayerRecord& record = records_[static_cast<std::size_t>(graph.module)][graph.layer];
    const ProductCounter counter;
    graph.output.backward(gradient);
    record.backward_products = ProductCounter::products();
    record.attention_backwards = ProductCounter::attention_backwards();
    record.input_has_gradient = graph.input.grad().defined();
    for (const NamedParameter& parameter : graph.parameters) {
      record.weights_have_gradients =
          record.weights_have_gradients || parameter.tensor.grad().defined();
    }
  }

  const ModelSpec& model_;
  std::vector<Graph> graphs_;
  std::vector<std::vector<LayerRecord>> records_;
};

// Every layer a stage of its own, every curve a constant.
StepCosts charged(const ModelSpec& model) {
  Profile profile;
  profile.source = "analytic";
  for (int module = 0; module < model.num_modules(); ++module) {
    for (const int layer : {0, 1, num_layers(model, module) - 1}) {
      LayerProfile entry;
      entry.module = module_name(model, module);
      entry.kind = layer_kind(model, module, layer);
      entry.forward.per_launch_ns = 1;
      entry.backward_input.per_launch_ns = 1;
      entry.backward_weight.per_launch_ns = 1;
      profile.layers.push_back(entry);
    }
  }
  std::vector<int> stages;
  for (int module = 0; module < model.num_modules(); ++module) {
    stages.push_back(num_layers(model, module));
  }
  return step_costs(model, even_plan(model, stages, 1, 1), profile, tiny::tiny_batch());
}

TEST(FreezingPatterns, ChargeTheProductsThatAutogradRuns) {
  at::set_num_threads(1);
  for (const auto& [name, pattern] : kPatterns) {
    SCOPED_TRACE(name);
    const ModelSpec model = tiny::tiny_model(pattern);
    const auto records = LayerChain(model).run();
    const StepCosts costs = charged(model);
    for (int module = 0; module < model.num_modules(); ++module) {
      const auto& layers = records[static_cast<std::size_t>(module)];
      for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        const LayerRecord& record = layers[layer];
        SCOPED_TRACE(concat(module_name(model, module), " ", name_of(record.kind), " ", layer));
        const OperationTimes& launch =
            costs.modules[static_cast<std::size_t>(module)].stages[layer].launch;
        const bool weight = launch.backward_weight.count() > 0;
        const bool input = launch.backward_input.count() > 0;
        EXPECT_EQ(record.weights_have_gradients, weight);
        // One product a matrix for each gradient; token embeddings have none at all.
        EXPECT_EQ(record.backward_products,
                  record.forward_products * ((weight ? 1 : 0) + (input ? 1 : 0)));
        const bool attention =
            record.kind == LayerKind::kEncoderTransformer || record.kind == LayerKind::kDecoder;
        EXPECT_EQ(record.attention_backwards, attention && input ? 2 : 0) << "a kernel a segment";
        if (record.input_has_gradient) {
          EXPECT_TRUE(input);
        }
        if (attention) {
          EXPECT_GE(record.forward_products, 5);
        }
      }
    }
  }
}

// The demo's model; its own sizes, so that arithmetic outweighs launches.
ModelSpec clock_model(FrozenPattern pattern) {
  ModelSpec model = tiny::tiny_model(pattern);
  model.encoders[0].hidden = 128;
  model.encoders[0].num_heads = 4;
  model.encoders[0].intermediate = 320;
  model.llm.hidden = 160;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 40;
  model.llm.intermediate = 480;
  model.llm.vocab_size = 264;
  return model;
}

constexpr int kRounds = 5;

struct BackwardTimes {
  double predicted = 0;
  std::vector<double> measured;  // [round]
};

// Of both modules' only stages under every pattern. Patterns take turns, so that a slow moment of
// the machine has no pattern to itself.
std::map<FrozenPattern, BackwardTimes> backward_times() {
  ProfileOptions options = quick_options(1024);
  options.repeats = 7;
  options.seconds = 8;
  const Profile profile = measure_profile(clock_model(FrozenPattern::kNone), options).profile;
  const std::vector<std::vector<SampleWork>> slots = {
      {tiny::sample_of({{8, 10}, {6, 6}}, 60, 20), tiny::sample_of({{9, 7}}, 90, 30)},
      {tiny::sample_of({{5, 12}}, 200, 40)}};
  std::map<FrozenPattern, BackwardTimes> times;
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& [name, pattern] : kPatterns) {
      const ModelSpec model = clock_model(pattern);
      BackwardTimes& own = times[pattern];
      own.predicted = 0;
      own.measured.push_back(0);
      for (const StageTime& time :
           check_stages(model, even_plan(model, {1, 1}, 1, 1), profile, slots, 3)) {
        own.measured.back() += time.measured_backward;
        own.predicted += time.predicted_backward;
      }
    }
  }
  return times;
}

double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The tolerances are loose since the machine may be shared; a gradient charged but not computed, or
// the other way round, is a third of a layer's time or more. Every pattern's time is held to its
// prediction (once more where the machine changed its speed behind the profile), and its share of
// the whole backward, round by round and so whatever that speed is, to the share that is charged.
TEST(FreezingPatterns, TakeTheTimeThatIsCharged) {
  constexpr double kTolerance = 0.3;
  constexpr double kShareTolerance = 0.2;
  std::map<FrozenPattern, BackwardTimes> times = backward_times();
  const auto ratio = [](const BackwardTimes& of) { return of.predicted / middle_of(of.measured); };
  if (std::any_of(times.begin(), times.end(), [&](const auto& entry) {
        return std::abs(ratio(entry.second) - 1) > kTolerance;
      })) {
    std::cout << "again: a pattern is far from its prediction\n";
    times = backward_times();
  }
  const BackwardTimes& whole = times.at(FrozenPattern::kNone);
  for (const auto& [name, pattern] : kPatterns) {
    const BackwardTimes& own = times.at(pattern);
    EXPECT_NEAR(ratio(own), 1, kTolerance) << name;
    if (pattern == FrozenPattern::kNone) {
      continue;
    }
    std::vector<double> shares;
    for (std::size_t round = 0; round < own.measured.size(); ++round) {
      shares.push_back(own.measured[round] / whole.measured[round]);
    }
    const double share = middle_of(shares);
    std::cout << name << ": " << share << " of the whole, charged "
              << own.predicted / whole.predicted << "\n";
    EXPECT_NEAR(own.predicted / whole.predicted / share, 1, kShareTolerance) << name;
    EXPECT_LT(*std::min_element(own.measured.begin(), own.measured.end()),
              0.95 * *std::min_element(whole.measured.begin(), whole.measured.end()))
        << name << ": freezing spares something";
  }
}

}  // namespace
}  // namespace entrain::engine
