#include "entrain/engine/pipeline/tied_table.h"

#include <gtest/gtest.h>

#include "tests/oracle/engine/tiny_step.h"

namespace entrain::engine {
namespace {

// Two replicas of an encoder and two LLM lanes: the first of those has the table, the last a copy.
class TiedTables : public testing::Test {
 protected:
  static constexpr int kFirst = 1;
  static constexpr int kLast = 2;
  static constexpr int kLanes = 3;

  TiedTables() : step_(tiny::make_step({.stages = {1, 2}, .replicas = 2})) {
    step_.model.llm.tie_word_embeddings = true;
  }

  struct Lane {
    Comm& comm;
    int replica;
    int lane;
    LaneStages stages;
    TiedTable tied;
    [[nodiscard]] at::Tensor table() const { return stages.llm(lane == kFirst ? 0 : 1).table(); }
  };

  template <class Body>
  void on_every_lane(at::ScalarType precision, const Body& body) {
    ThreadCommGroup group(2 * kLanes, std::chrono::seconds(20));
    run_ranks(group, [&](int rank) {
      const int replica = rank / kLanes;
      const int index = rank % kLanes;
      LaneStages stages(step_.model, step_.plan, index, {.seed = 3});
      TiedTable tied(step_.model, step_.plan, {replica, index}, stages, precision);
      Lane lane{group.comm(rank), replica, index, std::move(stages), std::move(tied)};
      body(lane);
    });
  }

  tiny::Step step_;
};

TEST_F(TiedTables, TheLastLaneGetsTheFirstOnesOfItsReplica) {
  on_every_lane(at::kFloat, [](Lane& lane) {
    if (lane.lane == kFirst) {
      lane.table().detach().fill_(10 + lane.replica);
    }
    lane.tied.share(lane.comm);
    if (lane.lane != 0) {
      EXPECT_TRUE(at::equal(lane.table(), at::full_like(lane.table(), 10 + lane.replica)));
    }
  });
}

TEST_F(TiedTables, TheFirstLaneGetsTheSumOfBothGradientsAndTheCopysGoes) {
  on_every_lane(at::kFloat, [](Lane& lane) {
    if (lane.lane == kFirst && lane.replica == 0) {  // elsewhere nothing reached the embedding
      lane.table().mutable_grad() = at::full_like(lane.table(), 2.0F).detach();
    } else if (lane.lane == kLast) {
      lane.table().mutable_grad() = at::full_like(lane.table(), 5 + lane.replica).detach();
    }
    lane.tied.give_gradient(lane.comm);
    if (lane.lane == kFirst) {
      const int sum = lane.replica == 0 ? 7 : 6;
      EXPECT_TRUE(at::equal(lane.table().grad(), at::full_like(lane.table(), sum).detach()));
    } else if (lane.lane == kLast) {
      EXPECT_FALSE(lane.table().grad().defined());
    }
  });
}

// The copy's gradient lies in no buffer of its lane, so what happens to those must happen to it.
TEST_F(TiedTables, TheCopysGradientIsScaledAndClearedAndNoOther) {
  on_every_lane(at::kFloat, [](Lane& lane) {
    lane.tied.scale_gradient(3);  // where there is none yet
    if (lane.lane == 0) {
      lane.tied.clear_gradient();
      return;
    }
    lane.table().mutable_grad() = at::full_like(lane.table(), 2.0F).detach();
    const at::Tensor before = lane.table().grad();
    lane.tied.scale_gradient(3);
    const int expected = lane.lane == kLast ? 6 : 2;
    EXPECT_TRUE(at::equal(before, at::full_like(before, expected)));
    lane.tied.clear_gradient();
    EXPECT_EQ(lane.table().grad().defined(), lane.lane == kFirst);
  });
}

TEST_F(TiedTables, ACopyIsOfTheRunsPrecisionAndItsGradientOfFloat32) {
  on_every_lane(at::kBFloat16, [](Lane& lane) {
    if (lane.lane == kLast) {
      EXPECT_EQ(lane.table().scalar_type(), at::kBFloat16);
      (lane.table().sum() * 2).backward();
      EXPECT_EQ(lane.table().grad().scalar_type(), at::kFloat);
    }
  });
}

TEST_F(TiedTables, NothingIsExchangedWhereNothingIsTiedOrOneLaneHasBoth) {
  ThreadCommGroup group(3);
  tiny::Step untied = tiny::make_step({.stages = {1, 2}});
  tiny::Step one_lane = tiny::make_step({.stages = {1, 2}, .single_lane = true});
  one_lane.model.llm.tie_word_embeddings = true;
  for (const auto& [step, lane] : {std::pair(&untied, 2), std::pair(&one_lane, 0)}) {
    const LaneStages stages(step->model, step->plan, lane, {});
    TiedTable tied(step->model, step->plan, {0, lane}, stages);
    const at::Tensor table =
        step == &untied ? stages.llm(1).parameters().back().tensor : stages.llm(1).table();
    table.mutable_grad() = at::ones_like(table).detach();
    tied.share(group.comm(0));  // alone, so it would wait
    tied.give_gradient(group.comm(0));
    tied.scale_gradient(2);
    tied.clear_gradient();
    EXPECT_TRUE(at::equal(table.grad(), at::ones_like(table).detach()));
  }
}

}  // namespace
}  // namespace entrain::engine
