#include "entrain/engine/pipeline/unit_compute.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "entrain/engine/pipeline/chunk_store.h"

#include "tests/oracle/engine/tiny_step.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using tiny::SyntheticData;

// Sample 0 has two images, sample 1 none, sample 2 one. The encoder runs sample 2's image and the
// second of sample 0 in slot 0, the first of sample 0 in slot 1; the LLM runs 2, 0, 1 in slot 1.
class UnitComputeTest : public testing::Test {
 protected:
  UnitComputeTest() {
    work_ = {tiny::sample_of({{1, 2}, {1, 1}}, 9, 4),
             tiny::sample_of({}, 6, 2),
             tiny::sample_of({{2, 1}}, 7, 3)};
    plan_ = even_plan(model_, {1, 3}, 1, 2);
    costs_ = step_costs(model_, plan_, analytic_profile(model_, device_model("cpu-2core")), work_);
    ReplicaAssignment& replica = assignment_.replicas.emplace_back();
    replica.num_slots = 2;
    replica.modules = {{{{2, 0}, {0, 1}}, {{0, 0}}}, {{}, {{2}, {0}, {1}}}};
    program_ = build_program(plan_, assignment_, costs_, "gpipe");
    const std::vector<StageRef> all = {{0, 0}, {1, 0}, {1, 1}, {1, 2}};
    Plan one_lane = plan_;
    one_lane.lanes = {all};
    stages_ = LaneStages(model_, one_lane, 0, options_);
  }

  [[nodiscard]] StepSizes sizes() const { return {model_, program_, costs_}; }
  [[nodiscard]] const Group& group(const UnitKey& unit) const {
    return group_of(program_.replicas[0], unit);
  }

  UnitInput read(const UnitKey& unit, StepData& data) {
    UnitInput input;
    read_data(sizes(), ids_, unit, group(unit), data, input);
    if (unit.module == 1) {
      input.items = chunks_.items_of(unit.stage, group(unit), /*gradients=*/false);
    }
    return input;
  }

  at::Tensor forward(const UnitKey& unit, UnitInput& input) {
    if (unit.module == 0) {
      const EncoderInput rows = encoder_input(sizes(), options_, unit, group(unit), input);
      return stages_.encoder(0, unit.stage).forward(rows.hidden, rows.grids);
    }
    const LlmStage& stage = stages_.llm(unit.stage);
    return stage.decode(llm_input(sizes(), stage, options_, unit, group(unit), input), input.items);
  }

  double loss_of(const UnitKey& unit, UnitInput& input) {
    return losses_of(stages_.llm(unit.stage), options_, input, forward(unit, input)).item<double>();
  }

  // Features of one image, by the encoder alone.
  at::Tensor features_of(int sample, int image) {
    const SegmentData segment = data_.segment(0, sample, image);
    const SegmentGrid grid{segment.rows, segment.columns};
    return stages_.encoder(0, 0).forward(segment.input, std::span(&grid, 1));
  }

  // The features the LLM's slot gets: each encoder group as one part, rows in its own order.
  std::vector<FeaturePart> feature_parts() {
    std::vector<FeaturePart> parts;
    for (int slot = 0; slot < 2; ++slot) {
      const UnitKey unit{0, 0, slot, 0};
      FeaturePart part;
      part.unit = unit;
      part.items = group(unit).items;
      std::vector<at::Tensor> rows;
      for (const WorkItem& item : part.items) {
        rows.push_back(features_of(item.sample, item.segment));
      }
      part.leaf = at::cat(rows);
      parts.push_back(part);
    }
    return parts;
  }

  // What the LLM should see at its first stage: sample by sample, without packing.
  at::Tensor expected_hidden(int sample) {
    const TokenizedSample& text = data_.text(sample);
    at::Tensor hidden =
        stages_.llm(0).embed(at::tensor(text.ids, at::kLong), at::Tensor(), at::Tensor()).clone();
    for (std::size_t image = 0; image < text.feature_begin.size(); ++image) {
      const at::Tensor features = features_of(sample, static_cast<int>(image));
      hidden.narrow(0, text.feature_begin[image], features.size(0)).copy_(features);
    }
    const std::int64_t length = std::ssize(text.ids);
    return stages_.llm(0).decode(hidden, std::span(&length, 1));
  }

  const at::NoGradGuard no_grad_;
  StageOptions options_{.seed = 3};
  ModelSpec model_ = tiny::tiny_model();
  std::vector<SampleWork> work_;
  Plan plan_;
  StepCosts costs_;
  StepAssignment assignment_;
  Program program_;
  LaneStages stages_;
  ChunkStore chunks_{{model_, program_, costs_}};
  std::vector<std::string> ids_ = {"zero", "one", "two"};
  SyntheticData data_{{tiny::sample_of({{1, 2}, {1, 1}}, 9, 4),
                       tiny::sample_of({}, 6, 2),
                       tiny::sample_of({{2, 1}}, 7, 3)}};
};

TEST_F(UnitComputeTest, StagesReadWhatTheyUse) {
  const UnitInput encoder = read({0, 0, 0, 0}, data_);
  ASSERT_EQ(encoder.segments.size(), 2U);
  EXPECT_TRUE(at::equal(encoder.segments[0].input, data_.segment(0, 2, 0).input));
  EXPECT_TRUE(at::equal(encoder.segments[1].input, data_.segment(0, 0, 1).input));
  EXPECT_TRUE(encoder.texts.empty());
  for (const int stage : {0, 2}) {
    const UnitInput llm = read({1, stage, 1, 0}, data_);
    EXPECT_TRUE(llm.segments.empty());
    EXPECT_EQ(
        llm.texts,
        (std::vector<const TokenizedSample*>{&data_.text(2), &data_.text(0), &data_.text(1)}));
  }
  EXPECT_TRUE(read({1, 1, 1, 0}, data_).texts.empty());
}

TEST_F(UnitComputeTest, RefusesSegmentsThatAreNotAsPlanned) {
  std::vector<SampleWork> other = work_;
  other[0] = tiny::sample_of({{1, 2}, {1, 2}}, 9, 4);
  SyntheticData data(other);
  const std::string message = error_of<InternalError>([&] { read({0, 0, 0, 0}, data); });
  EXPECT_NE(message.find("sample 'zero' segment 1: 2 x 4 patches, planned with 2 x 2"),
            std::string::npos)
      << message;
}

TEST_F(UnitComputeTest, EncoderSlotsArePackedInGroupOrder) {
  UnitInput input = read({0, 0, 0, 0}, data_);
  EXPECT_TRUE(at::allclose(
      forward({0, 0, 0, 0}, input), at::cat({features_of(2, 0), features_of(0, 1)}), 1e-5, 1e-6));
  EXPECT_TRUE(input.segments.empty()) << "pixels are kept after use";
}

TEST_F(UnitComputeTest, FeaturesReachTheirPlacesWhereverTheyWereEncoded) {
  const UnitKey unit{1, 0, 1, 0};
  UnitInput input = read(unit, data_);
  input.features = feature_parts();
  const at::Tensor expected = at::cat({expected_hidden(2), expected_hidden(0), expected_hidden(1)});
  EXPECT_TRUE(at::allclose(forward(unit, input), expected, 1e-5, 1e-6));
}

TEST_F(UnitComputeTest, NoticesFeaturesThatAreMissing) {
  const UnitKey unit{1, 0, 1, 0};
  UnitInput input = read(unit, data_);
  input.features = feature_parts();
  input.features.pop_back();
  const std::string message = error_of<InternalError>([&] { forward(unit, input); });
  EXPECT_NE(message.find("got 3 feature rows, its samples have 5"), std::string::npos) << message;
}

TEST_F(UnitComputeTest, LossIsSummedOverTargets) {
  const UnitKey unit{1, 2, 1, 0};
  UnitInput input = read(unit, data_);
  const std::vector<int> order = {2, 0, 1};
  std::vector<at::Tensor> hidden;
  double expected = 0;
  for (const int sample : order) {
    const TokenizedSample& text = data_.text(sample);
    const std::int64_t length = std::ssize(text.ids);
    const std::int64_t targets = length - text.targets.front().begin;
    hidden.push_back(at::randn({length, model_.llm.hidden}));
    const at::Tensor decoded = stages_.llm(2).decode(hidden.back(), std::span(&length, 1));
    expected +=
        stages_.llm(2)
            .loss_sum(
                decoded,
                at::arange(text.targets.front().begin - 1, length - 1, at::kLong),
                at::tensor(text.ids, at::kLong).narrow(0, text.targets.front().begin, targets))
            .item<double>();
  }
  input.hidden = at::cat(hidden);
  EXPECT_NEAR(loss_of(unit, input), expected, 1e-4);
}

// Sample 0 cut in two, its second chunk beside whole samples. Its images' features stand at tokens
// [1, 3) and 4, its targets from token 8 on.
class ChunkedUnitTest : public UnitComputeTest {
 protected:
  void cut_at(std::int64_t token) {
    assignment_.replicas[0].modules = {{{{0, 0}, {0, 1}, {2, 0}}, {}},
                                       {{{0, -1, 0, token}}, {{1}, {0, -1, token, 12}, {2}}}};
    program_ = build_program(plan_, assignment_, costs_, "gpipe");
  }

  // Both chunks get all features, as they would where the first has taken them.
  std::vector<FeaturePart> all_features() {
    static const Slot items = {{0, 0}, {2, 0}, {0, 1}};
    FeaturePart part;
    part.unit = {0, 0, 0, 0};
    part.items = items;
    part.leaf = at::cat({features_of(0, 0), features_of(2, 0), features_of(0, 1)});
    return {part};
  }
};

TEST_F(ChunkedUnitTest, FeaturesReachTheChunkThatHoldsTheirTokens) {
  for (const std::int64_t token : {1, 2, 3, 4, 5, 11}) {
    cut_at(token);
    std::vector<at::Tensor> rows;
    for (const int slot : {0, 1}) {
      const UnitKey unit{1, 0, slot, 0};
      UnitInput input = read(unit, data_);
      input.features = all_features();
      const at::Tensor hidden = forward(unit, input);
      chunks_.after_forward(unit.stage, group(unit));
      const std::int64_t before = slot == 0 ? 0 : work_[1].llm_tokens;
      rows.push_back(hidden.narrow(0, before, slot == 0 ? token : 12 - token));
      if (slot == 1) {
        EXPECT_TRUE(at::allclose(hidden.narrow(0, 0, before), expected_hidden(1), 1e-5, 1e-6));
        EXPECT_TRUE(at::allclose(hidden.narrow(0, before + 12 - token, work_[2].llm_tokens),
                                 expected_hidden(2),
                                 1e-5,
                                 1e-6));
      }
    }
    EXPECT_TRUE(at::allclose(at::cat(rows), expected_hidden(0), 1e-5, 1e-6)) << "cut at " << token;
  }
}

TEST_F(ChunkedUnitTest, NoticesFeaturesThatAreMissing) {
  cut_at(2);
  const UnitKey unit{1, 0, 0, 0};
  UnitInput input = read(unit, data_);
  const std::string message = error_of<InternalError>([&] { forward(unit, input); });
  EXPECT_NE(message.find("got 0 feature rows, its samples have 1"), std::string::npos) << message;
}

TEST_F(ChunkedUnitTest, ATargetAfterTheCutCountsAtTheRowBeforeIt) {
  const std::vector<at::Tensor> hidden = {at::randn({12, model_.llm.hidden}),
                                          at::randn({work_[1].llm_tokens, model_.llm.hidden}),
                                          at::randn({work_[2].llm_tokens, model_.llm.hidden})};
  const auto losses_of = [&](std::int64_t token) {
    cut_at(token);
    const auto loss_of_slot = [&](int slot, at::Tensor rows) {
      const UnitKey unit{1, 2, slot, 0};
      UnitInput input = read(unit, data_);
      input.hidden = std::move(rows);
      return loss_of(unit, input);
    };
    const double first = loss_of_slot(0, hidden[0].narrow(0, 0, token));
    const at::Tensor rest = hidden[0].narrow(0, token, 12 - token);
    return std::pair(first, loss_of_slot(1, at::cat({hidden[1], rest, hidden[2]})));
  };
  const auto before = losses_of(7);
  const auto at_first_target = losses_of(8);
  const auto behind = losses_of(9);
  EXPECT_EQ(before.first, 0);
  EXPECT_GT(at_first_target.first, 0);
  EXPECT_GT(behind.first, at_first_target.first);
  const double whole = before.first + before.second;
  EXPECT_NEAR(at_first_target.first + at_first_target.second, whole, 1e-4);
  EXPECT_NEAR(behind.first + behind.second, whole, 1e-4);
}

}  // namespace
}  // namespace entrain::engine
