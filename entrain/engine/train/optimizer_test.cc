#include "entrain/engine/train/optimizer.h"

#include <cmath>

#include <gtest/gtest.h>

#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

OptimizerConfig test_config() {
  OptimizerConfig config;
  config.weight_decay = 0.1;
  config.learning_rate = 0.01;
  config.warmup_steps = 0;
  config.final_fraction = 1;
  return config;
}

// Trained pieces, one behind the other in buffers of their own.
using Shapes = std::vector<std::vector<std::int64_t>>;

struct Trained {
  explicit Trained(const Shapes& shapes) {
    for (const std::vector<std::int64_t>& shape : shapes) {
      const at::Tensor value = at::ones(shape).flatten();
      pieces.push_back({concat("p", pieces.size()),
                        "llm",
                        shape.size() >= 2,
                        size,
                        value,
                        at::zeros_like(value)});
      size += value.numel();
    }
  }
  std::vector<TrainedPiece> pieces;
  std::int64_t size = 0;
};

// The update as the AdamW paper writes it, in double, one element at a time.
struct SlowAdamW {
  double value;
  double first = 0;
  double second = 0;
  int count = 0;

  void step(double gradient, double rate, double decay, const OptimizerConfig& config) {
    ++count;
    value -= rate * decay * value;
    first = config.beta1 * first + (1 - config.beta1) * gradient;
    second = config.beta2 * second + (1 - config.beta2) * gradient * gradient;
    const double first_hat = first / (1 - std::pow(config.beta1, count));
    const double second_hat = second / (1 - std::pow(config.beta2, count));
    value -= rate * first_hat / (std::sqrt(second_hat) + config.epsilon);
  }
};

TEST(LearningRate, WarmsUpThenFallsToTheFinalFraction) {
  OptimizerConfig config;
  config.learning_rate = 1.0;
  config.warmup_steps = 10;
  config.final_fraction = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 0, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 9, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 10, 110), 1.0);
  EXPECT_NEAR(learning_rate_at(config, 60, 110), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate_at(config, 110, 110), 0.1, 1e-12);
}

TEST(AdamW, MatchesTheFormulaAndDecaysMatricesOnly) {
  Rng rng(5);
  const Trained trained(Shapes{{3, 4}, {5}});
  std::vector<SlowAdamW> slow;
  for (const TrainedPiece& piece : trained.pieces) {
    for (std::int64_t i = 0; i < piece.value.numel(); ++i) {
      piece.value.data_ptr<float>()[i] = static_cast<float>(rng.normal());
      slow.push_back({piece.value.data_ptr<float>()[i]});
    }
  }
  const OptimizerConfig config = test_config();
  AdamW optimizer(trained.pieces, trained.size, config);
  for (int step = 0; step < 5; ++step) {
    std::size_t element = 0;
    for (const TrainedPiece& piece : trained.pieces) {
      for (std::int64_t i = 0; i < piece.gradient.numel(); ++i) {
        const auto value = static_cast<float>(rng.normal());
        piece.gradient.data_ptr<float>()[i] = value;
        slow[element++].step(value, 0.01, piece.matrix ? config.weight_decay : 0.0, config);
      }
    }
    optimizer.step(0, 1);
  }
  std::size_t element = 0;
  for (const TrainedPiece& piece : trained.pieces) {
    for (std::int64_t i = 0; i < piece.value.numel(); ++i) {
      EXPECT_NEAR(piece.value.data_ptr<float>()[i], slow[element++].value, 1e-5);
    }
  }
}

// A gradient of zero decays too.
TEST(AdamW, DecaysWhatHasNoGradient) {
  const Trained trained(Shapes{{2, 2}});
  AdamW optimizer(trained.pieces, trained.size, test_config());
  optimizer.step(0, 1);
  EXPECT_FLOAT_EQ(trained.pieces[0].value.max().item<float>(), 1 - 0.01F * 0.1F);
}

// Two updates, then one more: by the same object, and by one that took over its state.
TEST(AdamW, GoesOnFromItsMomentsAndUpdates) {
  const auto run = [](bool handed_over) {
    const Trained trained(Shapes{{2, 3}, {4}});
    const auto update = [&](AdamW& optimizer, double gradient) {
      for (const TrainedPiece& piece : trained.pieces) {
        piece.gradient.fill_(gradient);
      }
      optimizer.step(0, 1);
    };
    AdamW first(trained.pieces, trained.size, test_config());
    update(first, 0.5);
    update(first, -2.0);
    AdamW second(trained.pieces, trained.size, test_config());
    if (handed_over) {
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(first.moments()[i].numel(), trained.size);
        second.moments()[i].copy_(first.moments()[i]);
      }
      second.set_updates(2);
    }
    update(handed_over ? second : first, 0.25);
    return at::cat({trained.pieces[0].value, trained.pieces[1].value});
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

// Matrices alike but for their parts, under gradients of zero: what decay takes shows the rate.
TEST(AdamW, UpdatesEveryPartAtItsOwnRate) {
  Trained trained(Shapes{{2, 2}, {2, 2}, {2, 2}});
  trained.pieces[1].part = "vision";
  trained.pieces[2].part = "projector";
  OptimizerConfig config = test_config();
  config.modules["vision"].learning_rate = 0.04;
  config.modules["vision"].warmup_steps = 4;
  config.modules["projector"].weight_decay = 0;
  AdamW optimizer(trained.pieces, trained.size, config);
  double llm = 1;
  double vision = 1;
  for (const double rate : {0.01, 0.02, 0.03, 0.04, 0.04}) {
    const auto update = static_cast<std::int64_t>(std::lround(100 * rate)) - 1;
    optimizer.step(update, 8);
    llm *= 1 - 0.01 * 0.1;
    vision *= 1 - rate * 0.1;
  }
  EXPECT_NEAR(trained.pieces[0].value.max().item<double>(), llm, 1e-6);
  EXPECT_NEAR(trained.pieces[1].value.max().item<double>(), vision, 1e-6);
  EXPECT_EQ(trained.pieces[2].value.max().item<double>(), 1);
}

// Elements do not depend on which others are updated beside them.
TEST(AdamW, IsTheSameInPieces) {
  constexpr std::int64_t kSize = 101;
  const auto run = [](const std::vector<std::int64_t>& sizes) {
    Shapes shapes;
    for (const std::int64_t size : sizes) {
      shapes.push_back({1, size});
    }
    const Trained trained(shapes);
    AdamW optimizer(trained.pieces, trained.size, test_config());
    for (int step = 0; step < 3; ++step) {
      for (const TrainedPiece& piece : trained.pieces) {
        piece.gradient.copy_(
            (at::arange(piece.begin, piece.begin + piece.value.numel()).to(at::kFloat) + step)
                .sin());
      }
      optimizer.step(0, 1);
    }
    std::vector<at::Tensor> values;
    for (const TrainedPiece& piece : trained.pieces) {
      values.push_back(piece.value);
    }
    return at::cat(values);
  };
  EXPECT_TRUE(at::equal(run({kSize}), run({1, 37, 60, 3})));
}

}  // namespace
}  // namespace entrain::engine
