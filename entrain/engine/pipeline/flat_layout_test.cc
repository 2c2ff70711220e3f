#include "entrain/engine/pipeline/flat_layout.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

std::vector<NamedParameter> parameters() {
  return {{"a", at::zeros({5, 3}).set_requires_grad(true)},
          {"frozen", at::zeros({100})},
          {"b", at::zeros({70}).set_requires_grad(true)},
          {"c", at::zeros({1}).set_requires_grad(true)}};
}

TEST(FlatLayout, PlacesTrainedParametersAtAlignedElements) {
  const FlatLayout layout(parameters(), 1);
  ASSERT_EQ(layout.entries().size(), 3U);
  EXPECT_EQ(layout.entries()[0].begin, 0);
  EXPECT_EQ(layout.entries()[1].begin, 32);
  EXPECT_EQ(layout.entries()[2].begin, 128);
  EXPECT_EQ(layout.size(), 160);
  const at::Tensor buffer = at::zeros({160});
  const std::vector<NamedParameter> views = layout.views(buffer, ".x");
  EXPECT_EQ(views[0].name, "a.x");
  EXPECT_EQ(views[0].tensor.sizes(), at::IntArrayRef({5, 3}));
  views[1].tensor.fill_(1);
  EXPECT_EQ(buffer.narrow(0, 32, 70).sum().item<double>(), 70);
  EXPECT_EQ(buffer.sum().item<double>(), 70);
}

TEST(FlatLayout, ShardsAreEqualAndHoldEveryElementOnce) {
  for (const int shards : {1, 2, 3, 4, 7}) {
    const FlatLayout layout(parameters(), shards);
    EXPECT_EQ(layout.shard_size() % FlatLayout::kAlignment, 0) << shards;
    EXPECT_GE(layout.size(), 129);
    at::Tensor seen = at::zeros({layout.size()});
    for (int shard = 0; shard < shards; ++shard) {
      const at::Tensor own = layout.shard_of(seen, shard);
      for (const ShardPiece& piece : layout.pieces(shard)) {
        EXPECT_GE(piece.size, 1);
        own.narrow(0, piece.begin, piece.size).add_(1);
      }
    }
    for (const NamedParameter& view : layout.views(seen)) {
      EXPECT_TRUE(at::equal(view.tensor, at::ones_like(view.tensor))) << view.name;
    }
    EXPECT_EQ(seen.sum().item<double>(), 15 + 70 + 1) << shards;
  }
}

TEST(FlatLayout, OfNothingTrainedIsEmpty) {
  const FlatLayout layout({{"frozen", at::zeros({4})}}, 2);
  EXPECT_EQ(layout.size(), 0);
  EXPECT_TRUE(layout.pieces(1).empty());
}

}  // namespace
}  // namespace entrain::engine
