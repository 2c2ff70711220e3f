// Twenty training steps on real images under a pipeline, against plain training in one process.
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "tests/oracle/engine/real_run.h"

namespace entrain::engine {
namespace {

constexpr const char* kVision = R"(
[vision]
num_layers = 2
hidden = 32
num_heads = 2
intermediate = 64
patch_size = 14
merge_size = 2
min_pixels = 784
max_pixels = 50176
)";

TEST(VlmSmall, TwentyStepsUnderAPipelineEqualPlainTraining) {
  const std::vector<std::filesystem::path> shards = oracle::shards_of("vlm-small");
  if (shards.empty()) {
    GTEST_SKIP() << "the vlm-small data set is not beside the repository";
  }
  oracle::expect_training(oracle::TemporaryFolder(), kVision, shards, {{"vision", 1}, {"llm", 2}});
}

}  // namespace
}  // namespace entrain::engine
