#include "entrain/core/spec/plan.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/spec/profile.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

// Vision has 6 layers, the LLM 5.
ModelSpec vision_model() {
  ModelSpec model;
  model.name = "m";
  EncoderSpec encoder;
  encoder.name = "vision";
  encoder.num_layers = 4;
  encoder.hidden = 64;
  encoder.num_heads = 4;
  encoder.intermediate = 64;
  model.encoders = {encoder};
  model.llm.num_layers = 3;
  model.llm.hidden = 64;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 4;
  model.llm.head_dim = 16;
  model.llm.intermediate = 64;
  model.llm.vocab_size = 264;
  return model;
}

Json plan_json() {
  return parse_json(R"({
    "version": 1, "replicas": 2, "num_slots": 8,
    "modules": {
      "vision": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 2], [2, 6]]},
      "llm": {"tensor_parallel": 1, "context_parallel": 1, "stages": [[0, 3], [3, 5]]}},
    "lanes": [[["vision", 0]], [["vision", 1], ["llm", 0]], [["llm", 1]]],
    "policy": "lpt-2d", "schedule": "gpipe",
    "limits": {"bytes_per_lane": 1000, "max_deferral": 3, "chunks": false, "evaluations": 7,
               "lane_bytes": [10, 20, 30]},
    "certificate": {"lower_bound_s": 1.5, "simulated_s": 3.0, "ratio": 2.0,
                    "dynamic_regret": 0.25, "b_min": 64, "further_batches": 104}})",
                    "plan.json");
}

// The message for the plan above with `value` at a JSON pointer.
std::string plan_message_after(const std::string& pointer, const std::string& value) {
  Json document = plan_json();
  document[Json::json_pointer(pointer)] = parse_json(value, "value");
  return error_of<InvalidInput>([&] { plan_from_json(document, vision_model(), "plan.json"); });
}

TEST(PlanFromJson, ReadsEveryField) {
  const Plan plan = plan_from_json(plan_json(), vision_model(), "plan.json");
  EXPECT_EQ(plan.replicas, 2);
  EXPECT_EQ(plan.num_slots, 8);
  ASSERT_EQ(plan.modules.size(), 2U);
  EXPECT_EQ(plan.modules[0].name, "vision");
  EXPECT_EQ(plan.modules[0].stages, (std::vector<LayerRange>{{0, 2}, {2, 6}}));
  EXPECT_EQ(plan.modules[1].name, "llm");
  EXPECT_EQ(plan.lanes, (std::vector<std::vector<StageRef>>{{{0, 0}}, {{0, 1}, {1, 0}}, {{1, 1}}}));
  EXPECT_EQ(plan.policy, "lpt-2d");
  EXPECT_EQ(plan.schedule, "gpipe");
  EXPECT_EQ(plan.limits, (PlanLimits{1000, {10, 20, 30}, 3, false, 7}));
  EXPECT_EQ(plan.certificate, (PlanCertificate{1.5, 3.0, 2.0, 0.25, 64, 104}));
}

TEST(PlanFromJson, RoundTripsToTheSameText) {
  const Plan plan = plan_from_json(plan_json(), vision_model(), "plan.json");
  EXPECT_EQ(to_json(plan).dump(), plan_json().dump());
  EXPECT_EQ(plan_from_json(to_json(plan), vision_model(), "again"), plan);
}

TEST(PlanFromJson, KeepsWhichLayersAreRecomputed) {
  Json document = plan_json();
  document["modules"]["vision"]["recompute"] = {2, 3};
  const Plan plan = plan_from_json(document, vision_model(), "plan.json");
  EXPECT_EQ(plan.modules[0].recomputed(0), 2);
  EXPECT_EQ(plan.modules[0].recomputed(1), 3);
  EXPECT_EQ(plan.modules[1].recomputed(1), 0);
  EXPECT_TRUE(recomputes(plan));
  EXPECT_EQ(to_json(plan).dump(), document.dump());
  EXPECT_EQ(plan_from_json(to_json(plan), vision_model(), "again"), plan);
  const Plan without = plan_from_json(plan_json(), vision_model(), "plan.json");
  EXPECT_FALSE(recomputes(without));
  EXPECT_NE(digest(plan), digest(without));
  Plan none = plan;
  none.modules[0].recompute = {0, 0};
  EXPECT_FALSE(recomputes(none));
  EXPECT_EQ(to_json(none).dump(), plan_json().dump()) << "not written where it is none";
  EXPECT_EQ(digest(none), digest(without));
}

TEST(PlanFromJson, RefusesLayersToRecomputeThatAStageHasNot) {
  EXPECT_EQ(plan_message_after("/modules/llm/recompute", "[0, 3]"),
            "plan.json: modules.llm.recompute[1]: 3 layers given; the stage has 2, so that 0 to 2 "
            "are possible");
  EXPECT_EQ(plan_message_after("/modules/llm/recompute", "[-1, 0]"),
            "plan.json: modules.llm.recompute[0]: -1 layers given; the stage has 3, so that 0 to 3 "
            "are possible");
  EXPECT_EQ(plan_message_after("/modules/llm/recompute", "[1]"),
            "plan.json: modules.llm.recompute: 1 numbers of layers for 2 stages; one a stage is "
            "needed");
  EXPECT_EQ(
      plan_message_after("/modules/llm/recompute", "2").find("plan.json: modules.llm.recompute"),
      0U);
}

TEST(PlanFromJson, FillsInWhatMayBeLeftOut) {
  Json document = plan_json();
  for (const char* key : {"lanes", "policy", "schedule", "limits", "certificate"}) {
    document.erase(key);
  }
  document["modules"]["vision"].erase("tensor_parallel");
  const Plan plan = plan_from_json(document, vision_model(), "plan.json");
  EXPECT_EQ(plan.num_lanes(), 4) << "one lane a stage";
  EXPECT_EQ(plan.lane_of(1, 1), 3);
  EXPECT_EQ(plan.policy, "entrain");
  EXPECT_EQ(plan.schedule, "1f1b");
  EXPECT_EQ(plan.limits, PlanLimits{});
  EXPECT_EQ(plan.modules[0].tensor_parallel, 1);
}

TEST(PlanFromJson, ReadsModulesInAnyOrder) {
  Json document = plan_json();
  const Json vision = document["modules"]["vision"];
  document["modules"].erase("vision");
  document["modules"]["vision"] = vision;
  EXPECT_EQ(plan_from_json(document, vision_model(), "p"),
            plan_from_json(plan_json(), vision_model(), "p"));
}

TEST(PlanFromJson, ReadsFilesAndNamesThem) {
  const auto path = std::filesystem::temp_directory_path() / "entrain-plan-test.json";
  write_file(path, plan_json().dump(2));
  EXPECT_EQ(read_plan(path, vision_model()), plan_from_json(plan_json(), vision_model(), "p"));
  write_file(path, R"({"version": 2})");
  const std::string message = error_of<InvalidInput>([&] { read_plan(path, vision_model()); });
  EXPECT_EQ(message, path.string() + ": version: 2 given; this program reads 1");
  std::filesystem::remove(path);
}

TEST(PlanFromJson, SaysThatAFileIsAProfile) {
  EXPECT_EQ(error_of<InvalidInput>([] {
              plan_from_json({{"version", 1}, {"device", "x"}}, vision_model(), "p.json");
            }),
            "p.json: a profile; a plan is needed (entrain plan -o plan.json)");
  EXPECT_EQ(error_of<InvalidInput>([] {
              profile_from_json({{"version", 1}, {"replicas", 2}}, "p.json");
            }),
            "p.json: a plan; a profile is needed (entrain profile -o profile.json)");
}

TEST(PlanFromJson, RefusesUnknownAndMissingKeys) {
  EXPECT_EQ(plan_message_after("/replica", "1"),
            "plan.json: replica: unknown key, did you mean 'replicas'?");
  EXPECT_EQ(plan_message_after("/limits/chunk", "true"),
            "plan.json: limits.chunk: unknown key, did you mean 'chunks'?");
  EXPECT_EQ(plan_message_after("/modules/vision/stage", "[]"),
            "plan.json: modules.vision.stage: unknown key, did you mean 'stages'?");
  EXPECT_EQ(plan_message_after("/modules/visio", "{}"),
            "plan.json: modules.visio: unknown key, did you mean 'vision'?");
  EXPECT_EQ(plan_message_after("/modules/llm", "null"), "plan.json: modules.llm: missing");
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "null"),
            "plan.json: modules.vision.stages: missing");
}

TEST(PlanFromJson, RefusesWhatIsNotARangeOrAStage) {
  EXPECT_EQ(plan_message_after("/modules/llm/stages/1", "[3]"),
            "plan.json: modules.llm.stages[1]: [3] is not a range; write [first, one past last]");
  EXPECT_EQ(plan_message_after("/modules/llm/stages/1/0", "\"3\""),
            "plan.json: modules.llm.stages[1][0]: \"3\" is a string, but an integer is needed");
  EXPECT_EQ(plan_message_after("/lanes/0/0", "[\"vision\"]"),
            "plan.json: lanes[0][0]: [\"vision\"] is not a stage; write [module, index]");
  EXPECT_EQ(plan_message_after("/lanes/0/0/0", "\"vison\""),
            "plan.json: lanes[0][0][0]: no module 'vison', did you mean 'vision'?");
}

TEST(ValidatePlan, RefusesCountsOutOfRange) {
  EXPECT_EQ(plan_message_after("/replicas", "0"),
            "plan.json: replicas: 0 is out of range; allowed: 1 to 65,536");
  EXPECT_EQ(plan_message_after("/num_slots", "0"),
            "plan.json: num_slots: 0 is out of range; allowed: 1 to 65,536");
  EXPECT_EQ(plan_message_after("/modules/vision/tensor_parallel", "0"),
            "plan.json: modules.vision.tensor_parallel: 0 is out of range; allowed: 1 to 1,024");
  EXPECT_EQ(plan_message_after("/modules/llm/context_parallel", "-1"),
            "plan.json: modules.llm.context_parallel: -1 is out of range; allowed: 1 to 1,024");
  EXPECT_EQ(
      plan_message_after("/limits/lane_bytes", "[7]").find("plan.json: limits.lane_bytes: 1 "), 0);
  EXPECT_EQ(
      plan_message_after("/limits/lane_bytes", "[-1]"),
      "plan.json: limits.lane_bytes: -1 is out of range; allowed: 0 to 1,000,000,000,000,000");
  EXPECT_EQ(
      plan_message_after("/limits/bytes_per_lane", "-1"),
      "plan.json: limits.bytes_per_lane: -1 is out of range; allowed: 0 to 1,000,000,000,000,000");
  EXPECT_EQ(plan_message_after("/limits/max_deferral", "-2"),
            "plan.json: limits.max_deferral: -2 is out of range; allowed: -1 to 65,536");
  EXPECT_EQ(plan_message_after("/limits/evaluations", "-1"),
            "plan.json: limits.evaluations: -1 is out of range; allowed: 0 to 1,000,000");
}

TEST(ValidatePlan, RefusesStagesThatDoNotTileTheModule) {
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "[[0, 2], [3, 6]]"),
            "plan.json: modules.vision.stages[1]: begins at layer 3; layers 2 to 2 are covered by "
            "no stage");
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "[[0, 3], [2, 6]]"),
            "plan.json: modules.vision.stages[1]: begins at layer 2, which an earlier stage "
            "covers; 3 is needed");
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "[[0, 2], [2, 5]]"),
            "plan.json: modules.vision.stages: layers 5 to 5 are covered by no stage");
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "[[0, 2], [2, 7]]"),
            "plan.json: modules.vision.stages[1]: ends at layer 7; the module has 6 layers");
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "[[1, 2], [2, 6]]"),
            "plan.json: modules.vision.stages[0]: begins at layer 1; layers 0 to 0 are covered by "
            "no stage");
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "[[0, 0], [0, 6]]"),
            "plan.json: modules.vision.stages[0]: [0, 0] holds no layer");
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "[[2, 6], [0, 2]]"),
            "plan.json: modules.vision.stages[0]: begins at layer 2; layers 0 to 1 are covered by "
            "no stage");
  EXPECT_EQ(plan_message_after("/modules/vision/stages", "[]"),
            "plan.json: modules.vision.stages: the list is empty; every module needs at least one "
            "stage");
}

TEST(ValidatePlan, RefusesLanesThatDoNotHoldEveryStageOnce) {
  EXPECT_EQ(plan_message_after("/lanes", R"([[["vision", 0]], [["vision", 1]], [["llm", 1]]])"),
            "plan.json: lanes: stage 0 of 'llm' is on no lane");
  EXPECT_EQ(plan_message_after("/lanes/0", R"([["vision", 0], ["llm", 1]])"),
            "plan.json: lanes[2]: stage 1 of 'llm' is on lane 0 and on lane 2");
  EXPECT_EQ(plan_message_after("/lanes/0", R"([["vision", 2]])"),
            "plan.json: lanes[0]: 'vision' has no stage 2; it has 2");
  EXPECT_EQ(plan_message_after("/lanes/0", R"([["vision", -1]])"),
            "plan.json: lanes[0]: 'vision' has no stage -1; it has 2");
  EXPECT_EQ(plan_message_after("/lanes/3", "[]"), "plan.json: lanes[3]: a lane without stages");
  EXPECT_EQ(
      plan_message_after("/lanes", R"([[["vision", 1], ["vision", 0]], [["llm", 0], ["llm", 1]]])"),
      "plan.json: lanes[0]: stage 0 of 'vision' is after stage 1; rising order is needed");
}

TEST(ValidatePlan, RefusesLanesOfUnequalRanks) {
  const std::string message = plan_message_after("/modules/llm/tensor_parallel", "2");
  EXPECT_EQ(message.rfind("plan.json: lanes[1]: 'llm' runs on 2 ranks", 0), 0U) << message;
  Json document = plan_json();
  document["modules"]["llm"]["tensor_parallel"] = 2;
  document["modules"]["vision"]["context_parallel"] = 2;
  EXPECT_NO_THROW(plan_from_json(document, vision_model(), "plan.json")) << "2 x 1 is 1 x 2";
}

TEST(ValidatePlan, RefusesModulesOfAnotherModel) {
  Plan plan = plan_from_json(plan_json(), vision_model(), "plan.json");
  ModelSpec model = vision_model();
  model.encoders[0].name = "eyes";
  EXPECT_EQ(error_of<InvalidInput>([&] { validate(plan, model, "plan.json"); }),
            "plan.json: modules: the plan holds vision, llm; the model has eyes, llm");
  model.encoders.clear();
  EXPECT_EQ(error_of<InvalidInput>([&] { plan_from_json(plan_json(), model, "plan.json"); }),
            "plan.json: modules.vision: unknown key; allowed: llm");
  plan.modules.clear();
  EXPECT_THROW(validate(plan, vision_model(), "plan.json"), InvalidInput);
  plan = plan_from_json(plan_json(), vision_model(), "plan.json");
  plan.lanes[0][0].module = 2;
  EXPECT_THROW(validate(plan, vision_model(), "plan.json"), InvalidInput);
}

TEST(Plan, FindsTheLaneOfAStage) {
  const Plan plan = plan_from_json(plan_json(), vision_model(), "plan.json");
  EXPECT_EQ(plan.lane_of(0, 0), 0);
  EXPECT_EQ(plan.lane_of(0, 1), 1);
  EXPECT_EQ(plan.lane_of(1, 0), 1);
  EXPECT_EQ(plan.lane_of(1, 1), 2);
  EXPECT_EQ(plan.lane_of(1, 2), -1);
  EXPECT_EQ(plan.num_lanes(), 3);
}

TEST(EvenPlan, CutsLayersNearEqually) {
  const ModelSpec model = vision_model();
  for (int vision = 1; vision <= 6; ++vision) {
    for (int llm = 1; llm <= 5; ++llm) {
      const Plan plan = even_plan(model, {vision, llm}, 3, 7);
      EXPECT_NO_THROW(validate(plan, model, "plan"));
      EXPECT_EQ(plan.num_lanes(), vision + llm);
      EXPECT_EQ(plan.replicas, 3);
      EXPECT_EQ(plan.num_slots, 7);
      for (std::size_t module = 0; module < 2; ++module) {
        const int layers = num_layers(model, static_cast<int>(module));
        const int count = static_cast<int>(plan.modules[module].stages.size());
        for (const LayerRange& range : plan.modules[module].stages) {
          EXPECT_GE(range.end - range.begin, layers / count);
          EXPECT_LE(range.end - range.begin, (layers + count - 1) / count);
        }
      }
    }
  }
}

TEST(EvenPlan, RefusesWhatTheModelCannotBeCutInto) {
  const ModelSpec model = vision_model();
  EXPECT_EQ(error_of<InvalidInput>([&] {
              even_plan(model, {7, 1}, 1, 1);
            }),
            "7 stages given for module 'vision'; 1 to 6 are possible");
  EXPECT_EQ(error_of<InvalidInput>([&] {
              even_plan(model, {1, 0}, 1, 1);
            }),
            "0 stages given for module 'llm'; 1 to 5 are possible");
  EXPECT_EQ(error_of<InvalidInput>([&] { even_plan(model, {1}, 1, 1); }),
            "1 stage counts given for the 2 modules vision, llm");
  EXPECT_THROW(even_plan(model, {1, 1}, 0, 1), InvalidInput);
}

TEST(PlanDigest, LeavesOutTheCertificateAlone) {
  const Plan base = plan_from_json(plan_json(), vision_model(), "plan.json");
  Plan plan = base;
  plan.certificate.ratio = 9;
  EXPECT_EQ(digest(plan), digest(base));
  plan = base;
  plan.limits.evaluations += 1;
  EXPECT_NE(digest(plan), digest(base));
  plan = base;
  plan.modules[0].stages = {{0, 3}, {3, 6}};
  EXPECT_NE(digest(plan), digest(base));
  plan = base;
  plan.lanes = default_lanes(plan.modules);
  EXPECT_NE(digest(plan), digest(base));
}

TEST(Plan, HasMoreEvaluationsForMoreReplicas) {
  EXPECT_EQ(default_evaluations(1), 1800);
  EXPECT_EQ(default_evaluations(4), 1800);
  EXPECT_EQ(default_evaluations(6), 2449);
  EXPECT_EQ(default_evaluations(16), 4000);
  EXPECT_EQ(default_evaluations(128), 11313);
  EXPECT_LE(default_evaluations(65'536), 1'000'000);
}

TEST(Plan, SaysWhetherTheOptimizerIsSharded) {
  const ModelSpec model = vision_model();
  Plan plan = plan_from_json(plan_json(), model, "plan.json");
  EXPECT_FALSE(plan.shard_optimizer);
  EXPECT_FALSE(to_json(plan).contains("shard_optimizer")) << "digests of earlier plans hold";
  const std::string before = digest(plan);
  plan.shard_optimizer = true;
  EXPECT_TRUE(plan_from_json(to_json(plan), model, "plan.json").shard_optimizer);
  EXPECT_NE(digest(plan), before);
}

}  // namespace
}  // namespace entrain
