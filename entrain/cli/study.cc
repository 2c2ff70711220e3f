#include "entrain/cli/study.h"

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/dataset/global_batch.h"

namespace entrain::cli {

void add_study_options(CLI::App& command, StudyOptions& options) {
  command.add_option("--index,-i", options.index, "index or manifest (CSV, gzip accepted)")
      ->required();
  command.add_option("--model,-m", options.model, "model file (TOML)")->required();
  command
      .add_option("--profile,-p",
                  options.profile,
                  "profile JSON of `entrain profile`, or analytic:DEVICE (cpu-2core, a40, h100)")
      ->default_val("analytic:a40");
  command.add_option("--global-batch,-b", options.global_batch, "samples per step")
      ->required()
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", options.seed, "seed of the drawn batches")->default_val(0);
}

Study load_study(const StudyOptions& options) {
  Study study;
  study.options = options;
  study.model = read_model(options.model);
  study.index = read_index(options.index);
  const std::string prefix = "analytic:";
  study.profile =
      options.profile.starts_with(prefix)
          ? analytic_profile(study.model, device_model(options.profile.substr(prefix.size())))
          : read_profile(options.profile);
  validate(study.profile, study.model, options.profile);
  if (study.index.samples.empty()) {
    throw InvalidInput(concat("index '", options.index, "' has no samples"));
  }
  study.with_replacement =
      static_cast<std::int64_t>(study.index.samples.size()) < 4LL * options.global_batch;
  return study;
}

StudyBatch draw_batch(const Study& study, std::int64_t step) {
  StudyBatch batch;
  if (study.with_replacement) {
    batch.samples = draw_with_replacement(
        study.index.samples, study.options.global_batch, study.options.seed, step);
  } else {
    GlobalBatchSampler sampler(static_cast<int>(study.index.samples.size()),
                               study.options.global_batch,
                               study.options.seed);
    for (const int sample : sampler.batch(step)) {
      batch.samples.push_back(study.index.samples[static_cast<std::size_t>(sample)]);
    }
  }
  for (const SampleSizes& sample : batch.samples) {
    batch.sample_ids.push_back(sample.id);
  }
  batch.work = batch_work(study.model, batch.samples);
  return batch;
}

}  // namespace entrain::cli
