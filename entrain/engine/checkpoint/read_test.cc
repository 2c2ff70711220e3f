#include "entrain/engine/checkpoint/read.h"

#include <algorithm>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/models/weights.h"

#include "tests/oracle/engine/tiny_checkpoint.h"
#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
namespace fs = std::filesystem;

class ReadCheckpoint : public testing::Test {
 protected:
  ReadCheckpoint() {
    tiny::write_checkpoint(folder_.path(), 10);
    manifest_ = tiny::write_checkpoint(folder_.path(), 20);
  }

  [[nodiscard]] fs::path checkpoint(std::int64_t step) const {
    return folder_.path() / checkpoint_name(step);
  }
  [[nodiscard]] std::vector<fs::path> files_of(std::int64_t step) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(checkpoint(step))) {
      files.push_back(entry.path());
    }
    return files;
  }
  // Checks that verify names `file`, and that reading falls back to step 10 and says why.
  void expect_fallback(const fs::path& file, const std::string& what) const {
    const Verification verification = verify_checkpoint(checkpoint(20));
    ASSERT_FALSE(verification.ok()) << file << " " << what;
    EXPECT_EQ(verification.problems[0].file, file) << what;
    const auto usable = newest_usable(folder_.path());
    ASSERT_TRUE(usable.has_value());
    EXPECT_EQ(usable->manifest.step, 10) << file << " " << what;
    ASSERT_EQ(usable->warnings.size(), 1U);
    EXPECT_NE(usable->warnings[0].find(file.filename().string()), std::string::npos)
        << usable->warnings[0];
  }

  oracle::TemporaryFolder folder_;
  Manifest manifest_;
};

TEST_F(ReadCheckpoint, WholeCheckpointsVerifyAndTheLatestIsUsed) {
  for (const std::int64_t step : {10, 20}) {
    const Verification verification = verify_checkpoint(checkpoint(step));
    EXPECT_TRUE(verification.ok()) << verification.problems[0].message;
    EXPECT_EQ(verification.manifest->step, step);
  }
  EXPECT_TRUE(verify_latest(folder_.path()).empty());
  const auto usable = newest_usable(folder_.path());
  EXPECT_EQ(usable->path, checkpoint(20));
  EXPECT_EQ(usable->warnings, std::vector<std::string>{});
  EXPECT_FALSE(newest_usable(folder_.path() / "absent").has_value());
}

TEST_F(ReadCheckpoint, EveryLayoutLoadsTheSameValues) {
  std::map<std::string, at::Tensor> expected;
  for (const LaneSnapshot& lane : tiny::checkpoint_lanes(20)) {
    for (const auto* tensors : {&lane.weights, &lane.moments}) {
      for (const NamedParameter& tensor : *tensors) {
        expected[tensor.name] = tensor.tensor;
      }
    }
  }
  // Every other tensor of both lanes, as no plan would cut them.
  for (const std::size_t parity : {0U, 1U}) {
    std::vector<NamedParameter> targets;
    std::size_t i = 0;
    for (const auto& [name, tensor] : expected) {
      if (i++ % 2 == parity) {
        targets.push_back({name, at::zeros_like(tensor)});
      }
    }
    load_tensors(checkpoint(20), manifest_, targets);
    for (const NamedParameter& target : targets) {
      EXPECT_TRUE(at::equal(target.tensor, expected.at(target.name))) << target.name;
    }
  }
}

TEST_F(ReadCheckpoint, RefusesToLoadWhatIsMissingOrOfAnotherShape) {
  const auto refusal = [&](const std::string& name, const at::Tensor& tensor) {
    return error_of<InvalidInput>([&] {
      load_tensors(checkpoint(20), manifest_, {{name, tensor}});
    });
  };
  EXPECT_NE(refusal("no.such", at::zeros({1})).find("'no.such'"), std::string::npos);
  const std::string name = "model.norm.weight";
  EXPECT_NE(refusal(name, at::zeros({9})).find("[8]"), std::string::npos);
  EXPECT_NE(refusal(name, at::zeros({8}, at::kDouble)).find(name), std::string::npos);
}

TEST_F(ReadCheckpoint, RefusesToLoadWhatIsNoNumber) {
  const std::string name = "model.norm.weight";
  for (const fs::path& file : files_of(20)) {
    if (file.extension() != ".safetensors") {
      continue;
    }
    std::vector<NamedParameter> tensors = read_weights(file).tensors;
    for (const NamedParameter& tensor : tensors) {
      if (tensor.name == name) {
        tensor.tensor[3] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    write_weights(file, tensors);
  }
  const std::string message = error_of<InvalidInput>([&] {
    load_tensors(checkpoint(20), manifest_, {{name, at::zeros({8})}});
  });
  EXPECT_NE(message.find("'model.norm.weight': 1 of 8 values are NaN or infinite"),
            std::string::npos)
      << message;
}

TEST_F(ReadCheckpoint, NamesTheFileOfEveryCutAndEveryFlippedBit) {
  for (const fs::path& file : files_of(20)) {
    const std::string whole = read_file(file);
    const std::size_t stride = std::max<std::size_t>(1, whole.size() / 24);
    for (std::size_t at = 0; at < whole.size(); at += stride) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
      write_file(file, damaged);
      expect_fallback(file, concat("bit flipped in byte ", at));
      write_file(file, whole.substr(0, at));
      expect_fallback(file, concat("cut at ", at));
    }
    fs::remove(file);
    expect_fallback(file, "removed");
    write_file(file, whole + "x");
    expect_fallback(file, "longer");
    write_file(file, whole);
  }
  EXPECT_TRUE(verify_checkpoint(checkpoint(20)).ok());
}

TEST_F(ReadCheckpoint, EveryFlippedBitOfLatestIsSaid) {
  const fs::path latest = folder_.path() / kLatestName;
  const std::string whole = read_file(latest);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    write_file(latest, damaged);
    EXPECT_FALSE(verify_latest(folder_.path()).empty()) << "byte " << at;
    const auto usable = newest_usable(folder_.path());
    EXPECT_FALSE(usable->warnings.empty()) << "byte " << at;
    EXPECT_TRUE(verify_checkpoint(usable->path).ok());
  }
  fs::remove(latest);
  EXPECT_EQ(newest_usable(folder_.path())->manifest.step, 20);
  EXPECT_EQ(newest_usable(folder_.path())->warnings.size(), 1U);
}

TEST_F(ReadCheckpoint, LatestBelongsToOneVeryManifest) {
  write_latest(folder_.path(), {20, std::string(32, '0')});
  EXPECT_NE(verify_latest(folder_.path())[0].message.find("another"), std::string::npos);
  EXPECT_EQ(newest_usable(folder_.path())->manifest.step, 10);
}

TEST_F(ReadCheckpoint, SaysSoWhenNoneIsWhole) {
  for (const std::int64_t step : {10, 20}) {
    fs::resize_file(checkpoint(step) / kManifestName, 100);
  }
  const std::string message = error_of<SystemFailure>([&] { newest_usable(folder_.path()); });
  EXPECT_NE(message.find(checkpoint_name(10)), std::string::npos) << message;
  EXPECT_NE(message.find(checkpoint_name(20)), std::string::npos) << message;
}

// What was listed is whole, yet a lane's part never got into the manifest.
TEST_F(ReadCheckpoint, MissesTensorsThatTheModelNeeds) {
  Manifest manifest = manifest_;
  const CheckpointTensor dropped = manifest.lanes[1].tensors.back();
  manifest.lanes.pop_back();
  write_file(checkpoint(20) / kManifestName, encode(manifest));
  const Verification verification = verify_checkpoint(checkpoint(20));
  ASSERT_EQ(verification.problems.size(), manifest_.lanes[1].tensors.size());
  EXPECT_NE(verification.problems[0].message.find("is missing"), std::string::npos);
  manifest = manifest_;
  manifest.lanes[1].tensors.back().info.shape = {1};
  manifest.lanes[0].tensors.push_back(dropped);
  write_file(checkpoint(20) / kManifestName, encode(manifest));
  std::string messages;
  for (const CheckpointProblem& problem : verify_checkpoint(checkpoint(20)).problems) {
    messages += problem.message + "\n";
  }
  EXPECT_NE(messages.find("holds other tensors than the manifest lists"), std::string::npos);
  EXPECT_NE(messages.find("written twice"), std::string::npos) << messages;
}

TEST_F(ReadCheckpoint, KnowsItsPlace) {
  fs::rename(checkpoint(20), checkpoint(30));
  EXPECT_NE(verify_checkpoint(checkpoint(30)).problems.at(0).message.find("of step 20"),
            std::string::npos);
}

TEST_F(ReadCheckpoint, FindsAPlaceByEveryPathThatAUserMayGive) {
  EXPECT_EQ(checkpoint_place(checkpoint(10)).checkpoint, checkpoint(10));
  EXPECT_EQ(checkpoint_place(folder_.path()).folder, folder_.path());
  EXPECT_EQ(checkpoint_place(folder_.path() / "").folder, folder_.path());
  const oracle::TemporaryFolder run;
  tiny::write_checkpoint(run.path() / kCheckpointsName, 5);
  EXPECT_EQ(checkpoint_place(run.path()).folder, run.path() / kCheckpointsName);
  EXPECT_EQ(usable_at(run.path()).manifest.step, 5);
  EXPECT_THROW(checkpoint_place(run.path() / "absent"), InvalidInput);
  fs::create_directories(run.path() / "empty");
  EXPECT_THROW(checkpoint_place(run.path() / "empty"), InvalidInput);
}

TEST_F(ReadCheckpoint, NeverReplacesOneThatWasNamed) {
  fs::resize_file(checkpoint(20) / "weights-lane-00001.safetensors", 50);
  const std::string message = error_of<SystemFailure>([&] { usable_at(checkpoint(20)); });
  EXPECT_NE(message.find("weights-lane-00001.safetensors: 50 bytes"), std::string::npos) << message;
  EXPECT_EQ(usable_at(checkpoint(10)).manifest.step, 10);
}

TEST_F(ReadCheckpoint, ExportsTheWeightsInTheModelsOrder) {
  const fs::path file = folder_.path() / "model.safetensors";
  const std::size_t count = export_weights(checkpoint(20), manifest_, file);
  const WeightFile exported = read_weights(file);
  EXPECT_EQ(exported.metadata.at("format"), "pt");
  std::vector<NamedParameter> expected;
  for (const LaneSnapshot& lane : tiny::checkpoint_lanes(20)) {
    expected.insert(expected.end(), lane.weights.begin(), lane.weights.end());
  }
  ASSERT_EQ(exported.tensors.size(), expected.size());
  EXPECT_EQ(count, expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(exported.tensors[i].name, expected[i].name);
    EXPECT_TRUE(at::equal(exported.tensors[i].tensor, expected[i].tensor)) << expected[i].name;
  }
}

std::map<std::string, TensorInfo> by_name(const std::vector<TensorInfo>& tensors) {
  std::map<std::string, TensorInfo> result;
  for (const TensorInfo& info : tensors) {
    EXPECT_TRUE(result.emplace(info.name, info).second) << info.name << " twice";
  }
  return result;
}

TEST(ExpectedTensors, AreWhatLanesOfTheModelWrite) {
  std::vector<TensorInfo> written;
  for (const LaneSnapshot& lane : tiny::checkpoint_lanes(1)) {
    for (const auto& tensors : {lane.weights, lane.moments}) {
      for (const NamedParameter& tensor : tensors) {
        written.push_back(info_of(tensor));
      }
    }
  }
  EXPECT_EQ(by_name(expected_tensors(tiny::checkpoint_model())), by_name(written));
}

TEST(ExpectedTensors, HoldMomentsOfWhatIsTrainedAlone) {
  ModelSpec model = tiny::checkpoint_model();
  model.encoders[0].projector_frozen = true;
  const auto tensors = by_name(expected_tensors(model));
  int moments = 0;
  for (const auto& [name, info] : tensors) {
    if (!is_moment(name)) {
      const bool trained = !name.starts_with("visual.");
      for (const std::string_view suffix : kMomentSuffixes) {
        EXPECT_EQ(tensors.contains(concat(name, suffix)), trained) << name;
      }
    } else {
      ++moments;
    }
  }
  EXPECT_GT(moments, 0);
}

TEST(ExpectedTensors, HoldATiedTableOnce) {
  ModelSpec model = tiny::checkpoint_model();
  const auto untied = by_name(expected_tensors(model));
  model.llm.tie_word_embeddings = true;
  const auto tied = by_name(expected_tensors(model));
  EXPECT_TRUE(untied.contains("lm_head.weight"));
  EXPECT_FALSE(tied.contains("lm_head.weight"));
  EXPECT_TRUE(tied.contains("model.embed_tokens.weight"));
  EXPECT_EQ(tied.size() + 3, untied.size());  // with both moments
}

}  // namespace
}  // namespace entrain::engine
