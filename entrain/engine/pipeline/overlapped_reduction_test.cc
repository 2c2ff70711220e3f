#include "entrain/engine/pipeline/overlapped_reduction.h"

#include <algorithm>
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/engine/tiny_step.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

// Two replicas of one lane with a vision stage and two LLM stages, four buckets each.
class OverlappedReductions : public testing::Test {
 protected:
  static constexpr std::size_t kStages = 3;
  static constexpr std::size_t kBuckets = kStages * kReduceBuckets;

  struct Rank {
    Rank(const tiny::Step& step, Comm& lane_comm, const std::vector<std::string>& late_names)
        : stages(step.model, step.plan, 0, {.seed = 3}),
          gradients(stages.parameters(),
                    2,
                    lane_comm.rank(),
                    0,
                    bucket_begins(stages.parameters(), stages.stage_begins(), kReduceBuckets)),
          expected(copies_of(stages.parameters())),
          expected_gradients(expected),
          comm(lane_comm),
          reduction(stages, late_of(late_names), gradients, comm, {0, 1}) {}

    static std::vector<NamedParameter> copies_of(const std::vector<NamedParameter>& parameters) {
      std::vector<NamedParameter> copies;
      for (const NamedParameter& parameter : parameters) {
        copies.push_back(
            {parameter.name, parameter.tensor.detach().clone().set_requires_grad(true)});
      }
      return copies;
    }
    [[nodiscard]] std::vector<char> late_of(const std::vector<std::string>& names) const {
      std::vector<char> late;
      for (const NamedParameter& parameter : stages.parameters()) {
        late.push_back(std::count(names.begin(), names.end(), parameter.name) > 0 ? 1 : 0);
      }
      return late;
    }
    [[nodiscard]] std::size_t begin_of(std::size_t stage) const {
      return stage < kStages ? stages.stage_begins()[stage] : stages.parameters().size();
    }
    // One parameter's gradient after another, from the stage's last one to its first.
    [[nodiscard]] at::Tensor chain(const std::vector<NamedParameter>& parameters,
                                   std::size_t stage) const {
      at::Tensor value = at::full({}, 1.0 + comm.rank());
      for (std::size_t i = begin_of(stage); i < begin_of(stage + 1); ++i) {
        value = value * parameters[i].tensor.square().mean().add(0.5);
      }
      return value;
    }
    void run_backward(std::size_t stage) {
      chain(expected, stage).backward();
      chain(stages.parameters(), stage).backward();
    }
    // What a plain sum over all elements has in this rank's pieces.
    void expect_sums() {
      expected_gradients.reduce(comm, {0, 1});
      gradients.reduce(comm, {0, 1});
      std::map<std::string, at::Tensor> sums;
      for (const NamedParameter& parameter : expected) {
        sums[parameter.name] = parameter.tensor.grad().flatten();
      }
      for (const ShardPiece& piece : gradients.layout().pieces(comm.rank())) {
        EXPECT_TRUE(at::equal(
            gradients.buffer().narrow(0, piece.place, piece.size),
            sums.at(piece.entry->name).narrow(0, piece.place - piece.entry->begin, piece.size)))
            << piece.entry->name;
      }
      comm.barrier({0, 1});
    }

    LaneStages stages;
    LaneGradients gradients;
    std::vector<NamedParameter> expected;  // summed at the end, without buckets
    LaneGradients expected_gradients;
    Comm& comm;
    OverlappedReduction reduction;
  };

  void on_both_ranks(const std::function<void(Rank&)>& body,
                     const std::vector<std::string>& late = {}) {
    const tiny::Step step = tiny::make_step({{1, 2}, 2, true});
    ThreadCommGroup group(2, std::chrono::seconds(20));
    run_ranks(group, [&](int rank) {
      Rank own(step, group.comm(rank), late);
      ASSERT_EQ(own.gradients.buckets_to_send(), kBuckets);
      body(own);
    });
  }
};

TEST_F(OverlappedReductions, BucketsGoWhileTheLastBackwardRuns) {
  on_both_ranks([](Rank& rank) {
    rank.reduction.begin_step();
    for (std::size_t stage = kStages; stage-- > 0;) {
      rank.run_backward(stage);  // not its last one
      EXPECT_EQ(rank.gradients.buckets_to_send(), kReduceBuckets * (stage + 1));
      std::size_t before_first = 0;
      rank.stages.parameters()[rank.begin_of(stage)].tensor.register_hook(
          [&](const at::Tensor& /*gradient*/) { before_first = rank.gradients.buckets_to_send(); });
      rank.reduction.begin_last(stage);
      rank.run_backward(stage);
      EXPECT_EQ(before_first, kReduceBuckets * stage + 1) << "only the first is incomplete";
      EXPECT_EQ(rank.gradients.buckets_to_send(), kReduceBuckets * stage);
      rank.reduction.end_last(stage);
    }
    rank.reduction.end_step();
    rank.expect_sums();
  });
}

TEST_F(OverlappedReductions, BucketsGoWhileWeightHalvesRun) {
  on_both_ranks([](Rank& rank) {
    rank.reduction.begin_step();
    const std::size_t stage = kStages - 1;
    rank.run_backward(stage);
    // All but the last bucket's parameters wait, the stage's first one twice.
    WeightGradients waiting;
    const std::size_t first = rank.begin_of(stage);
    for (std::size_t i = rank.gradients.layout().buckets().back().first_parameter; i-- > first;) {
      waiting.add(rank.stages.parameters()[i].tensor, [&rank, i] {
        return at::ones_like(rank.stages.parameters()[i].tensor.detach());
      });
      rank.expected[i].tensor.mutable_grad().add_(1);
    }
    waiting.add(rank.stages.parameters()[first].tensor, [&] {
      EXPECT_EQ(rank.gradients.buckets_to_send(), kBuckets - kReduceBuckets + 1);
      return at::ones_like(rank.stages.parameters()[first].tensor.detach());
    });
    rank.expected[first].tensor.mutable_grad().add_(1);
    rank.reduction.begin_last(stage, waiting);
    EXPECT_EQ(rank.gradients.buckets_to_send(), kBuckets - 1) << "which is complete";
    waiting.run([&](const at::Tensor& parameter) { rank.reduction.added(parameter); });
    EXPECT_EQ(rank.gradients.buckets_to_send(), kBuckets - kReduceBuckets);
    rank.reduction.end_last(stage);
    rank.reduction.end_step();
    rank.expect_sums();
  });
}

// What reaches no parameter in the last backward is sent behind it, what ran in no operation at the
// step's end.
TEST_F(OverlappedReductions, WhatIsLeftGoesAtTheEnd) {
  on_both_ranks([](Rank& rank) {
    rank.reduction.begin_step();
    rank.run_backward(2);
    rank.reduction.begin_last(2);
    rank.reduction.end_last(2);
    EXPECT_EQ(rank.gradients.buckets_to_send(), kBuckets - kReduceBuckets);
    rank.run_backward(0);
    rank.reduction.end_step();
    rank.expect_sums();
    EXPECT_EQ(rank.gradients.buckets_to_send(), kBuckets) << "for the next step";
  });
}

TEST_F(OverlappedReductions, LateParametersHoldTheirBucketAndAllAfterItBack) {
  const tiny::Step step = tiny::make_step({{1, 2}, 2, true});
  const LaneStages stages(step.model, step.plan, 0, {});
  const std::size_t late = stages.stage_begins()[2] - 1;  // the second stage's last one
  on_both_ranks(
      [&](Rank& rank) {
        rank.reduction.begin_step();
        for (std::size_t stage = kStages; stage-- > 0;) {
          rank.reduction.begin_last(stage);
          rank.run_backward(stage);
          rank.reduction.end_last(stage);
        }
        EXPECT_EQ(rank.gradients.buckets_to_send(), 2U * kReduceBuckets);
        rank.stages.parameters()[late].tensor.mutable_grad().add_(1);
        rank.expected[late].tensor.mutable_grad().add_(1);
        rank.reduction.end_step();
        rank.expect_sums();
      },
      {stages.parameters()[late].name});
}

TEST_F(OverlappedReductions, RefuseToAddToWhatWasSent) {
  on_both_ranks([](Rank& rank) {
    rank.reduction.begin_step();
    rank.reduction.begin_last(2);
    rank.run_backward(2);
    rank.reduction.end_last(2);
    const std::string message = oracle::error_of<InternalError>([&] { rank.run_backward(2); });
    EXPECT_NE(message.find("after it was sent"), std::string::npos) << message;
    rank.reduction.end_step();
  });
}

}  // namespace
}  // namespace entrain::engine
