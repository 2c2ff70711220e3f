// The same arithmetic on the processor and on a GPU: kernels alone, then whole steps of the
// executor. Without a GPU every test is skipped, and says so.
#include <cmath>

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "entrain/engine/models/attention_windows.h"
#include "entrain/engine/models/layers.h"

#include "tests/oracle/engine/device_run.h"
#include "tests/oracle/engine/tiny_step.h"

namespace entrain::engine {
namespace {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || at::getNumGPUs() == 0) {
      GTEST_SKIP() << "no GPU that this torch can use";
    }
    at::globalContext().setAllowTF32CuBLAS(false);
    at::manual_seed(11);
  }

  // A leaf on the processor, and its copy on the GPU.
  struct Pair {
    at::Tensor host;
    at::Tensor device;
  };
  static Pair leaves(at::IntArrayRef shape) {
    const at::Tensor values = at::randn(shape);
    return {values.clone().requires_grad_(true),
            values.to(at::Device(at::kCUDA, 0)).requires_grad_(true)};
  }

  static void expect_near(const at::Tensor& device, const at::Tensor& host, double tolerance) {
    ASSERT_TRUE(device.defined() && host.defined());
    EXPECT_TRUE(device.is_cuda());
    const at::Tensor back = device.detach().cpu().to(at::kDouble);
    const at::Tensor expected = host.detach().to(at::kDouble);
    ASSERT_EQ(back.sizes(), expected.sizes());
    const double norm = expected.norm().item<double>();
    EXPECT_LE((back - expected).norm().item<double>(), tolerance * std::max(norm, 1e-6));
  }
};

TEST_F(Gpu, RmsNormAgreesWithTheProcessor) {
  const Pair input = leaves({37, 48});
  const Pair weight = leaves({48});
  const at::Tensor host = rms_norm(input.host, weight.host, 1e-6);
  const at::Tensor device = rms_norm(input.device, weight.device, 1e-6);
  expect_near(device, host, 1e-5);
  const at::Tensor gradient = at::randn({37, 48});
  host.backward(gradient);
  device.backward(gradient.to(device.device()));
  expect_near(input.device.grad(), input.host.grad(), 1e-5);
  expect_near(weight.device.grad(), weight.host.grad(), 1e-5);
}

TEST_F(Gpu, AttentionOfUnequalSegmentsAgreesWithTheProcessor) {
  const std::vector<std::int64_t> lengths = {1, 130, 7, 64};
  for (const bool causal : {false, true}) {
    const Pair query = leaves({202, 4, 32});
    const Pair key = leaves({202, 2, 32});
    const Pair value = leaves({202, 2, 32});
    const at::Tensor host = segment_attention(query.host, key.host, value.host, lengths, causal);
    const at::Tensor device =
        segment_attention(query.device, key.device, value.device, lengths, causal);
    expect_near(device, host, 1e-4);
    const at::Tensor gradient = at::randn({202, 128});
    host.backward(gradient);
    device.backward(gradient.to(device.device()));
    expect_near(query.device.grad(), query.host.grad(), 1e-4);
    expect_near(key.device.grad(), key.host.grad(), 1e-4);
    expect_near(value.device.grad(), value.host.grad(), 1e-4);
  }
}

// The flash kernels take half precision alone; bfloat16 has 8 bits, so agreement is within 2 %.
TEST_F(Gpu, AttentionInBfloat16AgreesWithinItsPrecision) {
  const std::vector<std::int64_t> lengths = {3, 200, 61};
  const Pair query = leaves({264, 4, 64});
  const Pair key = leaves({264, 2, 64});
  const Pair value = leaves({264, 2, 64});
  const at::Tensor host = segment_attention(query.host, key.host, value.host, lengths, true);
  const at::Tensor device = segment_attention(query.device.to(at::kBFloat16),
                                              key.device.to(at::kBFloat16),
                                              value.device.to(at::kBFloat16),
                                              lengths,
                                              true);
  EXPECT_EQ(device.scalar_type(), at::kBFloat16);
  expect_near(device, host, 2e-2);
  const at::Tensor gradient = at::randn({264, 256});
  host.backward(gradient);
  device.backward(gradient.to(device.device(), at::kBFloat16));
  expect_near(query.device.grad(), query.host.grad(), 4e-2);
  expect_near(value.device.grad(), value.host.grad(), 4e-2);
}

TEST_F(Gpu, WindowAttentionAgreesWithTheProcessor) {
  const std::vector<SegmentGrid> grids = {{8, 12}, {4, 6}};
  const std::int64_t tokens = 8 * 12 + 4 * 6;
  const Pair heads = leaves({tokens, 2, 16});
  const at::Tensor host = window_attention(
      heads.host, heads.host, heads.host, attention_windows(grids, 2, 4, at::kCPU));
  const at::Tensor device = window_attention(heads.device,
                                             heads.device,
                                             heads.device,
                                             attention_windows(grids, 2, 4, heads.device.device()));
  expect_near(device, host, 1e-4);
  host.sum().backward();
  device.sum().backward();
  expect_near(heads.device.grad(), heads.host.grad(), 1e-3);
}

// Losses and gradients of a pipelined step, every stage on the one GPU, ranks as threads.
TEST_F(Gpu, AStepOfTheExecutorAgreesWithTheProcessor) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const tiny::Step step = tiny::make_step({{1, 2}, 2, false, schedule});
    const tiny::Result host = tiny::run_step(step);
    ExecutorOptions options = tiny::seeded_options();
    options.stage.device = at::Device(at::kCUDA, 0);
    const tiny::Result device = tiny::run_step(step, options);
    EXPECT_NEAR(device.loss_sum, host.loss_sum, 1e-4 * std::abs(host.loss_sum)) << schedule;
    EXPECT_NEAR(device.gradient_norm, host.gradient_norm, 1e-4 * host.gradient_norm) << schedule;
    for (std::size_t replica = 0; replica < 2; ++replica) {
      ASSERT_EQ(device.gradients[replica].size(), host.gradients[replica].size());
      for (const auto& [name, gradient] : host.gradients[replica]) {
        SCOPED_TRACE(name);
        // Small gradients are judged beside the whole, as in design: 1e-3 of the global norm.
        const double scale = std::max(gradient.norm().item<double>(), 1e-3 * host.gradient_norm);
        const at::Tensor back = device.gradients[replica].at(name).cpu();
        EXPECT_LE((back - gradient).norm().item<double>(), 1e-3 * scale);
      }
    }
  }
}

// Whole runs, all ranks on the GPUs that there are; their arithmetic is other kernels'.
class GpuRun : public Gpu, protected tiny::DeviceRun {
 protected:
  GpuRun() : DeviceRun("cuda") {}
};

TEST_F(GpuRun, TrainsAsTheProcessorDoes) {
  expect_the_processors("plain", 1e-4);
  run.config.plan.replicas = 2;
  run.config.plan.shard_optimizer = true;
  run.config.execution.recompute = {RecomputeKind::kFull};
  expect_the_processors("sharded", 1e-4);
}

TEST_F(GpuRun, TrainsWithDeferredWeightGradientsChunksAndTiedTables) {
  change_model("vocab_size = 264", "vocab_size = 264\ntie_word_embeddings = true");
  run.config.plan.schedule = "zb-h1";
  run.config.plan.chunks = true;
  expect_the_processors("deferred", 1e-4);
}

TEST_F(GpuRun, TrainsInBfloat16) {
  run.config.execution.precision = Precision::kBf16;
  expect_the_processors("bf16", 2e-2);
}

TEST_F(GpuRun, GoesOnAndMeasures) {
  run.config.checkpoint.every_steps = 2;
  run.config.execution.measure_memory = true;
  RunConfig stopped = on_device("stopped");
  stopped.execution.fault_drill = {0, 0, 5};
  EXPECT_THROW(tiny::train_now(stopped), InternalError);
  stopped.execution.fault_drill = {};
  EXPECT_EQ(tiny::train_now(stopped).first_step, 4);
  for (const Json& row : tiny::steps_of(stopped)) {
    for (const Json& lane : row["lanes"]) {
      EXPECT_GT(lane["busy_s"], 0);
      EXPECT_LE(lane["busy_s"], row["step_s"]);
      EXPECT_GT(lane["peak_bytes"], 0);
    }
  }
}

}  // namespace
}  // namespace entrain::engine
