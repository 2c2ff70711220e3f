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
                   counted(share.size, "sample"),
                   ", ",
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
  std::string note = concat(counted(std::ssize(setup.train.index.samples), "training sample"),
                            ": an epoch has ",
                            counted(sampler.steps_per_epoch(), "step"));
  if (sampler.last_batch() < config.data.global_batch) {
    note += concat(", the last one of ",
                   counted(sampler.last_batch(), "sample"),
                   " (data.last_batch = \"keep\")");
  }
  if (sampler.left_out_per_epoch() > 0) {
    note += concat(" and leaves out ",
                   counted(sampler.left_out_per_epoch(), "sample"),
                   sampler.left_out_per_epoch() == 1 ? " that fills" : " that fill",
                   " no batch (data.last_batch = \"drop\")");
  }
  if (config.data.hold > 1) {
    note += concat(
        "; oversized samples are held within windows of ", config.data.hold, " steps (data.hold)");
  }
  return config.epochs == 0 ? note
                            : concat(note,
                                     "; ",
                                     counted(config.epochs, "epoch"),
                                     config.epochs == 1 ? " is " : " are ",
                                     counted(config.steps, "step"));
}

std::string costs_note(const RunSetup& setup) {
  const std::string& file = setup.config.plan.profile;
  return file.empty() ? concat("costs: analytic:",
                               kAssumedDevice,
                               ", not measured (assumed: plan.profile names none)")
                      : concat("costs: profile ", file);
}

StateOptions state_options(const RunSetup& setup) {
  StateOptions options;
  options.parameter_dtype = dtype_name_of(setup.config.execution.precision);
  options.shard_optimizer = setup.plan.shard_optimizer;
  return options;
}

}  // namespace entrain::engine
