// Global batches of the shared manifests: every policy under several layouts, the schedules in
// turn; the policy `entrain` with its default evaluations, too.
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/schedule/schedule.h"

#include "tests/oracle/lane_layouts.h"
#include "tests/oracle/manifests.h"
#include "tests/oracle/random_cases.h"
#include "tests/record/fields.h"
#include "tests/record/manifest_batches.h"
#include "tests/record/record.h"

namespace entrain::record {
namespace {

struct Instance {
  Plan plan;
  StepCosts costs;
};

constexpr const char* kLayouts[] = {
    "own", "tensor+zero1", "frozen+chunks", "interleaved", "colocated", "limit+recompute"};

std::vector<SampleSizes> draw(const std::string& name, int count) {
  const Index index = read_index(oracle::manifests() / (name + ".csv"));
  return draw_with_replacement(index.samples, count, 7, 0);
}

Plan plan_of(const ModelSpec& model, int encoder_stages, int llm_stages) {
  std::vector<int> stages(model.encoders.size(), encoder_stages);
  stages.push_back(llm_stages);
  return even_plan(model, stages, 2, 12);
}

// Stage i of each module on lane i mod 2 of two lanes of its own.
void interleave(Plan& plan) {
  plan.lanes.clear();
  for (std::size_t module = 0; module < plan.modules.size(); ++module) {
    const std::size_t first = plan.lanes.size();
    plan.lanes.resize(first + 2);
    for (std::size_t stage = 0; stage < plan.modules[module].stages.size(); ++stage) {
      plan.lanes[first + stage % 2].push_back({static_cast<int>(module), static_cast<int>(stage)});
    }
  }
}

Instance make_instance(const Manifest& manifest, const std::string& layout) {
  ModelSpec model = manifest.model;
  Instance result;
  result.plan = plan_of(model, 2, 2);
  if (layout == "tensor+zero1") {
    for (ModulePlan& module : result.plan.modules) {
      module.tensor_parallel = 2;
    }
    result.plan.shard_optimizer = true;
  } else if (layout == "frozen+chunks") {
    oracle::freeze(oracle::FrozenPattern::kEncoderBodies, model);
    result.plan = plan_of(model, 1, 3);
    result.plan.limits.chunks = true;
  } else if (layout == "interleaved") {
    result.plan = plan_of(model, 4, 4);
    interleave(result.plan);
  } else if (layout == "colocated") {
    result.plan = plan_of(model, 3, 3);
    oracle::colocate_lanes(result.plan);
  } else if (layout == "limit+recompute") {
    result.plan.modules.back().recompute = {4, 0};
    result.plan.limits.chunks = true;
  }
  result.plan.limits.evaluations = 100;
  const Profile profile = analytic_profile(model, device_model("a40"), {{1, 2}, {1}});
  result.costs = step_costs(model, result.plan, profile, batch_work(model, manifest.samples));
  if (layout == "limit+recompute") {
    limit_memory(6, result.costs, result.plan);
  }
  return result;
}

}  // namespace

std::vector<Manifest> draw_manifests(int count) {
  if (!std::filesystem::is_directory(oracle::manifests())) {
    return {};
  }
  const ModelSpec vision = oracle::manifest_model(Modality::kVision);
  const ModelSpec audio = oracle::manifest_model(Modality::kAudio);
  std::vector<Manifest> result;
  for (const char* name :
       {"coco_val2017_captions", "opencqa_charts", "mathvision_qa", "openstax_chem_sections"}) {
    result.push_back({name, vision, draw(name, count)});
  }
  for (const char* name : {"librispeech_multiclip", "earnings22_turns"}) {
    result.push_back({name, audio, draw(name, count)});
  }
  Manifest both{"charts+speech", vision, {}};
  both.model.encoders.push_back(audio.encoders.front());
  const std::vector<SampleSizes> charts = draw("opencqa_charts", count / 2);
  const std::vector<SampleSizes> speech = draw("librispeech_multiclip", count / 2);
  for (std::size_t i = 0; i < charts.size(); ++i) {
    both.samples.push_back(charts[i]);
    both.samples.push_back(speech[i]);
  }
  result.push_back(std::move(both));
  return result;
}

std::vector<Case> manifest_cases() {
  constexpr int kSamples = 96;
  const std::vector<std::string> schedules = schedule_names();
  std::vector<Case> cases;
  std::size_t turn = 0;
  for (const Manifest& manifest : draw_manifests(kSamples)) {
    for (const char* layout : kLayouts) {
      const auto instance = std::make_shared<const Instance>(make_instance(manifest, layout));
      for (const std::string& policy : policy_names()) {
        const std::string schedule = schedules[turn++ % schedules.size()];
        cases.push_back(
            {concat("manifest/", manifest.name, "/", layout, "/", policy, "/", schedule), [=] {
               Plan plan = instance->plan;
               plan.schedule = schedule;
               return fields_of_policy(policy, plan, instance->costs);
             }});
      }
      const std::string name = layout;
      if (name == "own" || name == "limit+recompute") {
        cases.push_back({concat("manifest/", manifest.name, "/", name, "/entrain/default"), [=] {
                           Plan plan = instance->plan;
                           plan.limits.evaluations = default_evaluations(plan.replicas);
                           plan.limits.chunks = false;
                           return fields_of_policy("entrain", plan, instance->costs);
                         }});
      }
    }
  }
  return cases;
}

}  // namespace entrain::record
