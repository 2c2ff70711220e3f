#include "entrain/engine/checkpoint/manifest.h"

#include <set>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/checkpoint/read.h"

#include "tests/oracle/engine/tiny_checkpoint.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

Manifest sample_manifest() {
  Manifest manifest;
  manifest.step = 20;
  manifest.entrain_version = "0.1.0";
  manifest.torch_version = "2";
  manifest.run = tiny::checkpoint_run();
  LaneFiles lane;
  lane.files = {{"weights.safetensors", 77, "d"}};
  lane.tensors = {{{"a.weight", "F32", {2, 3}}, "weights.safetensors"},
                  {{"b", "I64", {}}, "weights.safetensors"}};
  manifest.lanes = {lane};
  return manifest;
}

TEST(CheckpointManifest, ReadsBackWhatWasWritten) {
  const Manifest manifest = sample_manifest();
  const Manifest read = decode_manifest(encode(manifest), "m.json");
  EXPECT_EQ(encode(read), encode(manifest));
  EXPECT_EQ(digest(read), digest(manifest));
  EXPECT_EQ(read.step, 20);
  EXPECT_EQ(read.run.seed, 3U);
  EXPECT_EQ(read.run.model, manifest.run.model);
  EXPECT_EQ(read.lanes[0].tensors[0].info, manifest.lanes[0].tensors[0].info);
}

TEST(CheckpointManifest, CountsSkippedStepsOnlyWhereThereAreAny) {
  Manifest manifest = sample_manifest();
  EXPECT_EQ(encode(manifest).find("skipped"), std::string::npos);
  manifest.skipped = {3, 3};
  EXPECT_EQ(encode(manifest).find("skipped_updates"), std::string::npos);
  EXPECT_EQ(decode_manifest(encode(manifest), "m.json").skipped.steps, 3);
  EXPECT_EQ(decode_manifest(encode(manifest), "m.json").skipped.updates, 3);
  manifest.skipped.updates = 1;
  EXPECT_EQ(decode_manifest(encode(manifest), "m.json").skipped.steps, 3);
  EXPECT_EQ(decode_manifest(encode(manifest), "m.json").skipped.updates, 1);
  for (const SkipCounts& wrong : {SkipCounts{21, 21}, SkipCounts{3, 4}, SkipCounts{3, -1}}) {
    manifest.skipped = wrong;
    EXPECT_THROW(decode_manifest(encode(manifest), "m.json"), InvalidInput);
  }
}

TEST(CheckpointManifest, RefusesEveryFlippedBitAndEveryCut) {
  const std::string content = encode(sample_manifest());
  for (std::size_t i = 0; i < content.size(); ++i) {
    std::string damaged = content;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    EXPECT_THROW(decode_manifest(damaged, "m.json"), InvalidInput) << "byte " << i;
    EXPECT_THROW(decode_manifest(content.substr(0, i), "m.json"), InvalidInput) << "cut at " << i;
  }
  EXPECT_THROW(decode_manifest(content + " ", "m.json"), InvalidInput);
}

TEST(CheckpointManifest, RefusesOtherVersionsAndNamesThatLeadOut) {
  Manifest manifest = sample_manifest();
  for (const char* name : {"../weights", "/etc/passwd", "", ".."}) {
    manifest.lanes[0].files[0].name = name;
    const std::string message =
        error_of<InvalidInput>([&] { decode_manifest(encode(manifest), "m.json"); });
    EXPECT_NE(message.find("plain name"), std::string::npos) << message;
  }
}

// The stages build their parameters in earnest here, on the meta device there.
TEST(CheckpointManifest, ExpectsEveryParameterAndTheMomentsOfTrainedOnes) {
  std::set<std::string> names;
  std::size_t moments = 0;
  for (const TensorInfo& tensor : expected_tensors(tiny::checkpoint_model())) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    moments += is_moment(tensor.name) ? 1 : 0;
  }
  std::size_t weights = 0;
  std::size_t trained = 0;
  for (const LaneSnapshot& lane : tiny::checkpoint_lanes(1)) {
    weights += lane.weights.size();
    trained += lane.moments.size();
    for (const auto* tensors : {&lane.weights, &lane.moments}) {
      for (const NamedParameter& tensor : *tensors) {
        EXPECT_TRUE(names.contains(tensor.name)) << tensor.name;
      }
    }
  }
  EXPECT_EQ(moments, trained);
  EXPECT_EQ(names.size(), weights + trained);
  EXPECT_LT(trained, 2 * weights) << "the encoder is frozen";
}

}  // namespace
}  // namespace entrain::engine
