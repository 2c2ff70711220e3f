// LlmStage, which stages.h declares.
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/models/stages.h"

#include "tests/oracle/engine/tensors.h"

namespace entrain::engine {
namespace {

using oracle::gradients_of;

constexpr int kLlmHidden = 24;

LlmSpec small_llm() {
  LlmSpec llm;
  llm.num_layers = 3;
  llm.hidden = kLlmHidden;
  llm.num_heads = 4;
  llm.num_kv_heads = 2;
  llm.head_dim = 6;
  llm.intermediate = 28;
  llm.vocab_size = 40;
  return llm;
}

struct LlmBatch {
  std::vector<std::int64_t> lengths = {5, 1, 8};
  at::Tensor ids = at::arange(14, at::kLong);
  at::Tensor features = oracle::random_floats({3, kLlmHidden}, "features");
  at::Tensor positions = at::tensor({1, 2, 8}, at::kLong);
  at::Tensor rows = at::tensor({3, 4, 5, 11, 12}, at::kLong);
  at::Tensor targets = at::tensor({7, 0, 39, 12, 3}, at::kLong);
};

TEST(LlmStage, ATiedHeadReadsTheTable) {
  LlmSpec llm = small_llm();
  llm.tie_word_embeddings = true;
  const int layers = llm.num_layers + 2;
  const LlmStage whole(llm, {0, layers}, {});
  const LlmStage last(llm, {layers - 1, layers}, {});
  const LlmStage middle(llm, {1, layers - 1}, {});
  EXPECT_EQ(whole.parameters().back().name, "model.norm.weight");
  EXPECT_EQ(last.parameters().size(), 1U) << "the copy is not the stage's own";
  EXPECT_TRUE(at::equal(whole.table(), last.table()));
  EXPECT_FALSE(middle.table().defined());
  const at::Tensor hidden = at::ones({3, llm.hidden});
  const at::Tensor rows = at::arange(3);
  const at::Tensor normed = hidden / hidden.square().mean(1, true).add(1e-6).sqrt();
  EXPECT_TRUE(at::allclose(last.logits(hidden, rows), at::mm(normed, whole.table().t())));
  // On one lane both are one tensor.
  LlmStage tied = last;
  tied.use_table(whole.table());
  EXPECT_TRUE(tied.table().is_same(whole.table()));
  EXPECT_FALSE(LlmStage(small_llm(), {layers - 1, layers}, {}).table().defined());
}

TEST(LlmStage, StagesInARowEqualOneStage) {
  const LlmBatch batch;
  const LlmStage whole(small_llm(), {0, 5}, {});
  const auto loss_of = [&](const LlmStage& first, const LlmStage& last, const at::Tensor& input) {
    return last.loss_sum(
        &first == &last ? first.decode(input, batch.lengths) : input, batch.rows, batch.targets);
  };
  const at::Tensor expected =
      loss_of(whole, whole, whole.embed(batch.ids, batch.features, batch.positions));
  expected.backward();
  const auto expected_gradients = gradients_of(whole.parameters());
  for (const int cut : {1, 2, 4}) {
    const LlmStage first(small_llm(), {0, cut}, {});
    const LlmStage second(small_llm(), {cut, 5}, {});
    const at::Tensor middle =
        first.decode(first.embed(batch.ids, batch.features, batch.positions), batch.lengths);
    const at::Tensor received = middle.detach().set_requires_grad(true);
    const at::Tensor loss = loss_of(first, second, second.decode(received, batch.lengths));
    EXPECT_TRUE(at::equal(loss, expected)) << "cut before layer " << cut;
    loss.backward();
    middle.backward(received.grad());
    oracle::expect_gradients(first.parameters(), second.parameters(), expected_gradients);
  }
}

TEST(LlmStage, EmbedPutsFeaturesInTheirPlacesAlone) {
  const LlmBatch batch;
  const LlmStage stage(small_llm(), {0, 1}, {});
  const at::Tensor features = batch.features.clone().set_requires_grad(true);
  const at::Tensor hidden = stage.embed(batch.ids, features, batch.positions);
  EXPECT_TRUE(at::equal(hidden.index_select(0, batch.positions), features));
  const at::Tensor plain = stage.embed(batch.ids, at::Tensor(), at::Tensor());
  EXPECT_TRUE(at::equal(hidden[0], plain[0]));
  EXPECT_TRUE(at::equal(hidden[13], plain[13]));
  hidden.sum().backward();
  EXPECT_TRUE(at::equal(features.grad(), at::ones_like(features)));
  const at::Tensor rows = stage.parameters().front().tensor.grad().sum(1);
  EXPECT_EQ(rows[8].item<float>(), 0.0F);  // id 8 stands where a feature goes
  EXPECT_EQ(rows[7].item<float>(), static_cast<float>(kLlmHidden));
}

TEST(LlmStage, IsCausalAndSeparatesSamples) {
  const LlmBatch batch;
  const LlmStage stage(small_llm(), {0, 5}, {});
  const at::Tensor hidden = stage.embed(batch.ids, at::Tensor(), at::Tensor());
  at::Tensor changed = hidden.detach().clone();
  changed[8].add_(1.0);  // third position of the third sample
  const at::Tensor before = stage.decode(hidden, batch.lengths);
  const at::Tensor after = stage.decode(changed, batch.lengths);
  EXPECT_TRUE(at::equal(before.narrow(0, 0, 8), after.narrow(0, 0, 8)));
  EXPECT_FALSE(at::allclose(before.narrow(0, 9, 5), after.narrow(0, 9, 5)));
}

TEST(LlmStage, PackedSamplesEqualSamplesAlone) {
  const LlmBatch batch;
  const LlmStage stage(small_llm(), {0, 5}, {});
  const at::Tensor hidden = stage.embed(batch.ids, at::Tensor(), at::Tensor());
  const at::Tensor packed = stage.decode(hidden, batch.lengths);
  std::int64_t begin = 0;
  for (const std::int64_t length : batch.lengths) {
    const std::vector<std::int64_t> alone = {length};
    EXPECT_TRUE(at::allclose(stage.decode(hidden.narrow(0, begin, length), alone),
                             packed.narrow(0, begin, length),
                             1e-5,
                             1e-6));
    begin += length;
  }
}

// Loss and gradients of one sample, cut before these tokens; stages of one lane each.
struct ChunkedResult {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
  at::Tensor of_features;
};

ChunkedResult run_chunked(const std::vector<std::int64_t>& cuts, int recompute) {
  const LlmBatch batch;
  const std::int64_t length = batch.ids.size(0);
  const LlmStage stage(small_llm(), {0, 5}, {.dtype = at::kDouble}, recompute);
  const at::Tensor features = batch.features.to(at::kDouble).set_requires_grad(true);
  std::vector<at::Tensor> losses;
  std::vector<ChunkKeyValuesPtr> kept;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::int64_t begin = i == 0 ? 0 : cuts[i - 1];
    const std::int64_t end = i == cuts.size() ? length : cuts[i];
    PackedItem item{end - begin, begin, kept, nullptr};
    if (end < length) {
      item.own = std::make_shared<ChunkKeyValues>();
      item.own->takes_gradients = true;
      kept.push_back(item.own);
    }
    const auto within = [&](const at::Tensor& places) {
      return at::nonzero((places >= begin).logical_and(places < end)).squeeze(1);
    };
    const at::Tensor placed = within(batch.positions);
    const at::Tensor chosen = within(batch.rows);
    const at::Tensor hidden = stage.embed(batch.ids.narrow(0, begin, end - begin),
                                          features.index_select(0, placed),
                                          batch.positions.index_select(0, placed) - begin);
    losses.push_back(stage.loss_sum(stage.decode(hidden, std::vector<PackedItem>{item}),
                                    batch.rows.index_select(0, chosen) - begin,
                                    batch.targets.index_select(0, chosen)));
  }
  ChunkedResult result;
  for (std::size_t i = losses.size(); i-- > 0;) {
    losses[i].backward();
    result.loss += losses[i].item<double>();
  }
  result.gradients = gradients_of(stage.parameters());
  result.of_features = features.grad();
  return result;
}

TEST(LlmStage, ChunksOfASampleEqualTheWhole) {
  const ChunkedResult whole = run_chunked({}, 0);
  for (const std::vector<std::int64_t>& cuts :
       {std::vector<std::int64_t>{7}, {1, 2}, {2, 9, 13}, {4, 12}}) {
    for (const int recompute : {0, 2, 5}) {
      const ChunkedResult chunked = run_chunked(cuts, recompute);
      EXPECT_NEAR(chunked.loss, whole.loss, 1e-12 * whole.loss);
      EXPECT_TRUE(at::allclose(chunked.of_features, whole.of_features, 1e-9, 1e-12));
      for (const auto& [name, gradient] : whole.gradients) {
        EXPECT_TRUE(at::allclose(chunked.gradients.at(name), gradient, 1e-9, 1e-12))
            << name << ", " << cuts.size() << " cuts, " << recompute << " layers recomputed";
      }
    }
  }
}

TEST(LlmStage, FrozenStagesStillPassGradientsOn) {
  LlmSpec llm = small_llm();
  llm.frozen = true;
  const LlmBatch batch;
  const LlmStage stage(llm, {0, 5}, {});
  for (const NamedParameter& parameter : stage.parameters()) {
    EXPECT_FALSE(parameter.tensor.requires_grad()) << parameter.name;
  }
  const at::Tensor features = batch.features.clone().set_requires_grad(true);
  stage
      .loss_sum(stage.decode(stage.embed(batch.ids, features, batch.positions), batch.lengths),
                batch.rows,
                batch.targets)
      .backward();
  EXPECT_GT(features.grad().abs().max().item<float>(), 0.0F);
  EXPECT_FALSE(stage.parameters().front().tensor.grad().defined());
}

TEST(LlmStage, NamesAreThoseOfHuggingFace) {
  const LlmStage stage(small_llm(), {3, 5}, {});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const NamedParameter& parameter : stage.parameters()) {
    shapes[parameter.name] = parameter.tensor.sizes().vec();
  }
  EXPECT_EQ(shapes.size(), 9U + 2);
  EXPECT_EQ(shapes.at("model.layers.2.self_attn.k_proj.weight"),
            (std::vector<std::int64_t>{12, kLlmHidden}));
  EXPECT_EQ(shapes.at("model.layers.2.mlp.down_proj.weight"),
            (std::vector<std::int64_t>{kLlmHidden, 28}));
  EXPECT_EQ(shapes.at("model.norm.weight"), (std::vector<std::int64_t>{kLlmHidden}));
  EXPECT_EQ(shapes.at("lm_head.weight"), (std::vector<std::int64_t>{40, kLlmHidden}));
  EXPECT_EQ(LlmStage(small_llm(), {0, 1}, {}).parameters().front().name,
            "model.embed_tokens.weight");
}

TEST(LlmStage, NoticesWorkOfAnotherStage) {
  const LlmBatch batch;
  const LlmStage middle(small_llm(), {2, 3}, {});
  const at::Tensor hidden = oracle::random_floats({14, kLlmHidden}, "hidden");
  EXPECT_THROW((void)middle.embed(batch.ids, at::Tensor(), at::Tensor()), InternalError);
  EXPECT_THROW((void)middle.logits(hidden, batch.rows), InternalError);
  EXPECT_THROW((void)middle.decode(hidden.narrow(0, 0, 13), batch.lengths), InternalError);
  const LlmStage first(small_llm(), {0, 1}, {});
  EXPECT_THROW((void)first.embed(batch.ids, batch.features, batch.positions.narrow(0, 0, 2)),
               InternalError);
}

TEST(LlmStage, LogitsAreComputedAtChosenRowsOnly) {
  const LlmBatch batch;
  const LlmStage stage(small_llm(), {4, 5}, {});
  const at::Tensor hidden = oracle::random_floats({14, kLlmHidden}, "hidden");
  const at::Tensor all = stage.logits(hidden, at::arange(14, at::kLong));
  ASSERT_EQ(all.sizes(), (std::vector<std::int64_t>{14, 40}));
  EXPECT_TRUE(
      at::allclose(stage.logits(hidden, batch.rows), all.index_select(0, batch.rows), 1e-5, 1e-6));
  const at::Tensor log_probability = at::log_softmax(all.index_select(0, batch.rows), -1);
  const at::Tensor expected = -log_probability.gather(1, batch.targets.unsqueeze(1)).sum();
  EXPECT_NEAR(stage.loss_sum(hidden, batch.rows, batch.targets).item<double>(),
              expected.item<double>(),
              1e-4);
}

// A float32 sum of this many terms is off by more than 1e-7 of itself.
TEST(LlmStage, LossIsSummedInFloat64) {
  constexpr std::int64_t kRows = 3000;
  const LlmStage stage(small_llm(), {4, 5}, {});
  const at::Tensor hidden = oracle::random_floats({kRows, kLlmHidden}, "hidden");
  const at::Tensor rows = at::arange(kRows, at::kLong);
  const at::Tensor targets = rows.remainder(40);
  const at::Tensor exact =
      at::cross_entropy_loss(stage.logits(hidden, rows), targets, std::nullopt, at::Reduction::None)
          .to(at::kDouble)
          .sum();
  const at::Tensor loss = stage.loss_sum(hidden, rows, targets);
  EXPECT_EQ(loss.scalar_type(), at::kDouble);
  EXPECT_NEAR(loss.item<double>() / exact.item<double>(), 1, 1e-12);
}

}  // namespace
}  // namespace entrain::engine
