// Inputs shared by the commands that study an index under a model and a plan, without training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"

namespace entrain::cli {

struct StudyOptions {
  std::string index;
  std::string model;
  std::string profile;  // file, or "analytic:DEVICE"
  int global_batch = 0;
  std::uint64_t seed = 0;
};

// --index, --model, --profile, --global-batch, --seed.
void add_study_options(CLI::App& command, StudyOptions& options);

struct Study {
  StudyOptions options;
  Index index;
  ModelSpec model;
  Profile profile;
  bool with_replacement = false;  // fewer than four batches in the index
};

Study load_study(const StudyOptions& options);

struct StudyBatch {
  std::vector<SampleSizes> samples;
  std::vector<std::string> sample_ids;
  std::vector<SampleWork> work;
};
StudyBatch draw_batch(const Study& study, std::int64_t step);

}  // namespace entrain::cli
