#include "entrain/engine/pipeline/lane_stages.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/engine/tiny_step.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

std::vector<std::string> names_of(const std::vector<NamedParameter>& parameters) {
  std::vector<std::string> names;
  for (const NamedParameter& parameter : parameters) {
    names.push_back(parameter.name);
  }
  return names;
}

TEST(LaneStages, HoldTheStagesOfTheirLaneAlone) {
  const tiny::Step step = tiny::make_step({{2, 2}});
  const LaneStages lane(step.model, step.plan, 3, {});
  EXPECT_NO_THROW((void)lane.llm(1));
  const std::string llm = oracle::error_of<InternalError>([&] { (void)lane.llm(0); });
  EXPECT_NE(llm.find("does not host LLM stage 0"), std::string::npos) << llm;
  const std::string encoder = oracle::error_of<InternalError>([&] { (void)lane.encoder(0, 1); });
  EXPECT_NE(encoder.find("stage 1 of module 0"), std::string::npos) << encoder;
  // The plan's layers: the last LLM stage has the head and no embedding.
  const std::vector<std::string> names = names_of(lane.parameters());
  EXPECT_EQ(names.back(), "lm_head.weight");
  EXPECT_EQ(std::count(names.begin(), names.end(), "model.embed_tokens.weight"), 0);
}

TEST(LaneStages, SeveralStagesOfALaneFollowEachOther) {
  const tiny::Step step = tiny::make_step({{1, 2}, 1, true});
  const LaneStages lane(step.model, step.plan, 0, {.seed = 3});
  std::vector<std::string> expected = names_of(lane.encoder(0, 0).parameters());
  for (const int stage : {0, 1}) {
    const std::vector<std::string> more = names_of(lane.llm(stage).parameters());
    expected.insert(expected.end(), more.begin(), more.end());
  }
  EXPECT_EQ(names_of(lane.parameters()), expected);
  // They are the stages' own tensors, so that an optimizer's change is seen by the next forward.
  EXPECT_TRUE(lane.parameters().back().tensor.is_same(lane.llm(1).parameters().back().tensor));
}

TEST(LaneStages, ShareATiedTableOrHoldACopy) {
  for (const bool single : {true, false}) {
    tiny::Step step = tiny::make_step({{1, 2}, 1, single});
    step.model.llm.tie_word_embeddings = true;
    const LaneStages first(step.model, step.plan, single ? 0 : 1, {});
    const LaneStages last(step.model, step.plan, single ? 0 : 2, {});
    const at::Tensor table = first.llm(0).table();
    const at::Tensor head = last.llm(1).table();
    EXPECT_TRUE(at::equal(table, head));
    EXPECT_EQ((single ? first : last).llm(1).table().is_same(table), single);
    const std::vector<std::string> names = names_of(last.parameters());
    EXPECT_EQ(std::count(names.begin(), names.end(), "model.embed_tokens.weight"), single ? 1 : 0);
    EXPECT_EQ(std::count(names.begin(), names.end(), "lm_head.weight"), 0);
  }
}

TEST(LaneStages, KeepFrozenParameters) {
  const tiny::Step step = tiny::make_step({{1, 1}, 1, true, "1f1b", tiny::FrozenPattern::kLlm});
  const LaneStages lane(step.model, step.plan, 0, {});
  for (const NamedParameter& parameter : lane.parameters()) {
    EXPECT_EQ(parameter.tensor.requires_grad(), parameter.name.starts_with("visual."))
        << parameter.name;
  }
}

TEST(LaneStages, APacedLaneHasNone) {
  EXPECT_TRUE(LaneStages().parameters().empty());
  EXPECT_THROW((void)LaneStages().llm(0), InternalError);
}

TEST(LaneStages, PartsAreWhatFreezingNames) {
  for (const tiny::FrozenPattern frozen :
       {tiny::FrozenPattern::kOnlyProjector, tiny::FrozenPattern::kLlm}) {
    const ModelSpec model = tiny::tiny_model(frozen);
    const Plan plan = even_plan(model, {2, 1}, 1, 1);
    std::set<std::string> seen;
    for (int lane = 0; lane < plan.num_lanes(); ++lane) {
      const LaneStages stages(model, plan, lane, {});
      ASSERT_EQ(stages.parts().size(), stages.parameters().size());
      for (std::size_t i = 0; i < stages.parts().size(); ++i) {
        const std::string& part = stages.parts()[i];
        seen.insert(part);
        const bool trains =
            part == "projector" || (part == "vision" && frozen == tiny::FrozenPattern::kLlm);
        EXPECT_EQ(stages.parameters()[i].tensor.requires_grad(), trains)
            << stages.parameters()[i].name;
      }
    }
    EXPECT_EQ(seen, (std::set<std::string>{"llm", "projector", "vision"}));
  }
}

}  // namespace
}  // namespace entrain::engine
