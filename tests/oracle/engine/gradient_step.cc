#include "tests/oracle/engine/gradient_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/schedule/schedule.h"

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/rank_places.h"
#include "entrain/engine/pipeline/ranks.h"

namespace entrain::oracle {
namespace {

std::vector<LayerRange> random_cuts(Rng& rng, int layers, int stages) {
  std::vector<int> inner;
  for (int layer = 1; layer < layers; ++layer) {
    inner.push_back(layer);
  }
  rng.shuffle(std::span<int>(inner));
  std::vector<int> cuts(inner.begin(), inner.begin() + stages - 1);
  cuts.push_back(0);
  cuts.push_back(layers);
  std::sort(cuts.begin(), cuts.end());
  std::vector<LayerRange> result;
  for (int stage = 0; stage < stages; ++stage) {
    const auto i = static_cast<std::size_t>(stage);
    result.push_back({cuts[i], cuts[i + 1]});
  }
  return result;
}

// The stages of the plan's modules, dealt out to lanes anew.
void place_stages(StageLanes lanes, Plan& plan) {
  if (lanes == StageLanes::kOwn) {
    return;
  }
  constexpr std::size_t kLanesPerModule = 2;
  plan.lanes.clear();
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    const std::size_t first = lanes == StageLanes::kWrapped ? plan.lanes.size() : 0;
    for (std::size_t stage = 0; stage < plan.modules[module].stages.size(); ++stage) {
      const std::size_t lane = lanes == StageLanes::kWrapped     ? first + stage % kLanesPerModule
                               : lanes == StageLanes::kColocated ? stage
                                                                 : 0;
      plan.lanes.resize(std::max(plan.lanes.size(), lane + 1));
      plan.lanes[lane].push_back({static_cast<int>(module), static_cast<int>(stage)});
    }
  }
}

// Cuts every sample of two tokens or more in two, every third in three where it has them; later
// chunks run in the slots behind, of which there are two more then.
void cut_samples(const StepCosts& costs, StepAssignment& assignment) {
  for (ReplicaAssignment& replica : assignment.replicas) {
    const auto num_slots = static_cast<std::size_t>(replica.num_slots);
    replica.num_slots += 2;
    for (ModuleSlots& slots : replica.modules) {
      slots.resize(static_cast<std::size_t>(replica.num_slots));
    }
    ModuleSlots& llm = replica.modules.back();
    const ModuleSlots whole = std::exchange(llm, ModuleSlots(llm.size()));
    for (std::size_t slot = 0; slot < num_slots; ++slot) {
      for (const WorkItem& item : whole[slot]) {
        const std::int64_t tokens = costs.work.at(static_cast<std::size_t>(item.sample)).llm_tokens;
        const std::int64_t chunks = std::min<std::int64_t>(tokens, item.sample % 3 == 0 ? 3 : 2);
        if (item.is_chunk() || chunks < 2) {
          llm[slot].push_back(item);
          continue;
        }
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
          llm[slot + static_cast<std::size_t>(chunk)].push_back(
              {item.sample, -1, tokens * chunk / chunks, tokens * (chunk + 1) / chunks});
        }
      }
    }
  }
}

StepAssignment assignment_of(Rng& rng,
                             StepPolicy policy,
                             const Plan& plan,
                             const StepCosts& costs) {
  if (policy == StepPolicy::kRandom || policy == StepPolicy::kRandomChunks) {
    return random_assignment(rng, costs, plan, 1, 6);
  }
  AssignRequest request;
  request.plan = &plan;
  request.costs = &costs;
  request.seed = rng.next();
  StepAssignment result =
      assign(policy == StepPolicy::kSequential ? "sequential" : "entrain", request);
  if (policy == StepPolicy::kEntrainChunks) {
    cut_samples(costs, result);
  }
  return result;
}

}  // namespace

void recompute_layers(Rng& rng, Plan& plan) {
  for (ModulePlan& module : plan.modules) {
    module.recompute.clear();
    for (const LayerRange& layers : module.stages) {
      const auto most = static_cast<std::uint64_t>(layers.end - layers.begin);
      module.recompute.push_back(static_cast<int>(rng.below(3) == 0 ? most : rng.below(most + 1)));
    }
  }
}

StepConfiguration configure(Rng& rng,
                            const GradientBatch& batch,
                            const StepLayout& layout,
                            const std::string& schedule,
                            FrozenPattern frozen,
                            bool recompute,
                            bool shard_optimizer,
                            StepPolicy policy) {
  StepConfiguration result;
  result.model = batch.model;
  freeze(frozen, result.model);
  result.plan = even_plan(result.model, layout.stages, layout.replicas, 4);
  for (std::size_t module = 0; module < layout.stages.size(); ++module) {
    result.plan.modules[module].stages =
        random_cuts(rng, num_layers(result.model, static_cast<int>(module)), layout.stages[module]);
  }
  for (std::size_t module = 0; module < layout.tensor_parallel.size(); ++module) {
    result.plan.modules[module].tensor_parallel = layout.tensor_parallel[module];
  }
  place_stages(layout.lanes, result.plan);
  if (recompute) {
    recompute_layers(rng, result.plan);
  }
  result.schedule = schedule_objection(schedule, result.plan).empty() ? schedule : "1f1b";
  result.policy = policy;
  result.plan.schedule = result.schedule;
  result.plan.shard_optimizer = shard_optimizer;
  result.plan.limits.chunks = policy != StepPolicy::kRandom;
  validate(result.plan, result.model, "test plan");
  AnalyticOptions options;
  options.tensor_parallel = {1, 2};
  const Profile profile = analytic_profile(result.model, device_model("cpu-2core"), options);
  result.costs = step_costs(result.model, result.plan, profile, batch.work);
  result.assignment = assignment_of(rng, policy, result.plan, result.costs);
  validate_assignment(result.assignment, result.plan, result.costs);
  result.program = build_program(result.plan, result.assignment, result.costs, result.schedule);
  validate_program(result.program, result.plan, result.assignment, result.costs);
  return result;
}

void shard_optimizer(StepConfiguration& configuration) {
  configuration.plan.shard_optimizer = true;
  configuration.program = build_program(
      configuration.plan, configuration.assignment, configuration.costs, configuration.schedule);
  validate_program(
      configuration.program, configuration.plan, configuration.assignment, configuration.costs);
}

namespace {

// Every trained parameter's gradient after the reduction. All ranks of the lane call together.
NamedWeights reduced_gradients(const engine::Executor& executor) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = at::zeros({executor.layout().shard_size()});
  for (const engine::TrainedPiece& piece : executor.trained()) {
    own.narrow(0, piece.begin, piece.gradient.numel()).copy_(piece.gradient);
  }
  NamedWeights gradients;
  for (const engine::NamedParameter& whole : executor.whole(own)) {
    gradients.emplace(whole.name, whole.tensor.clone());
  }
  return gradients;
}

}  // namespace

namespace {

// That the rank trains as many numbers as costs and memory count. A tied head's copy of the table
// is counted with its stage, and held once where the lane has both.
void expect_trained_as_planned(const StepConfiguration& configuration,
                               int lane,
                               const engine::Executor& executor) {
  if (configuration.model.llm.tie_word_embeddings) {
    return;
  }
  std::int64_t planned = 0;
  for (const StageRef& ref : configuration.plan.lanes[static_cast<std::size_t>(lane)]) {
    planned += configuration.costs.modules[static_cast<std::size_t>(ref.module)]
                   .stages[static_cast<std::size_t>(ref.stage)]
                   .trainable_parameters;
  }
  std::int64_t trained = 0;
  for (const engine::NamedParameter& parameter : executor.parameters()) {
    trained += parameter.tensor.requires_grad() ? parameter.tensor.numel() : 0;
  }
  EXPECT_EQ(trained, planned) << "lane " << lane;
}

}  // namespace

std::string describe(const StepConfiguration& configuration, std::uint64_t seed) {
  RandomCase instance;
  instance.model = configuration.model;
  instance.plan = configuration.plan;
  instance.costs = configuration.costs;
  instance.assignment = configuration.assignment;
  return concat(configuration.schedule, ", seed ", seed, "\n", describe(instance));
}

RankResult run_rank(const GradientBatch& batch,
                    const StepConfiguration& configuration,
                    engine::Comm& comm,
                    at::ScalarType precision) {
  const engine::RankPlace place = engine::RankPlaces(configuration.plan).place_of(comm.rank());
  engine::ExecutorOptions options;
  options.stage.seed = kWeightSeed;
  options.stage.dtype = precision;
  engine::Executor executor(configuration.model, configuration.plan, comm, options);
  std::vector<engine::NamedParameter> weights;
  for (const engine::NamedParameter& parameter : executor.parameters()) {
    weights.push_back({parameter.name, batch.weights.at(parameter.name)});
  }
  executor.set_weights(weights);
  expect_trained_as_planned(configuration, place.lane, executor);
  GradientData data(batch);
  engine::StepInputs inputs;
  inputs.program = &configuration.program;
  inputs.costs = &configuration.costs;
  inputs.sample_ids = &batch.ids;
  inputs.target_tokens = batch.target_tokens;
  inputs.data = &data;
  inputs.start = std::chrono::steady_clock::now();
  const engine::StepOutcome outcome = executor.run(inputs, {});
  RankResult result;
  result.loss_sum = outcome.loss_sum;
  result.gradient_norm = outcome.gradient_norm;
  const NamedWeights reduced = reduced_gradients(executor);
  for (const engine::NamedParameter& parameter : executor.parameters()) {
    result.gradients.emplace(
        parameter.name,
        parameter.tensor.requires_grad() ? reduced.at(parameter.name) : at::Tensor());
    EXPECT_EQ(parameter.tensor.requires_grad(), parameter.tensor.grad().defined())
        << parameter.name;
  }
  return result;
}

StepResult run_step(const GradientBatch& batch,
                    const StepConfiguration& configuration,
                    at::ScalarType precision) {
  const engine::RankPlaces places(configuration.plan);
  engine::ThreadCommGroup group(places.num_ranks());
  StepResult result;
  result.gradients.resize(static_cast<std::size_t>(configuration.plan.replicas));
  std::vector<double> losses(static_cast<std::size_t>(group.size()));
  std::map<std::pair<int, std::string>, int> lane_of;  // by replica and name
  std::mutex mutex;
  engine::run_ranks(group, [&](int rank) {
    RankResult own = run_rank(batch, configuration, group.comm(rank), precision);
    const std::lock_guard lock(mutex);
    losses[static_cast<std::size_t>(rank)] = own.loss_sum;
    result.gradient_norm = own.gradient_norm;
    const engine::RankPlace place = places.place_of(rank);
    NamedWeights& all = result.gradients[static_cast<std::size_t>(place.replica)];
    for (const auto& [name, gradient] : own.gradients) {
      const auto [found, is_new] = all.emplace(name, gradient);
      if (is_new) {
        EXPECT_TRUE(lane_of.emplace(std::pair(place.replica, name), place.lane).second);
        continue;
      }
      EXPECT_EQ(lane_of.at({place.replica, name}), place.lane) << name << " lies on two lanes";
      EXPECT_TRUE(!gradient.defined() || at::equal(gradient, found->second))
          << name << " differs between the ranks of a lane";
    }
  });
  for (const double loss : losses) {
    result.loss += loss / static_cast<double>(batch.target_tokens);
  }
  return result;
}

void expect_reference(const GradientBatch& batch,
                      const StepResult& result,
                      Deviations& deviations) {
  constexpr double kLossTolerance = 1e-6;
  constexpr double kGradientTolerance = 1e-5;
  ++deviations.configurations;
  const ReferenceResult& reference = batch.reference;
  const double loss_error = std::abs(result.loss - reference.loss) / kLossTolerance;
  EXPECT_LE(loss_error, 1.0) << result.loss << " against " << reference.loss;
  deviations.loss = std::max(deviations.loss, loss_error);
  double squares = 0;
  for (const auto& [name, gradient] : result.gradients.front()) {
    if (gradient.defined()) {
      const double norm = reference.gradients.at(name).norm().item<double>();
      squares += norm * norm;
    }
  }
  const double global_norm = std::sqrt(squares);
  EXPECT_NEAR(result.gradient_norm, global_norm, kGradientTolerance * global_norm);
  ASSERT_EQ(result.gradients.front().size(), reference.gradients.size());
  for (const NamedWeights& replica : result.gradients) {
    for (const auto& [name, gradient] : replica) {
      if (!gradient.defined()) {
        continue;
      }
      const at::Tensor& expected = reference.gradients.at(name);
      const double allowed =
          kGradientTolerance * std::max(expected.norm().item<double>(), 1e-3 * global_norm);
      const double error = (gradient.to(at::kDouble) - expected).norm().item<double>() / allowed;
      EXPECT_LE(error, 1.0) << name;
      deviations.gradient = std::max(deviations.gradient, error);
      EXPECT_TRUE(at::equal(gradient, result.gradients.front().at(name)))
          << name << " differs between replicas";
    }
  }
}

void print(const Deviations& deviations) {
  std::printf(
      "%d configurations; largest error in units of the tolerance: loss %.3f, gradient %.3f\n",
      deviations.configurations,
      deviations.loss,
      deviations.gradient);
}

void expect_bitwise_equal(const StepResult& first, const StepResult& second) {
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.gradient_norm, second.gradient_norm);
  for (std::size_t replica = 0; replica < first.gradients.size(); ++replica) {
    for (const auto& [name, gradient] : first.gradients[replica]) {
      const at::Tensor& again = second.gradients[replica].at(name);
      ASSERT_EQ(gradient.defined(), again.defined()) << name;
      EXPECT_TRUE(!gradient.defined() || at::equal(gradient, again)) << name;
    }
  }
}

void expect_two_runs_alike(const GradientBatch& batch, const StepConfiguration& configuration) {
  expect_bitwise_equal(run_step(batch, configuration), run_step(batch, configuration));
}

}  // namespace entrain::oracle
