#include "entrain/engine/pipeline/flat_layout.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

std::vector<NamedParameter> four_parameters() {
  return {{"a", at::zeros({5, 3}).set_requires_grad(true)},
          {"frozen", at::zeros({100})},
          {"b", at::zeros({70}).set_requires_grad(true)},
          {"c", at::zeros({1}).set_requires_grad(true)}};
}

TEST(FlatLayout, PlacesTrainedParametersAtAlignedElements) {
  const FlatLayout layout(four_parameters(), 1);
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
  for (const std::vector<std::size_t>& begins :
       {std::vector<std::size_t>{0}, {0, 2}, {0, 1, 3}, {0, 2, 3}}) {
    for (const int shards : {1, 2, 3, 4, 7}) {
      const FlatLayout layout(four_parameters(), shards, begins);
      EXPECT_EQ(layout.shard_size() % FlatLayout::kAlignment, 0) << shards;
      EXPECT_GE(layout.size(), 129);
      at::Tensor seen = at::zeros({layout.size()});
      for (int shard = 0; shard < shards; ++shard) {
        at::Tensor own = at::zeros({layout.shard_size()});
        for (const ShardPiece& piece : layout.pieces(shard)) {
          EXPECT_GE(piece.size, 1);
          own.narrow(0, piece.begin, piece.size).add_(1);
          EXPECT_EQ(seen.narrow(0, piece.place, piece.size).sum().item<double>(), 0);
        }
        layout.put_shard(own, shard, seen);
        EXPECT_TRUE(at::equal(layout.shard_of(seen, shard), own));
        for (const ShardPiece& piece : layout.pieces(shard)) {
          EXPECT_EQ(seen.narrow(0, piece.place, piece.size).sum().item<double>(), piece.size);
        }
      }
      for (const NamedParameter& view : layout.views(seen)) {
        EXPECT_TRUE(at::equal(view.tensor, at::ones_like(view.tensor))) << view.name;
      }
      EXPECT_EQ(seen.sum().item<double>(), 15 + 70 + 1) << shards;
    }
  }
}

TEST(FlatLayout, EveryShardHasItsSliceOfEveryBucket) {
  const FlatLayout layout(four_parameters(), 3, {0, 1, 3});
  ASSERT_EQ(layout.buckets().size(), 3U);
  EXPECT_EQ(layout.buckets()[0].slice_size, 32);
  EXPECT_EQ(layout.buckets()[1].slice_size, 32) << "70 elements, and nothing frozen";
  EXPECT_EQ(layout.buckets()[2].begin, 2 * 96);
  EXPECT_EQ(layout.buckets()[2].shard_begin, 64);
  EXPECT_EQ(layout.entries()[2].begin, 2 * 96);
  EXPECT_EQ(layout.size(), 3 * 96);
  const at::Tensor buffer = at::arange(288);
  EXPECT_TRUE(at::equal(layout.slice_of(buffer, layout.buckets()[1], 2), at::arange(160, 192)));
  std::vector<at::Tensor> shards;
  for (int shard = 0; shard < 3; ++shard) {
    shards.push_back(layout.shard_of(buffer, shard));
  }
  EXPECT_TRUE(at::equal(layout.joined(at::cat(shards)), buffer));
  EXPECT_EQ(FlatLayout(four_parameters(), 2, {0, 1, 2}).buckets().size(), 2U) << "one is frozen";
}

TEST(BucketBegins, CutEveryStageIntoAboutEqualParts) {
  std::vector<NamedParameter> equal;
  for (int i = 0; i < 16; ++i) {
    equal.push_back({"p", at::zeros({10}).set_requires_grad(true)});
  }
  EXPECT_EQ(bucket_begins(equal, {0, 8}, 4), (std::vector<std::size_t>{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(bucket_begins(equal, {0, 2}, 4), (std::vector<std::size_t>{0, 1, 2, 5, 9, 12}));
  EXPECT_EQ(bucket_begins(equal, {0}, 1), std::vector<std::size_t>{0});
  // Frozen parameters count for nothing; one that is larger than a part has one of its own.
  equal[0].tensor = at::zeros({1000});
  equal[5].tensor = at::zeros({1000}).set_requires_grad(true);
  EXPECT_EQ(bucket_begins(equal, {0, 8}, 4), (std::vector<std::size_t>{0, 1, 5, 6, 8, 10, 12, 14}));
}

TEST(FlatLayout, OfNothingTrainedIsEmpty) {
  const FlatLayout layout({{"frozen", at::zeros({4})}}, 2);
  EXPECT_EQ(layout.size(), 0);
  EXPECT_TRUE(layout.pieces(1).empty());
}

}  // namespace
}  // namespace entrain::engine
