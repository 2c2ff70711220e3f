// image_tiles() against its plain rewrite in tests/oracle.
#include <gtest/gtest.h>

#include "entrain/core/base/random.h"

#include "tests/oracle/slow_tiles.h"

namespace entrain {
namespace {

// From 1 to 6,000, small ones as often as large ones; now and then multiples of a tile.
int random_side(Rng& rng, int tile) {
  if (rng.below(5) == 0) {
    return tile * (1 + static_cast<int>(rng.below(6)));
  }
  const int most = 1 << (1 + rng.below(12));
  return 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(most + most / 2)));
}

TEST(ImageTiles, EqualThoseOfThePlainRewrite) {
  constexpr std::uint64_t kSeed = 11;
  Rng rng(kSeed);
  int tiled = 0;
  for (int i = 0; i < 5'000; ++i) {
    EncoderSpec encoder;
    encoder.patch_size = 4 + static_cast<int>(rng.below(13));
    encoder.table_side = 2 + static_cast<int>(rng.below(30));
    const int tile = encoder.patch_size * encoder.table_side;
    encoder.tiling.kind = static_cast<TilingSpec::Kind>(rng.below(4));
    encoder.tiling.longest_edge = 1 + static_cast<int>(rng.below(4096));
    encoder.tiling.split = rng.below(8) > 0;
    encoder.tiling.min_tiles = 1 + static_cast<int>(rng.below(4));
    encoder.tiling.max_tiles = encoder.tiling.min_tiles + static_cast<int>(rng.below(20));
    for (std::uint64_t canvas = 0; canvas < 1 + rng.below(9); ++canvas) {
      encoder.tiling.canvases.push_back(
          {1 + static_cast<int>(rng.below(6)), 1 + static_cast<int>(rng.below(6))});
    }
    const ImageSize image = {random_side(rng, tile), random_side(rng, tile)};
    const ImageTiles found = image_tiles(encoder, image);
    const ImageTiles expected = oracle::slow_image_tiles(encoder, image);
    ASSERT_EQ(found, expected) << "seed " << kSeed << ", case " << i << ": " << image.width << "x"
                               << image.height << " in tiles of " << tile << ", longest edge "
                               << encoder.tiling.longest_edge << ", " << encoder.tiling.min_tiles
                               << " to " << encoder.tiling.max_tiles << " tiles: " << found.rows
                               << " x " << found.columns << ", expected " << expected.rows << " x "
                               << expected.columns;
    tiled += found.whole ? 1 : 0;
  }
  EXPECT_GT(tiled, 1'000);
}

}  // namespace
}  // namespace entrain
