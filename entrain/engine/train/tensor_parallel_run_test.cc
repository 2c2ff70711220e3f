// Whole runs whose lanes have several ranks, against the same runs on one rank a lane.
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/checkpoint/read.h"
#include "entrain/engine/models/weights.h"
#include "entrain/engine/train/memory_report.h"
#include "entrain/engine/train/trainer.h"

#include "tests/oracle/engine/tiny_run.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
namespace fs = std::filesystem;
using tiny::train_now;

using Degrees = std::map<std::string, int>;

// Training and validation losses with gradient norms.
std::vector<double> figures_of(const RunConfig& config) {
  std::vector<double> figures;
  for (const Json& line : tiny::metrics_of(fs::path(config.output) / "metrics.jsonl")) {
    figures.push_back(line.contains("loss") ? line["loss"].get<double>()
                                            : line["validation_loss"].get<double>());
    figures.push_back(line.value("grad_norm", 0.0));
  }
  return figures;
}

std::string weights_of(const RunConfig& config) {
  return read_file(fs::path(config.output) / "weights.safetensors");
}

class TensorParallelRun : public testing::Test {
 protected:
  TensorParallelRun() {
    std::string model = read_file(run_.path("model.toml"));
    const std::string key = "num_kv_heads = 1";
    model.replace(model.find(key), key.size(), "num_kv_heads = 2");
    run_.write("model.toml", model);
    run_.config.steps = 10;
    run_.config.validation.every = 4;
    run_.config.plan.stages = {{"llm", 2}};
  }

  [[nodiscard]] RunConfig run_of(const std::string& name, const Degrees& degrees = {}) const {
    RunConfig config = run_.config;
    config.output = run_.path(name).string();
    config.plan.tensor_parallel = degrees;
    return config;
  }

  // By the tolerance for ten steps. Weights are whole; Adam makes steps of gradients that are
  // nothing but rounding, so their values say less than losses do.
  static void expect_near(const RunConfig& run, const RunConfig& expected) {
    const std::vector<double> figures = figures_of(run);
    const std::vector<double> wanted = figures_of(expected);
    ASSERT_EQ(figures.size(), wanted.size());
    for (std::size_t i = 0; i < figures.size(); ++i) {
      EXPECT_NEAR(figures[i], wanted[i], 1e-5 * std::max(1.0, std::abs(wanted[i]))) << i;
    }
    const std::vector<NamedParameter> weights =
        read_weights(fs::path(run.output) / "weights.safetensors").tensors;
    const std::vector<NamedParameter> wanted_weights =
        read_weights(fs::path(expected.output) / "weights.safetensors").tensors;
    ASSERT_EQ(weights.size(), wanted_weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i].name, wanted_weights[i].name);
      EXPECT_EQ(weights[i].tensor.sizes(), wanted_weights[i].tensor.sizes()) << weights[i].name;
    }
  }

  static void expect_same(const RunConfig& run, const RunConfig& expected) {
    EXPECT_EQ(figures_of(run), figures_of(expected));
    EXPECT_TRUE(weights_of(run) == weights_of(expected));
  }

  tiny::RunFolder run_;
};

TEST_F(TensorParallelRun, LearnsWhatOneRankALaneLearns) {
  for (const int replicas : {1, 2}) {
    run_.config.plan.replicas = replicas;
    const RunConfig one = run_of(concat("one", replicas));
    train_now(one);
    int number = 0;
    for (const Degrees& degrees :
         {Degrees{{"llm", 2}}, Degrees{{"vision", 2}}, Degrees{{"vision", 2}, {"llm", 2}}}) {
      const RunConfig split = run_of(concat("split", replicas, number++), degrees);
      train_now(split);
      expect_near(split, one);
    }
  }
}

TEST_F(TensorParallelRun, SchedulesAndRecomputationLearnTheSame) {
  const RunConfig one = run_of("one");
  train_now(one);
  run_.config.execution.recompute.kind = RecomputeKind::kFull;
  for (const char* schedule : {"zb-h1", "entrain"}) {
    run_.config.plan.schedule = schedule;
    const RunConfig split = run_of(schedule, {{"vision", 2}, {"llm", 2}});
    train_now(split);
    expect_near(split, one);
  }
}

TEST_F(TensorParallelRun, ShardedOptimizersChangeNoBit) {
  run_.config.plan.replicas = 2;
  const RunConfig whole = run_of("whole", {{"llm", 2}});
  train_now(whole);
  run_.config.plan.shard_optimizer = true;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    run_.config.execution.precision = precision;
    RunConfig sharded = run_of(concat("sharded", name_of(precision)), {{"llm", 2}});
    train_now(sharded);
    if (precision == Precision::kFp32) {
      EXPECT_TRUE(weights_of(sharded) == weights_of(whole));
    } else {
      RunConfig apart = run_of("apart", {{"llm", 2}});
      apart.plan.shard_optimizer = false;
      train_now(apart);
      EXPECT_TRUE(weights_of(sharded) == weights_of(apart));
    }
  }
}

// Checkpoints hold whole tensors, so a run goes on under any degree: at the same one to the last
// bit.
TEST_F(TensorParallelRun, GoesOnAtTheSameDegreeOrAnother) {
  run_.config.checkpoint.every_steps = 3;
  const Degrees both{{"vision", 2}, {"llm", 2}};
  const RunConfig one = run_of("one");
  const RunConfig split = run_of("split", both);
  train_now(one);
  train_now(split);
  for (const Degrees& before : {Degrees{}, both}) {
    for (const Degrees& behind : {Degrees{}, both, Degrees{{"llm", 2}}}) {
      const std::string name = concat("from", before.size(), "to", behind.size());
      RunConfig run = run_of(name, before);
      run.execution.fault_drill = {0, 1, 7};
      error_of<InternalError>([&] { train_now(run); });
      EXPECT_TRUE(verify_checkpoint(checkpoint_folder(run) / checkpoint_name(6)).ok());
      run.execution.fault_drill = {};
      run.plan.tensor_parallel = behind;
      EXPECT_EQ(train_now(run).first_step, 6) << name;
      if (before == behind) {
        expect_same(run, before.empty() ? one : split);
      } else {
        expect_near(run, one);
      }
    }
  }
}

// A frozen module, its frozen weights whole in the checkpoint too.
TEST_F(TensorParallelRun, KeepsFrozenWeights) {
  run_.config.freeze = {"vision"};
  const RunConfig one = run_of("one");
  const RunConfig split = run_of("split", {{"vision", 2}, {"llm", 2}});
  train_now(one);
  train_now(split);
  expect_near(split, one);
}

TEST_F(TensorParallelRun, MemoryIsEachRanksPart) {
  run_.config.steps = 1;
  run_.config.plan.replicas = 2;
  const RunConfig split = run_of("split", {{"llm", 2}});
  train_now(split);
  const Json records = read_json_file(fs::path(split.output) / kMemoryReportName);
  ASSERT_EQ(records.size(), 10U);
  std::set<std::tuple<int, int, int>> places;
  for (const Json& record : records) {
    places.emplace(
        record["replica"].get<int>(), record["lane"].get<int>(), record["tensor_rank"].get<int>());
    for (const char* part : {"parameter_bytes", "gradient_bytes", "optimizer_bytes"}) {
      const auto held = record[part].get<double>();
      const auto predicted = record[concat("predicted_", part)].get<double>();
      EXPECT_GE(held, predicted) << part << " " << record;
      EXPECT_LE(held, 1.15 * predicted) << part << " " << record;  // padding of a tiny lane
    }
  }
  EXPECT_EQ(places.size(), 10U);
}

// One row a lane in the metrics, one of its ranks in the timeline.
TEST_F(TensorParallelRun, MetricsAndTimelinesHaveLanes) {
  run_.config.steps = 2;
  run_.config.execution.trace_step = 1;
  run_.config.execution.measure_memory = true;
  const RunConfig split = run_of("split", {{"llm", 2}});
  train_now(split);
  const std::vector<Json> rows = tiny::metrics_of(fs::path(split.output) / "metrics.jsonl");
  const Json& lanes = rows.at(1)["lanes"];
  ASSERT_EQ(lanes.size(), 3U);
  for (std::size_t lane = 0; lane < 3; ++lane) {
    EXPECT_EQ(lanes[lane]["lane"], lane);
    EXPECT_GT(lanes[lane]["busy_s"], 0.0);
    EXPECT_GT(lanes[lane]["peak_bytes"], 0);
  }
  std::map<int, std::set<std::string>> forwards;  // by lane
  const Json trace = read_json_file(fs::path(split.output) / "trace_measured.json");
  for (const Json& event : trace["traceEvents"]) {
    if (event.value("name", "") == "forward") {
      const Json& args = event["args"];
      const std::string unit =
          concat(args["module"].dump(), args["stage"].dump(), args["slot"].dump(), args.dump());
      EXPECT_TRUE(forwards[args["lane"].get<int>()].insert(unit).second) << unit;
    }
  }
  EXPECT_EQ(forwards.size(), 3U);
}

TEST_F(TensorParallelRun, AnImageIsDecodedOnceForAllRanksOfALane) {
  run_.config.steps = 3;
  const RunConfig one = run_of("one");
  const RunConfig split = run_of("split", {{"vision", 2}, {"llm", 2}});
  train_now(one);
  train_now(split);
  // Patches count once a segment; an image of several segments may well be decoded again between
  // them, where a consumer's wish interrupts the order.
  const auto patches = [](const RunConfig& run) {
    std::vector<std::int64_t> numbers;
    for (const Json& row : tiny::metrics_of(fs::path(run.output) / "metrics.jsonl")) {
      if (row.contains("loss")) {
        numbers.push_back(row["decoded"]["patches"].get<std::int64_t>());
      }
    }
    return numbers;
  };
  EXPECT_EQ(patches(split), patches(one));
  EXPECT_GT(patches(one).at(0), 0);
}

TEST_F(TensorParallelRun, AFailureNamesTheTensorRank) {
  run_.config.execution.fault_drill = {0, 2, 3};
  const RunConfig split = run_of("split", {{"llm", 2}});
  const std::string message = error_of<InternalError>([&] { train_now(split); });
  EXPECT_NE(message.find("rank 3 (replica 0 lane 2 tensor rank 0), step 3"), std::string::npos)
      << message;
  for (int rank = 0; rank < 5; ++rank) {
    const Json dump =
        read_json_file(fs::path(split.output) / "dumps" / concat("rank-", rank, ".json"));
    EXPECT_EQ(dump["num_ranks"], 5) << dump;
  }
}

TEST_F(TensorParallelRun, PacedRanksWaitAlike) {
  run_.config.steps = 2;
  run_.config.execution.paced = true;
  const RunConfig split = run_of("split", {{"vision", 2}, {"llm", 2}});
  EXPECT_EQ(train_now(split).steps, 2);
}

}  // namespace
}  // namespace entrain::engine
