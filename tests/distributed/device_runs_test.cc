// Whole runs on devices that are not the processor, as far as a machine without any can tell: that
// every tensor lies where it is used, that nothing reads a device's memory from the host, and that
// losses, weights, checkpoints and what is measured are those of the processor.
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"

#include "entrain/engine/models/live_bytes.h"
#include "entrain/engine/models/weights.h"
#include "entrain/engine/pipeline/device_times.h"

#include "tests/oracle/engine/device_run.h"
#include "tests/oracle/engine/stand_in_device.h"
#include "tests/oracle/engine/tiny_step.h"
#include "tests/oracle/expect_error.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using oracle::kStandInName;
using oracle::stand_in_bytes;
using oracle::stand_in_device;

class StandIn : public testing::Test {
 protected:
  StandIn() { oracle::set_stand_in_count(oracle::kStandIns); }
  at::Device device_ = stand_in_device();
};

TEST_F(StandIn, IsNoPlaceForTheHost) {
  const at::Tensor host = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor device = host.to(device_);
  EXPECT_EQ(device.device().str(), "standin:0");
  EXPECT_TRUE(at::equal((device.t() + 1).cpu(), host.t() + 1));
  EXPECT_TRUE(at::equal(device.narrow(1, 1, 2).to(stand_in_device(1)).cpu(), host.narrow(1, 1, 2)));
  EXPECT_THROW(at::add(device, host), c10::Error) << "torch's own check";
  const at::Tensor ids = at::zeros({2}, at::kLong);
  EXPECT_EQ(at::embedding(device, ids.to(device_)).sizes(), at::IntArrayRef({2, 3}));
  EXPECT_THROW(at::embedding(device, ids), InternalError);
  EXPECT_THROW(at::embedding(device, ids.to(stand_in_device(1))), InternalError);
  EXPECT_EXIT(
      {
        volatile float value = device.data_ptr<float>()[0];
        static_cast<void>(value);
      },
      testing::KilledBySignal(SIGSEGV),
      "");
}

TEST_F(StandIn, CountsItsOwnBytes) {
  const std::int64_t before = stand_in_bytes();
  const LiveBytes live(at::kPrivateUse1);
  const LiveBytes none;
  {
    const at::Tensor device = at::empty({256}, at::TensorOptions(device_));
    EXPECT_EQ(stand_in_bytes() - before, 1024);
  }
  EXPECT_EQ(stand_in_bytes(), before);
}

TEST_F(StandIn, ReportsTimesOnTheHostsClock) {
  const auto before = DeviceTimes::Clock::now();
  DeviceTimes times(device_);
  for (const int position : {7, 3}) {
    times.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    times.end(position);
  }
  const std::vector<DeviceTimes::Span> spans = times.take();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].position, 7);
  EXPECT_EQ(spans[1].position, 3);
  EXPECT_GE(spans[0].start, before);
  EXPECT_GE(spans[0].finish - spans[0].start, std::chrono::milliseconds(5));
  EXPECT_GE(spans[1].start, spans[0].finish);
  EXPECT_GE(spans[1].finish - spans[1].start, std::chrono::milliseconds(5));
  EXPECT_LE(spans[1].finish, DeviceTimes::Clock::now());
  EXPECT_TRUE(times.take().empty());
  EXPECT_THROW(times.end(1), InternalError) << "nothing has begun";
}

TEST_F(StandIn, AStepOfTheExecutorIsTheProcessors) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    SCOPED_TRACE(schedule);
    tiny::Layout layout = {{1, 2}, 2, false, schedule};
    layout.chunks = true;
    const tiny::Step step = tiny::make_step(layout);
    const tiny::Result host = tiny::run_step(step);
    ExecutorOptions options = tiny::seeded_options();
    options.stage.device = device_;
    const tiny::Result device = tiny::run_step(step, options);
    EXPECT_NEAR(device.loss_sum, host.loss_sum, 1e-5 * std::abs(host.loss_sum));
    EXPECT_NEAR(device.gradient_norm, host.gradient_norm, 1e-5 * host.gradient_norm);
    for (const auto& [name, gradient] : host.gradients[1]) {
      const at::Tensor found = device.gradients[1].at(name);
      EXPECT_EQ(found.device(), device_) << name;
      EXPECT_LE((found.cpu() - gradient).norm().item<double>(), 1e-5 * host.gradient_norm) << name;
    }
  }
}

// Training runs on two devices, ranks in turn, beside the same runs on the processor.
class StandInRun : public StandIn, protected tiny::DeviceRun {
 protected:
  StandInRun() : DeviceRun(kStandInName) {
    at::zeros({1}, at::TensorOptions(device_)).requires_grad_(true).sum().backward();
    oracle::set_stand_in_count(2);  // of those that have a thread for backward now
  }

  void expect_the_processors(const std::string& name, double tolerance = 1e-5) const {
    const std::int64_t before = stand_in_bytes();
    DeviceRun::expect_the_processors(name, tolerance);
    EXPECT_EQ(stand_in_bytes(), before) << name << ": all is freed at the end";
  }
};

TEST_F(StandInRun, TrainsAsTheProcessorDoes) {
  expect_the_processors("plain");
  run.config.plan.replicas = 2;
  run.config.plan.shard_optimizer = true;
  expect_the_processors("sharded");
  run.config.execution.recompute = {RecomputeKind::kFull};
  run.config.optimizer.update_every = 2;
  expect_the_processors("recomputed");
}

TEST_F(StandInRun, TrainsWithChunksFreezingAndDeferredWeightGradients) {
  run.config.plan.schedule = "zb-h1";
  expect_the_processors("deferred");
  run.config.plan.chunks = true;
  run.config.plan.policy = "entrain";
  expect_the_processors("chunks");
  run.config.freeze = {"vision"};
  run.config.plan.single_lane = true;
  run.config.plan.stages = {};
  expect_the_processors("frozen");
}

TEST_F(StandInRun, TrainsTiedTables) {
  change_model("vocab_size = 264", "vocab_size = 264\ntie_word_embeddings = true");
  expect_the_processors("tied");
}

TEST_F(StandInRun, TrainsInBfloat16) {
  run.config.execution.precision = Precision::kBf16;
  run.config.plan.replicas = 2;
  run.config.plan.shard_optimizer = true;
  expect_the_processors("bf16", 2e-2);
}

// Two ranks a lane, a device each: their backward passes run on threads of the devices and meet
// there. One device has a rank of another lane besides.
TEST_F(StandInRun, TrainsLanesOfSeveralRanks) {
  change_model("num_kv_heads = 1", "num_kv_heads = 2");
  run.config.plan.stages = {};
  run.config.plan.tensor_parallel = {{"llm", 2}};
  expect_the_processors("parallel");
  oracle::set_stand_in_count(4);
  run.config.plan.tensor_parallel = {{"vision", 2}, {"llm", 2}};
  expect_the_processors("both");
}

TEST_F(StandInRun, WarnsOfAnotherDevicesCosts) {
  Profile profile = analytic_profile(run_model(run.config), device_model("cpu-2core"));
  profile.source = "measured";
  profile.device = "cpu";
  run.config.plan.profile = run.write("profile.json", to_json(profile).dump()).string();
  EXPECT_TRUE(prepare_run(on("cpu", "here")).warnings.empty());
  const std::string warnings = join(prepare_run(on("cuda", "there")).warnings);
  EXPECT_NE(warnings.find("measured on device cpu, the run computes on cuda"), std::string::npos)
      << warnings;
  RunConfig paced = on("cuda", "paced");
  paced.execution.paced = true;
  EXPECT_TRUE(prepare_run(paced).warnings.empty()) << "it does not compute";
}

// Of one lane on one device; of two lanes on the same two devices, where either's backward can hold
// the thread that the other's waits for.
TEST_F(StandInRun, RefusesRanksThatWouldWaitForEachOther) {
  change_model("num_kv_heads = 1", "num_kv_heads = 2");
  run.config.plan.tensor_parallel = {{"llm", 2}};
  for (const int devices : {1, 2}) {
    oracle::set_stand_in_count(devices);
    const RunConfig config = on_device("shared");
    const std::string message = error_of<InvalidInput>([&] { tiny::train_now(config); });
    EXPECT_NE(message.find("share device standin:"), std::string::npos) << message;
    EXPECT_NE(message.find("torchrun"), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(config.output)) << "nothing is written";
  }
}

TEST_F(StandInRun, GoesOnToTheLastBitAndOnTheProcessor) {
  run.config.plan.replicas = 2;
  run.config.plan.shard_optimizer = true;
  run.config.checkpoint.every_steps = 2;
  const RunConfig whole = on_device("whole");
  tiny::train_now(whole);
  RunConfig stopped = on_device("stopped");
  stopped.execution.fault_drill = {0, 0, 5};
  error_of<InternalError>([&] { tiny::train_now(stopped); });
  stopped.execution.fault_drill = {};
  EXPECT_EQ(tiny::train_now(stopped).first_step, 4);
  EXPECT_EQ(tiny::losses_of(stopped), tiny::losses_of(whole));
  EXPECT_TRUE(tiny::weights_of(stopped) == tiny::weights_of(whole));
  RunConfig elsewhere = on("cpu", "elsewhere");
  elsewhere.checkpoint.resume = (std::filesystem::path(whole.output) / "checkpoints").string();
  elsewhere.steps = 8;
  const std::string notes = join(prepare_run(elsewhere).resume.value().notes);
  EXPECT_NE(notes.find("execution.device was \"standin\""), std::string::npos) << notes;
  EXPECT_EQ(tiny::train_now(elsewhere).first_step, 6);
}

// Compute is timed by events of the device, laid beside the host's waits; memory is the device's.
TEST_F(StandInRun, MeasuresItsDevice) {
  run.config.execution.trace_step = 3;
  run.config.execution.measure_memory = true;
  const RunConfig device = on_device("measured");
  const RunConfig host = on("cpu", "measured-cpu");
  tiny::train_now(device);
  tiny::train_now(host);
  const std::vector<Json> rows = tiny::steps_of(device);
  const std::vector<Json> host_rows = tiny::steps_of(host);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i]["lanes"].size(), 3U);
    for (std::size_t lane = 0; lane < 3; ++lane) {
      const Json& figures = rows[i]["lanes"][lane];
      EXPECT_GT(figures["busy_s"], 0);
      EXPECT_NEAR(figures["processor_s"].get<double>(), figures["busy_s"].get<double>(), 1e-9);
      EXPECT_LE(figures["busy_s"], rows[i]["step_s"]);
      const auto bytes = figures["peak_bytes"].get<double>();
      const auto wanted = host_rows[i]["lanes"][lane]["peak_bytes"].get<double>();
      EXPECT_GE(bytes, wanted) << "lane " << lane;
      EXPECT_LE(bytes, 1.4 * wanted) << "torch's own kernels keep more than the processor's here";
    }
  }
  const Json trace =
      Json::parse(read_file(std::filesystem::path(device.output) / "trace_measured.json"));
  EXPECT_GT(trace["traceEvents"].size(), 12U);
}

}  // namespace
}  // namespace entrain::engine
