#include "entrain/core/cost/consistency.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

TEST(SlotWarnings, CountSlotsWithoutASample) {
  Plan plan;
  plan.replicas = 2;
  plan.num_slots = 4;
  EXPECT_TRUE(slot_warnings(plan, 8).empty());
  EXPECT_TRUE(slot_warnings(plan, 7).empty()) << "one replica has four";
  const std::vector<std::string> warnings = slot_warnings(plan, 5);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            "num_slots = 4 for a global batch of 5 over 2 replicas, at most 3 samples per replica: "
            "at least 1 slot without LLM work");
  plan.limits.chunks = true;
  EXPECT_TRUE(slot_warnings(plan, 5).empty()) << "chunks of a sample take a slot each";
}

TEST(ProfileWarnings, NameAProfileOfNoModel) {
  Profile profile;
  profile.model_digest = "0123";
  EXPECT_TRUE(profile_warnings(profile, "p.json").empty());
  profile.model_digest = "";
  const std::vector<std::string> warnings = profile_warnings(profile, "p.json");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("'p.json' has no model_digest"), std::string::npos) << warnings[0];
}

}  // namespace
}  // namespace entrain
