// Tiny runs that meet bad samples and numbers that are none: damage to their data, what their rows
// say, and a training loop written out for itself that is told which steps are in no update.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <ios>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/engine/comm/thread_comm.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/pipeline/executor.h"
#include "entrain/engine/pipeline/ranks.h"
#include "entrain/engine/train/optimizer.h"
#include "entrain/engine/train/prepared_step.h"

#include "tests/oracle/engine/tiny_run.h"

namespace entrain::engine::tiny {

using Steps = std::set<std::int64_t>;

// Overwrites pixels of the sample's first image, so that it cannot be read.
inline void damage(const RunConfig& config, const std::string& id) {
  const Index index = read_index(config.data.train);
  for (const SampleSizes& sample : index.samples) {
    if (sample.id == id) {
      std::fstream shard(located(index, *sample.location).shard,
                         std::ios::in | std::ios::out | std::ios::binary);
      shard.seekp(sample.location->offset + 512 + 45);
      shard << "not pixels";
      ASSERT_TRUE(shard.good());
    }
  }
}

inline Steps steps_with(const RunConfig& config, const std::string& id) {
  const RunSetup setup = prepare_run(config);
  Steps steps;
  for (std::int64_t step = 0; step < config.steps; ++step) {
    if (std::ranges::count(prepare_step(setup, step).sample_ids, id) > 0) {
      steps.insert(step);
    }
  }
  return steps;
}

// The rows of steps that were skipped, and the losses of the others and the norms of updates, by
// step.
struct Rows {
  std::map<std::int64_t, Json> skipped;
  std::map<std::int64_t, double> losses;
  std::map<std::int64_t, double> norms;
};
inline Rows rows_of(const RunConfig& config) {
  Rows rows;
  for (const Json& row : metrics_of(std::filesystem::path(config.output) / "metrics.jsonl")) {
    const auto step = row["step"].get<std::int64_t>();
    if (row.contains("skipped")) {
      rows.skipped[step] = row;
    } else if (row.contains("loss")) {
      rows.losses[step] = row["loss"].get<double>();
    }
    if (row.contains("grad_norm")) {
      rows.norms[step] = row["grad_norm"].get<double>();
    }
  }
  return rows;
}

// Losses and norms of a run whose updates are made of all steps but `left_out`, which it does not
// run at all: every update divides by the target tokens of its own steps from the first one on, and
// is made behind the last of them. Its norm stands at the step where it is due.
inline Rows run_without(const RunConfig& config, const Steps& left_out) {
  const RunSetup setup = prepare_run(config);
  const int lanes = setup.plan.num_lanes();
  const std::int64_t every = config.optimizer.update_every;
  std::vector<std::vector<PreparedStep>> updates(static_cast<std::size_t>(config.steps / every));
  for (std::int64_t step = 0; step < config.steps; ++step) {
    if (!left_out.contains(step)) {
      updates[static_cast<std::size_t>(step / every)].push_back(prepare_step(setup, step));
    }
  }
  ThreadCommGroup group(setup.plan.replicas * lanes);
  std::vector<Rows> of_rank(static_cast<std::size_t>(group.size()));
  run_ranks(group, [&](int rank) {
    Rows& rows = of_rank[static_cast<std::size_t>(rank)];
    ExecutorOptions options;
    options.stage.seed = config.seed;
    options.clip_norm = config.optimizer.clip_norm;
    Executor executor(setup.model, setup.plan, group.comm(rank), options);
    AdamW optimizer(executor.trained(), executor.layout().shard_size(), config.optimizer);
    ReadAhead reader(setup.train.index, setup.model, {});
    for (std::size_t update = 0; update < updates.size(); ++update) {
      const auto number = static_cast<std::int64_t>(update);
      std::int64_t targets = 0;
      for (const PreparedStep& step : updates[update]) {
        targets += step.target_tokens;
      }
      for (const PreparedStep& step : updates[update]) {
        const auto data =
            reader.queue(needs_of(step.program, rank / lanes, rank % lanes, step.batch));
        StepInputs inputs;
        inputs.program = &step.program;
        inputs.costs = &step.costs;
        inputs.sample_ids = &step.sample_ids;
        inputs.step = step.step;
        inputs.target_tokens = targets;
        inputs.data = data.get();
        inputs.start = std::chrono::steady_clock::now();
        inputs.begins_update = &step == &updates[update].front();
        inputs.ends_update = &step == &updates[update].back();
        const StepOutcome outcome =
            executor.run(inputs, [&] { optimizer.step(number, config.steps / every); });
        rows.losses[step.step] = outcome.loss_sum;
        if (inputs.ends_update) {
          rows.norms[(number + 1) * every - 1] = outcome.gradient_norm;
        }
      }
    }
  });
  Rows result = of_rank.front();  // all ranks have the same norms, the last lanes the losses
  for (const std::vector<PreparedStep>& update : updates) {
    for (const PreparedStep& step : update) {
      double& loss = result.losses.at(step.step);
      for (std::size_t rank = 1; rank < of_rank.size(); ++rank) {
        loss += of_rank[rank].losses.at(step.step);
      }
      loss /= static_cast<double>(step.target_tokens);
    }
  }
  return result;
}

}  // namespace entrain::engine::tiny
