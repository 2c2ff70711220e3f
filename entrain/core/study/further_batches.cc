#include "entrain/core/study/further_batches.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "entrain/core/base/at.h"
#include "entrain/core/dataset/global_batch.h"

namespace entrain {
namespace {

constexpr int kScreened = 9;  // times as many steps as are checked in a row

// One sample's work in a module.
struct Demand {
  std::int64_t largest = 0;  // unit, in tokens
  std::int64_t tokens = 0;
};

using Demands = std::vector<std::vector<Demand>>;  // [module][sample of the study]

Demands demands_of(const Study& study) {
  const int llm = study.model.llm_module();
  Demands result(at(llm + 1), std::vector<Demand>(study.samples.size()));
  for (std::size_t sample = 0; sample < study.samples.size(); ++sample) {
    const SampleWork work = sample_work(study.model, study.samples[sample]);
    for (std::size_t module = 0; module < work.segments.size(); ++module) {
      Demand& demand = result[module][sample];
      for (const SegmentWork& segment : work.segments[module]) {
        demand.largest = std::max(demand.largest, segment.tokens);
        demand.tokens += segment.tokens;
      }
    }
    result[at(llm)][sample] = {work.llm_tokens, work.llm_tokens};
  }
  return result;
}

// [module and measure] a batch's work.
std::vector<std::int64_t> measures(const Demands& demands, const std::vector<int>& rows) {
  std::vector<std::int64_t> result;
  for (const std::vector<Demand>& of_module : demands) {
    Demand batch;
    for (const int row : rows) {
      const Demand& demand = of_module[at(row)];
      batch.largest = std::max(batch.largest, demand.largest);
      batch.tokens += demand.tokens;
    }
    result.push_back(batch.largest);
    result.push_back(batch.tokens);
  }
  return result;
}

struct Ranked {
  std::int64_t step = 0;
  std::vector<std::int64_t> measures;
};

// The first by each measure in turn, then the second by each, and so on; each step once.
std::vector<std::int64_t> by_demand(const std::vector<Ranked>& batches) {
  std::vector<std::vector<std::int64_t>> rankings;
  const std::size_t num_measures = batches.empty() ? 0 : batches.front().measures.size();
  for (std::size_t measure = 0; measure < num_measures; ++measure) {
    std::vector<std::pair<std::int64_t, std::int64_t>> order;
    for (const Ranked& batch : batches) {
      order.emplace_back(-batch.measures[measure], batch.step);
    }
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t>& ranking = rankings.emplace_back();
    for (const auto& [less, step] : order) {
      ranking.push_back(step);
    }
  }
  std::vector<std::int64_t> result;
  std::set<std::int64_t> seen;
  for (std::size_t rank = 0; rank < batches.size(); ++rank) {
    for (const std::vector<std::int64_t>& ranking : rankings) {
      if (seen.insert(ranking[rank]).second) {
        result.push_back(ranking[rank]);
      }
    }
  }
  return result;
}

// Replaces the leader of each measure by a more demanding batch.
void keep_leaders(const Ranked& batch, std::vector<Ranked>& leaders) {
  leaders.resize(batch.measures.size());
  for (std::size_t measure = 0; measure < leaders.size(); ++measure) {
    if (leaders[measure].measures.empty() ||
        batch.measures[measure] > leaders[measure].measures[measure]) {
      leaders[measure] = batch;
    }
  }
}

// Of every module the sample with the largest unit.
std::vector<SampleWork> largest_samples(const Study& study,
                                        const Demands& demands,
                                        const std::map<std::int64_t, std::vector<int>>& rows_of) {
  std::vector<std::pair<std::int64_t, int>> largest(demands.size(), {-1, 0});
  for (const auto& [step, rows] : rows_of) {
    for (const int row : rows) {
      for (std::size_t module = 0; module < demands.size(); ++module) {
        largest[module] = std::max(largest[module], {demands[module][at(row)].largest, row});
      }
    }
  }
  std::set<int> rows;
  for (const auto& [tokens, row] : largest) {
    if (tokens > 0) {
      rows.insert(row);
    }
  }
  std::vector<SampleWork> result;
  for (const int row : rows) {
    result.push_back(sample_work(study.model, study.samples[at(row)]));
  }
  return result;
}

}  // namespace

FurtherBatches further_batches(const Study& study, std::int64_t first, int in_row) {
  FurtherBatches result;
  result.first = first;
  result.in_row = in_row;
  if (in_row == 0) {
    return result;
  }
  result.screened = kScreened * in_row;
  const Demands demands = demands_of(study);
  DrawnRows steps(study);
  const std::int64_t end = std::min(first + in_row + result.screened, steps.num_steps());
  const auto rows_of = std::make_shared<std::map<std::int64_t, std::vector<int>>>();
  std::vector<Ranked> batches;
  std::vector<Ranked> leaders;
  for (std::int64_t step = first; step < end; ++step) {
    std::vector<int> rows = steps.rows(step);
    const Ranked batch{step, measures(demands, rows)};
    if (step < first + in_row) {
      batches.push_back(batch);
      (*rows_of)[step] = std::move(rows);
    } else {
      keep_leaders(batch, leaders);
    }
  }
  for (const Ranked& leader : leaders) {
    if (rows_of->count(leader.step) == 0) {
      batches.push_back(leader);
      (*rows_of)[leader.step] = steps.rows(leader.step);
    }
  }
  result.steps = by_demand(batches);
  result.largest = largest_samples(study, demands, *rows_of);
  result.draw = [&study, rows_of](std::int64_t step) {
    return batch_of(study, rows_of->at(step)).work;
  };
  return result;
}

}  // namespace entrain
