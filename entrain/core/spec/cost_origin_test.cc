#include "entrain/core/spec/cost_origin.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"
#include "tests/oracle/tiny_models.h"

namespace entrain {
namespace {

const CostOrigin kMeasured{"p.json", "cpu", "Processor 9", "float32", true};
const CostOrigin kAssumed{"analytic:a40", "a40", "", "bfloat16", false};

TEST(CostOrigin, NamesDeviceAndProfile) {
  EXPECT_EQ(to_string(kMeasured), "device cpu (Processor 9), float32; profile p.json, measured");
  EXPECT_EQ(to_string(kAssumed), "device a40, bfloat16; profile analytic:a40, not measured");
  EXPECT_EQ(to_string(CostOrigin{"costs: c.csv", "", "", "", false}), "costs: c.csv");
}

TEST(CostOrigin, IsKeptInPlanFiles) {
  const oracle::TemporaryFolder folder;
  const ModelSpec model = oracle::small_model();
  const Plan plan = even_plan(model, {1, 1, 1}, 1, 4);
  const Json document = with_origin(to_json(plan), kMeasured);
  EXPECT_EQ(document.dump().find(
                R"({"version":1,"replicas":1,"num_slots":4,"costs":{"profile":"p.json","device":)"),
            0U)
      << document.dump();
  const auto path = folder.write("plan.json", document.dump());
  EXPECT_EQ(plan_origin(path), kMeasured);
  EXPECT_EQ(read_plan(path, model), plan) << "the plan is the same";
  const auto old = folder.write("old.json", to_json(plan).dump());
  EXPECT_EQ(plan_origin(old), std::nullopt);
  Json wrong = document;
  wrong["costs"]["devise"] = "cpu";
  const auto bad = folder.write("bad.json", wrong.dump());
  EXPECT_NE(oracle::error_of<InvalidInput>([&] {
              read_plan(bad, model);
            }).find("costs.devise: unknown key, did you mean 'device'"),
            std::string::npos);
}

TEST(CostOrigin, IsKeptInProfiles) {
  const oracle::TemporaryFolder folder;
  Profile profile;
  profile.device = "cpu";
  profile.source = "measured";
  const auto path = folder.write("p.json", with_machine(to_json(profile), "Processor 9").dump());
  EXPECT_EQ(profile_machine(path), "Processor 9");
  EXPECT_EQ(read_profile(path).device, "cpu");
  EXPECT_EQ(profile_machine(folder.write("old.json", to_json(profile).dump())), "");
}

TEST(OriginMismatch, KnowsThisMachine) {
  EXPECT_EQ(origin_mismatch(kMeasured, "cpu", "Processor 9"), "");
  EXPECT_EQ(origin_mismatch(kMeasured, "cpu", "Processor 10"),
            "measured on 'Processor 9', this machine has 'Processor 10'");
  EXPECT_EQ(origin_mismatch(kMeasured, "cuda", "GPU"),
            "measured on device cpu, the run computes on cuda");
  EXPECT_EQ(origin_mismatch(kAssumed, "cpu", "a40"), "not measured (analytic, of device a40)");
  CostOrigin old = kMeasured;
  old.machine.clear();
  EXPECT_EQ(origin_mismatch(old, "cpu", "Processor 10"), "") << "nobody can know";
  EXPECT_EQ(origin_mismatch(kMeasured, "cpu", ""), "");
  EXPECT_EQ(origin_mismatch(CostOrigin{"costs: c.csv", "", "", "", false}, "cpu", "X"), "");
}

}  // namespace
}  // namespace entrain
