#include "entrain/engine/pipeline/executor.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/engine/tiny_step.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using std::chrono::seconds;
using tiny::FrozenPattern;
using tiny::inputs_of;
using tiny::Layout;
using tiny::make_step;
using tiny::Result;
using tiny::run_step;
using tiny::seeded_options;
using tiny::Step;
using tiny::SyntheticData;

// The same stages in one piece, sample by sample, one backward.
Result reference(const Step& step) {
  const ModelSpec& model = step.model;
  const StageOptions options = seeded_options().stage;
  const EncoderStage encoder(
      model.encoders[0], model.llm.hidden, {0, num_layers(model, 0)}, options);
  const LlmStage llm(model.llm, {0, num_layers(model, 1)}, options);
  SyntheticData data(step.costs.work);
  at::Tensor loss = at::zeros({});
  for (int s = 0; s < step.costs.num_samples; ++s) {
    const SampleWork& work = step.costs.work[static_cast<std::size_t>(s)];
    const TokenizedSample& text = data.text(s);
    std::vector<at::Tensor> features;
    std::vector<std::int64_t> positions;
    for (std::size_t k = 0; k < work.segments[0].size(); ++k) {
      const SegmentData segment = data.segment(0, s, static_cast<int>(k));
      const SegmentGrid grid{segment.rows, segment.columns};
      features.push_back(encoder.forward(segment.input, std::span(&grid, 1)));
      for (std::int64_t row = 0; row < features.back().size(0); ++row) {
        positions.push_back(text.feature_begin[k] + row);
      }
    }
    const std::int64_t length = work.llm_tokens;
    const at::Tensor hidden =
        llm.decode(llm.embed(at::tensor(text.ids, at::kLong),
                             features.empty() ? at::Tensor() : at::cat(features),
                             at::tensor(positions, at::kLong)),
                   std::span(&length, 1));
    const at::Tensor ids = at::tensor(text.ids, at::kLong);
    loss =
        loss + llm.loss_sum(
                   hidden,
                   at::arange(text.targets.front().begin - 1, length - 1, at::kLong),
                   ids.narrow(0, text.targets.front().begin, length - text.targets.front().begin));
  }
  (loss / static_cast<double>(step.target_tokens)).backward();
  Result result;
  result.loss_sum = loss.item<double>();
  result.gradients.resize(1);
  double squares = 0;
  for (const auto* parameters : {&encoder.parameters(), &llm.parameters()}) {
    for (const NamedParameter& parameter : *parameters) {
      if (parameter.tensor.requires_grad()) {
        result.gradients[0][parameter.name] = parameter.tensor.grad();
        squares += std::pow(parameter.tensor.grad().norm().item<double>(), 2);
      }
    }
  }
  result.gradient_norm = std::sqrt(squares);
  return result;
}

void expect_close(const Result& result, const Result& expected, int replicas) {
  EXPECT_NEAR(result.loss_sum, expected.loss_sum, 1e-5 * expected.loss_sum);
  EXPECT_NEAR(result.gradient_norm, expected.gradient_norm, 1e-5 * expected.gradient_norm);
  for (int replica = 0; replica < replicas; ++replica) {
    const auto& gradients = result.gradients[static_cast<std::size_t>(replica)];
    EXPECT_EQ(gradients.size(), expected.gradients[0].size());
    for (const auto& [name, gradient] : expected.gradients[0]) {
      ASSERT_EQ(gradients.count(name), 1U) << name;
      const double error = (gradients.at(name) - gradient).norm().item<double>();
      EXPECT_LE(error,
                1e-5 * std::max(gradient.norm().item<double>(), 1e-3 * expected.gradient_norm))
          << name;
    }
  }
}

TEST(Executor, TwoLanesUnderGpipeGiveTheGradientsOfOneProcess) {
  const Step step = make_step({});
  const Result result = run_step(step);
  expect_close(result, reference(step), 1);
  EXPECT_EQ(result.optimizer_steps, 2);
}

TEST(Executor, EveryLayoutGivesTheGradientsOfOneProcess) {
  std::uint64_t seed = 10;
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const auto& stages : std::vector<std::vector<int>>{{1, 1}, {2, 3}, {1, 2}}) {
      for (const int replicas : {1, 2}) {
        for (const bool single_lane : {false, true}) {
          const Layout layout{stages, replicas, single_lane, schedule, FrozenPattern::kNone};
          SCOPED_TRACE(concat(schedule,
                              " stages ",
                              stages[0],
                              "+",
                              stages[1],
                              " replicas ",
                              replicas,
                              " single lane ",
                              single_lane,
                              " seed ",
                              seed));
          const Step step = make_step(layout, ++seed);
          expect_close(run_step(step), reference(step), replicas);
        }
      }
    }
  }
}

TEST(Executor, HonoursFrozenParts) {
  std::uint64_t seed = 50;
  for (const FrozenPattern frozen : {FrozenPattern::kEncoders,
                                     FrozenPattern::kLlm,
                                     FrozenPattern::kOnlyProjector,
                                     FrozenPattern::kEncoderBodies}) {
    for (const char* schedule : {"gpipe", "1f1b"}) {
      SCOPED_TRACE(concat("pattern ", static_cast<int>(frozen), " ", schedule, " seed ", seed));
      const Step step = make_step({{2, 2}, 2, false, schedule, frozen}, ++seed);
      expect_close(run_step(step), reference(step), 2);
    }
  }
}

TEST(Executor, RunsChunksOfSamples) {
  std::uint64_t seed = 80;
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const bool single_lane : {false, true}) {
      SCOPED_TRACE(concat(schedule, " single lane ", single_lane, " seed ", seed));
      const Step step =
          make_step({{2, 2}, 2, single_lane, schedule, FrozenPattern::kNone, true}, ++seed);
      expect_close(run_step(step), reference(step), 2);
    }
  }
}

TEST(Executor, RepeatsItselfBitwise) {
  const Step step = make_step({{2, 2}, 2, false, "1f1b", FrozenPattern::kNone, true});
  const Result first = run_step(step);
  const Result second = run_step(step);
  EXPECT_EQ(first.loss_sum, second.loss_sum);
  EXPECT_EQ(first.gradient_norm, second.gradient_norm);
  for (const auto& [name, gradient] : first.gradients[0]) {
    EXPECT_TRUE(at::equal(gradient, second.gradients[0].at(name))) << name;
    EXPECT_TRUE(at::equal(gradient, first.gradients[1].at(name))) << "replicas differ in " << name;
  }
}

TEST(Executor, ClipsToTheGlobalNorm) {
  const Step step = make_step({{1, 2}, 2, false, "1f1b", FrozenPattern::kNone});
  const Result free = run_step(step);
  ExecutorOptions options = seeded_options();
  options.clip_norm = 0.5 * free.gradient_norm;
  const Result clipped = run_step(step, options);
  EXPECT_EQ(clipped.gradient_norm, free.gradient_norm);
  double squares = 0;
  for (const auto& [name, gradient] : clipped.gradients[1]) {
    squares += std::pow(gradient.norm().item<double>(), 2);
  }
  EXPECT_NEAR(std::sqrt(squares), options.clip_norm, 1e-5 * options.clip_norm);
  options.clip_norm = 2 * free.gradient_norm;
  EXPECT_TRUE(at::equal(run_step(step, options).gradients[0].begin()->second,
                        free.gradients[0].begin()->second));
}

TEST(Executor, EvaluatesTheSameLossWithoutGradients) {
  const Step step = make_step({{1, 2}, 1, false, "1f1b", FrozenPattern::kNone, true});
  ThreadCommGroup group(step.plan.num_lanes(), seconds(20));
  double loss_sum = 0;
  std::mutex mutex;
  run_ranks(group, [&](int rank) {
    Executor executor(step.model, step.plan, group.comm(rank), seeded_options());
    SyntheticData data(step.costs.work);
    const double first = executor.evaluate(inputs_of(step, &data));
    const StepOutcome outcome = executor.run(inputs_of(step, &data), {});
    const double again = executor.evaluate(inputs_of(step, &data));
    EXPECT_EQ(first, outcome.loss_sum);
    EXPECT_EQ(first, again);
    const std::lock_guard lock(mutex);
    loss_sum += first;
  });
  EXPECT_NEAR(loss_sum, reference(step).loss_sum, 1e-4);
}

TEST(Executor, StartsEveryStepWithoutGradients) {
  const Step step = make_step({});
  ThreadCommGroup group(2, seconds(20));
  run_ranks(group, [&](int rank) {
    Executor executor(step.model, step.plan, group.comm(rank), seeded_options());
    SyntheticData data(step.costs.work);
    const double norm = executor.run(inputs_of(step, &data), {}).gradient_norm;
    EXPECT_EQ(executor.run(inputs_of(step, &data), {}).gradient_norm, norm);
  });
}

TEST(Executor, RecordsWhatTheLaneDid) {
  const Step step = make_step({{1, 2}, 1, false, "1f1b", FrozenPattern::kNone});
  ExecutorOptions options = seeded_options();
  options.record_events = true;
  const Result result = run_step(step, options);
  for (int lane = 0; lane < step.plan.num_lanes(); ++lane) {
    const auto& operations = step.program.replicas[0].lanes[static_cast<std::size_t>(lane)];
    const StepOutcome& outcome = result.outcomes[static_cast<std::size_t>(lane)];
    std::multiset<int> computed;
    std::multiset<int> moved;
    std::chrono::nanoseconds busy{0};
    for (const TimelineEvent& event : outcome.events) {
      EXPECT_EQ(event.lane, lane);
      EXPECT_LE(event.start, event.finish);
      if (event.category == EventCategory::kCompute) {
        computed.insert(event.operation);
        busy += event.finish - event.start;
      } else if (event.category != EventCategory::kWait) {
        moved.insert(event.operation);
      }
    }
    for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
      const OperationKind kind = operations[static_cast<std::size_t>(i)].kind;
      const bool message = kind == OperationKind::kSend || kind == OperationKind::kReceive;
      EXPECT_EQ(moved.count(i), message ? 1U : 0U);
      EXPECT_EQ(computed.count(i), message || kind == OperationKind::kClipNorm ? 0U : 1U);
    }
    EXPECT_GT(outcome.usage.busy.count(), 0);
    EXPECT_GE(busy, outcome.usage.busy);
    EXPECT_GT(outcome.processor.count(), 0);
    EXPECT_LE(outcome.processor, outcome.usage.busy);
    EXPECT_GE(outcome.usage.finish, outcome.usage.busy);
  }
}

// Throws when the LLM side asks for sample 4, or the encoder side for its second image.
template <class Error>
class FailingData : public SyntheticData {
 public:
  FailingData(const std::vector<SampleWork>& work, bool texts)
      : SyntheticData(work), texts_fail_(texts) {}
  SegmentData segment(int module, int sample, int segment) override {
    if (!texts_fail_ && sample == 4 && segment == 1) {
      throw Error("image 1 of sample-4 is damaged");
    }
    return SyntheticData::segment(module, sample, segment);
  }
  const TokenizedSample& text(int sample) override {
    if (texts_fail_ && sample == 4) {
      throw Error("text of sample-4 is damaged");
    }
    return SyntheticData::text(sample);
  }

 private:
  bool texts_fail_;
};

// Message of the failure, which must come long before half the deadline.
template <class Thrown, class Expected>
std::string failure_of(bool texts) {
  constexpr std::chrono::minutes kDeadline{4};
  const Step step = make_step({{2, 2}, 2, false, "1f1b", FrozenPattern::kNone});
  const auto start = std::chrono::steady_clock::now();
  const std::string message = oracle::error_of<Expected>([&] {
    run_step(
        step,
        seeded_options(),
        [&](int) { return std::make_unique<FailingData<Thrown>>(step.costs.work, texts); },
        kDeadline);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline / 4);
  return message;
}

TEST(Executor, FailingRankStopsAllAndSaysWhatItWasDoing) {
  const std::string encoder = failure_of<InvalidInput, InvalidInput>(false);
  EXPECT_NE(encoder.find("rank "), std::string::npos) << encoder;
  EXPECT_NE(encoder.find("step 5, forward vision 0 slot"), std::string::npos) << encoder;
  EXPECT_NE(encoder.find("sample-4"), std::string::npos) << encoder;
  EXPECT_NE(encoder.find("image 1 of sample-4 is damaged"), std::string::npos) << encoder;
  EXPECT_EQ(encoder.find("another rank"), std::string::npos) << encoder;

  const std::string llm = failure_of<SystemFailure, SystemFailure>(true);
  EXPECT_NE(llm.find("forward llm 0 slot"), std::string::npos) << llm;
  EXPECT_NE(llm.find("last operations: receive vision 1"), std::string::npos) << llm;

  failure_of<InternalError, InternalError>(true);
  failure_of<std::runtime_error, InternalError>(false);
}

TEST(Executor, NamesTheSampleWhoseLengthIsNotAsPlanned) {
  const Step step = make_step({});
  std::vector<SampleWork> other = step.costs.work;
  ++other[1].llm_tokens;
  const std::string message = oracle::error_of<InternalError>([&] {
    run_step(step, seeded_options(), [&](int) { return std::make_unique<SyntheticData>(other); });
  });
  EXPECT_NE(message.find("sample 'sample-1': 13 tokens, planned with 12"), std::string::npos)
      << message;
}

TEST(Executor, RefusesOperationsItCannotRun) {
  Step step = make_step({});
  step.program.schedule = "tied";
  step.program.replicas[0].lanes[1].back().kind = OperationKind::kSyncTied;
  const std::string message = oracle::error_of<InvalidInput>([&] { run_step(step); });
  EXPECT_NE(message.find("schedule 'tied' needs sync_tied"), std::string::npos) << message;
}

TEST(Executor, RefusesContextParallelismAndHeadsThatDoNotDivide) {
  Step step = make_step({});
  step.plan.modules[1].context_parallel = 2;
  EXPECT_THROW(run_step(step), InvalidInput);
  step.plan.modules[1].context_parallel = 1;
  step.plan.modules[1].tensor_parallel = 2;  // of one key and value head
  EXPECT_THROW(run_step(step), InvalidInput);
}

TEST(Executor, PacedRunNeedsNoDataAndNoParameters) {
  const Step step = make_step({{2, 2}, 2, false, "1f1b", FrozenPattern::kNone});
  ExecutorOptions options = seeded_options();
  options.paced = true;
  const Result result = run_step(step, options, [](int) { return nullptr; });
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.optimizer_steps, 8);
  EXPECT_TRUE(result.gradients[0].empty());
  for (int lane = 0; lane < step.plan.num_lanes(); ++lane) {
    std::chrono::nanoseconds predicted{0};
    for (const Operation& operation :
         step.program.replicas[0].lanes[static_cast<std::size_t>(lane)]) {
      if (operation.kind == OperationKind::kForward || operation.kind == OperationKind::kBackward) {
        predicted += operation_time(step.costs,
                                    operation.kind,
                                    operation.unit,
                                    group_of(step.program.replicas[0], operation.unit));
      }
    }
    EXPECT_GE(result.outcomes[static_cast<std::size_t>(lane)].usage.busy, predicted);
  }
}

}  // namespace
}  // namespace entrain::engine
