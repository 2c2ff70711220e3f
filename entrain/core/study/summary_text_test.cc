#include <gtest/gtest.h>

#include "entrain/core/study/summary.h"

namespace entrain {
namespace {

CaseStep gain_step(std::int64_t step_ns, std::int64_t bound_ns) {
  CaseStep step;
  step.step_ns = step_ns;
  step.bound_ns = bound_ns;
  step.num_slots = {4};
  step.balance = {{}};
  step.replicas = {{}};
  return step;
}

TEST(GainText, PartsPolicyAndSchedule) {
  const auto of = [](const char* policy, const char* schedule, std::int64_t ns) {
    return CaseResult{policy, schedule, {gain_step(ns, 100)}, 4};
  };
  const std::vector<CaseSummary> all = summarise({of("sequential", "1f1b", 600),
                                                  of("lpt-2d", "1f1b", 500),
                                                  of("entrain", "1f1b", 400),
                                                  of("sequential", "zb", 480),
                                                  of("lpt-2d", "zb", 330),
                                                  of("entrain", "zb", 300)});
  EXPECT_EQ(gain_text(all),
            "gain: entrain with zb is 2.000x as fast as sequential with 1f1b; policy alone "
            "(entrain with 1f1b) 1.500x; schedule alone (sequential with zb) 1.250x; 1.100x as "
            "fast as the best other policy with that schedule that fits, lpt-2d\n");
  const std::vector<CaseSummary> one = summarise(
      {of("sequential", "1f1b", 600), of("lpt-2d", "1f1b", 500), of("entrain", "1f1b", 400)});
  EXPECT_EQ(
      gain_text(one),
      "gain: entrain with 1f1b is 1.500x as fast as sequential with 1f1b, all of it by the "
      "policy; 1.250x as fast as the best other policy with that schedule that fits, lpt-2d\n");
  EXPECT_EQ(gain_text({one[0]}), "");
  EXPECT_EQ(gain_text({}), "");
}

TEST(SummaryText, SaysWhatReductionsTake) {
  const auto text_of = [](std::int64_t reduction_ns) {
    CaseStep step = gain_step(160, 100);
    step.causes = GapCauses();
    step.reduction_ns = reduction_ns;
    return to_string(summarise({{"entrain", "1f1b", {step}, 4}}), {}, {});
  };
  EXPECT_NE(text_of(60).find("up to 60.0 % of the bound on one lane"), std::string::npos);
  EXPECT_EQ(text_of(0).find("reduction of gradients"), std::string::npos);
}

}  // namespace
}  // namespace entrain
