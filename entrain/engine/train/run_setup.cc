#include "entrain/engine/train/run_setup.h"

#include <cmath>

#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

// Of each part what the run draws.
std::string mixture_note(const Mixture& mixture, std::int64_t steps) {
  std::string note = "a mixture:";
  for (const Mixture::Share& share : mixture.shares(steps)) {
    note += concat(note.back() == ':' ? " " : ", ",
                   share.draws,
                   " of \"",
                   share.samples,
                   "\" (",
                   share.size,
                   " samples, ",
                   std::round(100 * share.passes()) / 100,
                   " passes)");
  }
  return note;
}

}  // namespace

GlobalBatchSampler batches_of(const RunSetup& setup) {
  const DataConfig& data = setup.config.data;
  if (setup.mixture.has_value()) {
    return {*setup.mixture, data.global_batch, {data.hold, setup.hold_weights}};
  }
  return {static_cast<int>(setup.train.index.samples.size()),
          data.global_batch,
          setup.config.seed,
          data.last_batch == kKeepLastBatch ? LastBatch::kKeep : LastBatch::kDrop,
          {data.hold, setup.hold_weights}};
}

std::string epoch_note(const RunSetup& setup) {
  const GlobalBatchSampler sampler = batches_of(setup);
  const RunConfig& config = setup.config;
  if (setup.mixture.has_value()) {
    return mixture_note(*setup.mixture, config.steps);
  }
  std::string note = concat(setup.train.index.samples.size(),
                            " training samples: an epoch has ",
                            sampler.steps_per_epoch(),
                            " steps");
  if (sampler.last_batch() < config.data.global_batch) {
    note +=
        concat(", the last one of ", sampler.last_batch(), " samples (data.last_batch = \"keep\")");
  }
  if (sampler.left_out_per_epoch() > 0) {
    note += concat(" and leaves out ",
                   sampler.left_out_per_epoch(),
                   " samples that fill no batch (data.last_batch = \"drop\")");
  }
  if (config.data.hold > 1) {
    note += concat(
        "; oversized samples are held within windows of ", config.data.hold, " steps (data.hold)");
  }
  return config.epochs == 0
             ? note
             : concat(note, "; ", config.epochs, " epochs are ", config.steps, " steps");
}

StateOptions state_options(const RunSetup& setup) {
  StateOptions options;
  options.parameter_dtype = dtype_name_of(setup.config.execution.precision);
  options.shard_optimizer = setup.plan.shard_optimizer;
  return options;
}

}  // namespace entrain::engine
