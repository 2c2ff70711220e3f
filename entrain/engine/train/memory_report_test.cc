#include "entrain/engine/train/memory_report.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/tiny_run.h"

namespace entrain::engine {
namespace {

// Alignment of flat buffers adds at most this much to what a tiny lane holds.
constexpr double kAlignment = 0.10;

TEST(MemoryReport, IsAsPredictedInEveryMode) {
  tiny::RunFolder run;
  run.config.steps = 1;
  run.config.plan.stages = {{"llm", 2}};
  run.config.plan.replicas = 2;
  const std::atomic<bool> interrupted{false};
  std::map<std::string, double> optimizer_bytes;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const bool sharded : {false, true}) {
      for (const bool frozen : {false, true}) {
        const std::string name =
            concat(name_of(precision), sharded ? " sharded" : "", frozen ? " frozen" : "");
        SCOPED_TRACE(name);
        run.config.output = run.path(name).string();
        run.config.execution.precision = precision;
        run.config.plan.shard_optimizer = sharded;
        run.config.freeze =
            frozen ? std::vector<std::string>{"vision"} : std::vector<std::string>{};
        train(prepare_run(run.config), interrupted);
        const Json records = read_json_file(run.output(kMemoryReportName));
        ASSERT_EQ(records.size(), 6U);
        for (const Json& record : records) {
          for (const char* part : {"parameter_bytes", "gradient_bytes", "optimizer_bytes"}) {
            const auto held = record[part].get<double>();
            const auto predicted = record[concat("predicted_", part)].get<double>();
            EXPECT_GE(held, predicted) << part << " " << record;
            EXPECT_LE(held, (1 + kAlignment) * predicted) << part << " " << record;
          }
          optimizer_bytes[name] += record["optimizer_bytes"].get<double>();
        }
      }
    }
  }
  EXPECT_NEAR(optimizer_bytes["fp32 sharded"] / optimizer_bytes["fp32"], 0.5, 0.02);
  EXPECT_NEAR(optimizer_bytes["bf16"] / optimizer_bytes["fp32"], 1.5, 0.01);
  EXPECT_LT(optimizer_bytes["fp32 frozen"], optimizer_bytes["fp32"]);
}

}  // namespace
}  // namespace entrain::engine
