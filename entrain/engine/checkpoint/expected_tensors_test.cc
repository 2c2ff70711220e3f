#include "entrain/engine/checkpoint/expected_tensors.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/manifest.h"
#include "entrain/engine/models/weights.h"

#include "tests/oracle/engine/tiny_checkpoint.h"

namespace entrain::engine {
namespace {

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
