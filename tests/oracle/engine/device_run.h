// Training runs on devices beside the same runs on the processor: for a test's fixture, whatever
// the device.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/files.h"

#include "entrain/engine/models/weights.h"
#include "entrain/engine/train/evaluate.h"

#include "tests/oracle/engine/tiny_run.h"

namespace entrain::engine::tiny {

// A run of two LLM stages that validates twice, to be changed through `run.config`.
class DeviceRun {
 public:
  // `device`: as device_of() takes it.
  explicit DeviceRun(std::string device) : kind_(std::move(device)) {
    run.config.steps = 6;
    run.config.plan.stages = {{"llm", 2}};
    run.config.validation.every = 3;
  }

  [[nodiscard]] RunConfig on(const std::string& device, const std::string& folder) const {
    RunConfig config = run.in_folder(folder);
    config.execution.device = device;
    return config;
  }
  [[nodiscard]] RunConfig on_device(const std::string& folder) const { return on(kind_, folder); }

  void change_model(const std::string& from, const std::string& to) const {
    std::string model = read_file(run.path("model.toml"));
    model.replace(model.find(from), from.size(), to);
    run.write("model.toml", model);
  }

  // The run as configured, in folders of that name: losses within `tolerance` of the processor's,
  // relatively, and the weights by the norm of all; so what they lose on the validation samples.
  void expect_the_processors(const std::string& name, double tolerance) const {
    SCOPED_TRACE(name);
    const RunConfig config = on_device(name + "-device");
    const RunConfig host = on("cpu", name + "-cpu");
    const TrainResult trained = train_now(config);
    const TrainResult expected = train_now(host);
    expect_near(losses_of(config), losses_of(host), tolerance);
    expect_near({trained.validation_loss.value()}, {expected.validation_loss.value()}, tolerance);
    const std::vector<NamedParameter> weights = read_weights(trained.weights).tensors;
    const std::vector<NamedParameter> wanted = read_weights(expected.weights).tensors;
    ASSERT_EQ(weights.size(), wanted.size());
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_EQ(weights[i].name, wanted[i].name);
      difference += (weights[i].tensor - wanted[i].tensor).square().sum().item<double>();
      norm += wanted[i].tensor.square().sum().item<double>();
    }
    EXPECT_LE(std::sqrt(difference / norm), 100 * tolerance);
    expect_same_judgement(config, trained);
  }

  RunFolder run;

 private:
  static void expect_near(const std::vector<double>& found,
                          const std::vector<double>& expected,
                          double tolerance) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << "figure " << i;
    }
  }

  // One set of weights, judged on the device and on the processor.
  void expect_same_judgement(const RunConfig& config, const TrainResult& trained) const {
    const ModelSpec model = run_model(config);
    const DataSet data = load_data_set(config.data.validation, model);
    EvaluateOptions options;
    const EvaluateResult wanted = evaluate(model, trained.weights, data, options);
    options.device = kind_;
    const EvaluateResult found = evaluate(model, trained.weights, data, options);
    EXPECT_NEAR(found.loss, wanted.loss, 1e-4 * wanted.loss);
    ASSERT_EQ(found.answers.size(), wanted.answers.size());
  }

  std::string kind_;
};

}  // namespace entrain::engine::tiny
