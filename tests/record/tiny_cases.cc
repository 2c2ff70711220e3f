// Random tiny instances under every policy and schedule.
#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/text.h"
#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/lane_layouts.h"
#include "tests/oracle/random_cases.h"
#include "tests/oracle/random_programs.h"
#include "tests/record/fields.h"
#include "tests/record/record.h"

namespace entrain::record {
namespace {

using oracle::FrozenPattern;
using oracle::LaneLayout;
using oracle::RandomCase;
using oracle::RandomCaseOptions;

constexpr std::uint64_t kSeed = 20;

// Every pair of the three choices comes together.
struct Variant {
  const char* name;
  bool frozen;
  bool chunks;
  bool limited;
};
constexpr Variant kVariants[] = {{"plain", false, false, false},
                                 {"chunks+limit", false, true, true},
                                 {"frozen+limit", true, false, true},
                                 {"frozen+chunks", true, true, false}};

// How the lanes of an instance are laid out.
enum class Lanes { kPerStage, kMixed, kWrapped, kColocated };

FrozenPattern draw_frozen(Rng& rng) {
  constexpr FrozenPattern kPatterns[] = {FrozenPattern::kEncoders,
                                         FrozenPattern::kLlm,
                                         FrozenPattern::kOnlyProjector,
                                         FrozenPattern::kEncoderBodies};
  return kPatterns[rng.below(std::size(kPatterns))];
}

RandomCase make_instance(Rng& rng, const Variant& variant, Lanes lanes) {
  RandomCaseOptions options;
  options.frozen = variant.frozen ? draw_frozen(rng) : FrozenPattern::kNone;
  options.chunks = variant.chunks;
  options.recompute = rng.below(3) == 0;
  options.layout = lanes == Lanes::kMixed ? LaneLayout::kMixed : LaneLayout::kLanePerStage;
  options.min_slots = 2;
  if (lanes == Lanes::kWrapped) {
    options.llm_stages = 2 + static_cast<int>(rng.below(2));
  }
  if (lanes == Lanes::kColocated) {
    options.encoders = 1 + static_cast<int>(rng.below(2));
    options.llm_stages = 2 + static_cast<int>(rng.below(2));
    options.encoder_stages = options.llm_stages;
  }
  RandomCase instance = make_random_case(rng, options);
  if (lanes == Lanes::kWrapped) {
    oracle::wrap_lanes(rng, instance.plan);
  }
  if (lanes == Lanes::kColocated) {
    oracle::colocate_lanes(instance.plan);
  }
  // ZeRO-1: reductions run beside compute.
  instance.plan.shard_optimizer = instance.plan.replicas > 1 && rng.below(2) == 0;
  instance.costs.reduce_buckets = instance.plan.shard_optimizer ? kReduceBuckets : 0;
  instance.plan.limits.evaluations = 60;
  return instance;
}

std::string run_policy(std::uint64_t index,
                       const std::string& policy,
                       const std::string& schedule,
                       const Variant& variant) {
  Rng rng(kSeed, index);
  RandomCase instance = make_instance(rng, variant, static_cast<Lanes>(rng.below(4)));
  instance.plan.schedule = schedule;
  if (variant.limited) {
    limit_memory(rng.below(2) == 0 ? 6 : 9, instance.costs, instance.plan);
  }
  return fields_of_policy(policy, instance.plan, instance.costs);
}

// The policy `entrain` without one of its parts, or with balance as its objective.
std::string run_options(std::uint64_t index,
                        const std::string& without,
                        Objective objective,
                        const std::string& schedule) {
  Rng rng(kSeed + 1, index);
  RandomCase instance = make_instance(rng, kVariants[index % 2], Lanes::kPerStage);
  instance.plan.schedule = schedule;
  AssignRequest request;
  request.plan = &instance.plan;
  request.costs = &instance.costs;
  request.objective = objective;
  if (!without.empty()) {
    request.options = entrain_options_without({without}, "record");
  }
  return fields_of_step(
      instance.plan, instance.costs, assign("entrain", request), instance.plan.schedule);
}

// A random assignment's program and its times under several options; bytes over time; the bound.
std::string run_replay(std::uint64_t index, const std::string& schedule) {
  Rng rng(kSeed + 2, index);
  RandomCase instance = make_instance(
      rng, kVariants[index % std::size(kVariants)], static_cast<Lanes>((index + index / 4) % 4));
  if (index % 2 == 1) {
    limit_memory(12, instance.costs, instance.plan);
  }
  const Program program =
      build_program(instance.plan, instance.assignment, instance.costs, schedule);
  std::string text = concat("orders=", orders_of(program), " ", times_of(program, instance.costs));
  std::vector<SimulateOptions> variants(5);
  variants[0].blocking_sends = true;
  variants[1].sharing = LinkSharing::kLane;
  variants[2].reduce_buckets = 3;
  for (const std::size_t variant : {std::size_t{3}, std::size_t{4}}) {
    variants[variant].network = oracle::random_network(rng, program);
    variants[variant].sharing = variant == 3 ? LinkSharing::kNode : LinkSharing::kChannel;
  }
  variants[4].reduce_buckets = 0;
  std::string makespans;
  for (const SimulateOptions& options : variants) {
    makespans += makespans.empty() ? "" : ",";
    makespans += std::to_string(simulate(program, instance.costs, options).makespan.count());
  }
  std::string bytes;
  for (int replica = 0; replica < instance.plan.replicas; ++replica) {
    for (int lane = 0; lane < program.num_lanes(); ++lane) {
      for (const std::int64_t held : memory_over_time(program, instance.costs, replica, lane)) {
        bytes += concat(held, " ");
      }
      bytes += "\n";
    }
  }
  SimulateOptions with_events;
  with_events.events = true;
  const Timeline timeline = simulate(program, instance.costs, with_events);
  for (const auto& lanes : memory_timeline(program, instance.costs, timeline)) {
    for (const auto& steps : lanes) {
      for (const MemoryStep& step : steps) {
        bytes += concat(step.time.count(), " ", step.bytes, " ");
      }
      bytes += "\n";
    }
  }
  return concat(text, " options_ns=", makespans, " bytes=", short_digest(bytes));
}

}  // namespace

std::vector<Case> tiny_cases() {
  std::vector<Case> cases;
  std::uint64_t index = 0;
  for (const std::string& policy : policy_names()) {
    for (const std::string& schedule : schedule_names()) {
      for (const Variant& variant : kVariants) {
        cases.push_back({concat("tiny/", policy, "/", schedule, "/", variant.name),
                         [=] { return run_policy(index, policy, schedule, variant); }});
        ++index;
      }
    }
  }
  const auto add_options =
      [&](const std::string& name, const std::string& without, Objective goal) {
        for (const char* schedule : {"1f1b", "entrain"}) {
          for (int i = 0; i < 2; ++i) {
            cases.push_back({concat("options/", name, "/", schedule, "/", i),
                             [=] { return run_options(index, without, goal, schedule); }});
            ++index;
          }
        }
      };
  for (const char* part : {"joint",
                           "replicas",
                           "shape",
                           "order",
                           "slots",
                           "deferral",
                           "segments",
                           "chunks",
                           "search"}) {
    add_options(concat("without-", part), part, Objective::kStepTime);
  }
  add_options("balance", "", Objective::kBalance);
  return cases;
}

std::vector<Case> replay_cases() {
  constexpr std::uint64_t kInstances = 12;
  std::vector<Case> cases;
  for (std::uint64_t index = 0; index < kInstances; ++index) {
    for (const std::string& schedule : schedule_names()) {
      cases.push_back(
          {concat("replay/", index, "/", schedule), [=] { return run_replay(index, schedule); }});
    }
  }
  return cases;
}

}  // namespace entrain::record
