#include "entrain/core/cost/runnable.h"

#include <gtest/gtest.h>

#include "entrain/core/cost/analytic.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/paper_costs.h"

namespace entrain {
namespace {

TEST(CheckRunnable, NamesModuleDegreeAndWhatItDoesNotDivide) {
  const ModelSpec model = oracle::eight_head_model(1);
  Plan plan = even_plan(model, {1, 1}, 1, 1);
  EXPECT_NO_THROW(check_runnable(plan, model, "plan"));
  const auto expect_refused = [&](const std::vector<std::string>& words) {
    const std::string message =
        oracle::error_of<InvalidInput>([&] { check_runnable(plan, model, "plan.json"); });
    for (const std::string& word : words) {
      EXPECT_NE(message.find(word), std::string::npos) << message;
    }
  };
  plan.modules[1].tensor_parallel = 8;
  expect_refused({"plan.json: module 'llm'", "tensor_parallel 8", "num_kv_heads 4"});
  plan.modules[1].tensor_parallel = 1;
  plan.modules[0].tensor_parallel = 3;
  expect_refused({"module 'vision'", "tensor_parallel 3", "num_heads 8"});
  plan.modules[0].tensor_parallel = 1;
  plan.modules[0].context_parallel = 2;
  expect_refused({"module 'vision'", "context_parallel 2", "runs 1"});
}

TEST(EngineRuns, NoExchangeOfTiedEmbeddings) {
  EXPECT_FALSE(engine_runs(OperationKind::kSyncTied));
  EXPECT_TRUE(engine_runs(OperationKind::kForward));
}

TEST(KeepRunnable, LeavesOutContextParallelismAndSaysSo) {
  const ModelSpec model = oracle::eight_head_model(1);
  Profile profile = analytic_profile(model, device_model("a40"), {{1, 2}, {1, 2, 4}});
  EXPECT_EQ(keep_runnable(profile), "context parallelism 2, 4");
  EXPECT_FALSE(profile.layers.empty());
  for (const LayerProfile& layer : profile.layers) {
    EXPECT_EQ(layer.context_parallel, 1);
  }
  EXPECT_EQ(keep_runnable(profile), "") << "nothing is left to leave out";
  Profile only = analytic_profile(model, device_model("a40"), {{1}, {2}});
  const std::string message = oracle::error_of<InvalidInput>([&] { keep_runnable(only); });
  EXPECT_NE(message.find("only at context parallelism 2"), std::string::npos) << message;
  EXPECT_NE(message.find("--for-study"), std::string::npos) << message;
}

}  // namespace
}  // namespace entrain
