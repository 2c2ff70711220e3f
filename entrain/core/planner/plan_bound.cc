#include "entrain/core/planner/plan_bound.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

using std::int64_t;

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

int64_t sum(const std::vector<int64_t>& values, LayerRange range) {
  return std::accumulate(values.begin() + range.begin, values.begin() + range.end, int64_t{0});
}

// [layer] sum over the layers before it, times `factor`.
std::vector<int64_t> sums_before(const std::vector<int64_t>& values, int64_t factor) {
  std::vector<int64_t> result;
  int64_t before = 0;
  for (const int64_t value : values) {
    result.push_back(before * factor);
    before += value;
  }
  return result;
}

std::vector<int64_t> plus(const std::vector<int64_t>& a,
                          const std::vector<int64_t>& b,
                          int64_t factor = 1) {
  std::vector<int64_t> result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    result.push_back(a[i] + factor * b[i]);
  }
  return result;
}

int64_t divided_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

PlanBounds::PlanBounds(const BoundRequest& request)
    : request_(request),
      num_batches_(static_cast<int64_t>(request.batches->size())),
      figures_(layer_figures(*request.model,
                             *request.profile,
                             *request.batches,
                             request.space->degrees(),
                             request.figures)) {
  collect_chains();
  for (const int replicas : request.space->replica_counts()) {
    std::vector<std::vector<Table>>& tables = tables_[replicas];
    for (std::vector<ReplicaFigures>& module :
         replica_figures(*request.model,
                         cluster_profile(*request.profile, request.space->cluster(), replicas),
                         request.space->degrees(),
                         replicas,
                         request.state)) {
      const auto number = static_cast<int>(tables.size());
      std::vector<Table>& of_module = tables.emplace_back();
      for (ReplicaFigures& figures : module) {
        of_module.push_back(make_table(replicas, number, of_module.size(), std::move(figures)));
      }
    }
  }
}

void PlanBounds::collect_chains() {
  const int llm = request_.model->llm_module();
  const std::vector<LayerFigures>& of_llm = figures_[at(llm)];
  const int encoders = std::max(1, llm);
  for (int encoder = 0; encoder < encoders; ++encoder) {
    auto& of_encoder = chains_.emplace_back();
    const std::size_t degrees = llm == 0 ? 1 : figures_[at(encoder)].size();
    for (std::size_t i = 0; i < degrees; ++i) {
      auto& pairs = of_encoder.emplace_back();
      for (const LayerFigures& last : of_llm) {
        std::vector<int64_t>& chains = pairs.emplace_back();
        for (std::size_t batch = 0; batch < last.chain_ns.size(); ++batch) {
          int64_t longest = 0;
          for (std::size_t sample = 0; sample < last.chain_ns[batch].size(); ++sample) {
            const int64_t before = llm == 0 ? 0 : figures_[at(encoder)][i].chain_ns[batch][sample];
            longest = std::max(longest, before + last.chain_ns[batch][sample]);
          }
          chains.push_back(longest);
        }
        chains.push_back(sum(chains));
      }
    }
  }
}

PlanBounds::Table PlanBounds::make_table(int replicas,
                                         int module,
                                         std::size_t index,
                                         ReplicaFigures of_replicas) const {
  const LayerFigures& figures = figures_[at(module)][index];
  Table result;
  result.figures = std::move(of_replicas);
  result.work_ns.assign(at(figures.num_layers()), 0);
  for (const std::vector<int64_t>& batch : figures.work_ns) {
    result.work_ns = plus(result.work_ns, batch);
  }
  for (int64_t& work : result.work_ns) {
    work /= replicas;
  }
  result.rounding_ns = sum(figures.rounding_ns) / replicas + 1;
  result.layer_bytes = plus(result.figures.state_bytes, figures.unit_bytes);
  result.memory.layer_bytes = request_.recompute
                                  ? plus(result.figures.state_bytes, figures.recomputed_bytes)
                                  : result.layer_bytes;
  result.memory.capacity_bytes = request_.memory_bytes;
  const std::vector<int64_t> with_reduce =
      plus(result.work_ns, result.figures.reduce_ns, num_batches_);
  result.share_ns = sum(with_reduce);
  result.launch_ns = sum(figures.launch_ns);
  result.optimizer_ns = sum(result.figures.optimizer_ns);
  // Two bounds of a lane: the path before it, its work and its reduction; the path before it,
  // its work and its backward path, which a weight half may follow if backward is split.
  StageRules rules = result.memory;
  rules.entry_ns = sums_before(figures.least_forward_ns, num_batches_);
  result.least_ns = least_largest_ns(with_reduce, figures.num_layers(), rules);
  if (!request_.figures.splits_backward) {
    rules.entry_ns = plus(rules.entry_ns, sums_before(figures.least_backward_ns, num_batches_));
    const std::vector<int64_t> back = least_largest_ns(result.work_ns, figures.num_layers(), rules);
    for (std::size_t i = 0; i < back.size(); ++i) {
      result.least_ns[i] = std::max(result.least_ns[i], back[i]);
    }
  }
  for (int64_t& least : result.least_ns) {
    least = least == kNoPartition ? kNoPartition : std::max<int64_t>(0, least - result.rounding_ns);
  }
  return result;
}

std::size_t PlanBounds::index_of(int module, const Degrees& degrees) const {
  const std::vector<Degrees>& all = request_.space->degrees()[at(module)];
  const auto found = std::find(all.begin(), all.end(), degrees);
  ENTRAIN_INVARIANT(found != all.end(), "degrees outside the space");
  return static_cast<std::size_t>(found - all.begin());
}

const std::vector<std::vector<PlanBounds::Table>>& PlanBounds::tables_of(int replicas) const {
  const auto found = tables_.find(replicas);
  ENTRAIN_INVARIANT(found != tables_.end(), "replicas outside the space");
  return found->second;
}

const PlanBounds::Table& PlanBounds::table(const PlanShape& config, int module) const {
  return tables_of(
      config.replicas)[at(module)][index_of(module, config.modules[at(module)].degrees)];
}

const LayerFigures& PlanBounds::figures_of(const PlanShape& config, int module) const {
  return figures_[at(module)][index_of(module, config.modules[at(module)].degrees)];
}

// A lane of several stages may host any layers: bounded by the mean over the module's lanes, less
// what each of its stages may be rounded by.
int64_t PlanBounds::lane_ns(const Table& of, int lanes, int virtual_stages) const {
  if (virtual_stages == 1) {
    return of.least_ns[at(lanes - 1)];
  }
  const int64_t state = sum(of.figures.state_bytes) / lanes;
  if (request_.memory_bytes > 0 && state > request_.memory_bytes) {
    return kNoPartition;
  }
  return std::max<int64_t>(0, of.share_ns / lanes - virtual_stages * of.rounding_ns);
}

PlanBound PlanBounds::module_bound(int replicas, int module, int degrees_index, int stages) const {
  const Table& of = tables_of(replicas)[at(module)][at(degrees_index)];
  const auto [fewest, most] = request_.space->virtual_stages(module, stages);
  const int64_t one = fewest == 1 ? lane_ns(of, stages, 1) : kNoPartition;
  const int64_t several = most == 1 ? kNoPartition : lane_ns(of, stages, most);
  const int64_t least = one == kNoPartition || several == kNoPartition ? std::max(one, several)
                                                                       : std::min(one, several);
  if (least == kNoPartition) {
    return {0, BoundCause::kMemory, module};
  }
  return {least + num_batches_ * divided_up(of.optimizer_ns, stages), BoundCause::kWork, module};
}

int64_t PlanBounds::chain_ns(const PlanShape& config, std::size_t batch) const {
  const int llm = request_.model->llm_module();
  const std::size_t last = index_of(llm, config.modules.back().degrees);
  int64_t longest = 0;
  for (std::size_t encoder = 0; encoder < chains_.size(); ++encoder) {
    const std::size_t index =
        llm == 0 ? 0 : index_of(static_cast<int>(encoder), config.modules[encoder].degrees);
    longest = std::max(longest, chains_[encoder][index][last][batch]);
  }
  return longest;
}

PlanBound PlanBounds::bound(const PlanShape& config) const {
  const int llm = request_.model->llm_module();
  PlanBound result;
  int64_t optimizer = 0;
  int64_t shared = 0;
  int64_t shared_optimizer = 0;
  for (int module = 0; module <= llm; ++module) {
    const ModuleShape& shape = config.modules[at(module)];
    const Table& of = table(config, module);
    const int64_t least = lane_ns(of, shape.stages, shape.virtual_stages);
    if (least == kNoPartition) {
      return {0, BoundCause::kMemory, module};
    }
    if (least > result.ns || module == 0) {
      result = {least, BoundCause::kWork, module};
    }
    optimizer = std::max(optimizer, divided_up(of.optimizer_ns, shape.stages));
    if (config.layout == ModuleLayout::kColocated ||
        (config.layout == ModuleLayout::kSharedEncoders && module < llm)) {
      shared += of.share_ns / shape.stages - of.rounding_ns;
      shared_optimizer += of.optimizer_ns / shape.stages;
    }
  }
  if (shared > result.ns) {
    result = {shared, BoundCause::kShared, 0};
  }
  const int64_t chain = chain_ns(config, static_cast<std::size_t>(num_batches_));
  if (chain > result.ns) {
    result = {chain, BoundCause::kChain, 0};
  }
  result.ns += num_batches_ * std::max(optimizer, shared_optimizer);
  return result;
}

int64_t PlanBounds::estimate(const PlanShape& config) const {
  const int llm = request_.model->llm_module();
  const int64_t slots = num_batches_ * config.num_slots;  // of a replica in all batches
  int64_t all = 0;
  int64_t slowest = 0;
  int64_t shared = 0;
  int64_t more_stages = 0;
  for (int module = 0; module <= llm; ++module) {
    const ModuleShape& shape = config.modules[at(module)];
    const Table& of = table(config, module);
    const int64_t launches = of.launch_ns / shape.stages;
    const int64_t lane = lane_ns(of, shape.stages, shape.virtual_stages) / slots + launches;
    all += of.share_ns / slots + of.launch_ns;
    more_stages += shape.virtual_stages - 1;
    slowest = std::max(slowest, lane);
    if (config.layout == ModuleLayout::kColocated ||
        (config.layout == ModuleLayout::kSharedEncoders && module < llm)) {
      shared += lane;
    }
  }
  slowest = std::max(slowest, shared);
  const int64_t pipeline = num_batches_ * all + (slots - num_batches_) * slowest;
  constexpr int64_t kPercent = 2;  // of each virtual stage: who has fewest comes first
  return std::max(pipeline, bound(config).ns) * (100 + kPercent * more_stages) / 100;
}

std::vector<std::vector<LayerRange>> PlanBounds::cut(const PlanShape& config,
                                                     bool recomputed) const {
  std::vector<std::vector<LayerRange>> result;
  for (int module = 0; module <= request_.model->llm_module(); ++module) {
    const ModuleShape& shape = config.modules[at(module)];
    const Table& of = table(config, module);
    StageRules memory = of.memory;
    memory.layer_bytes = recomputed ? memory.layer_bytes : of.layer_bytes;
    const std::vector<int64_t> times =
        plus(of.work_ns, figures_of(config, module).launch_ns, num_batches_ * config.num_slots);
    result.push_back(shape.virtual_stages == 1
                         ? partition_layers(times, shape.stages, memory).stages
                         : wrapped_partition(times, shape.stages, shape.virtual_stages));
    if (result.back().empty()) {
      return {};
    }
  }
  return result;
}

MemoryShortage PlanBounds::shortage(int replicas, int module, const ModuleShape& shape) const {
  const Table& of = tables_of(replicas)[at(module)][index_of(module, shape.degrees)];
  const std::vector<int64_t>& bytes = of.memory.layer_bytes;
  const std::vector<LayerRange> even = min_max_partition(bytes, shape.stages);
  MemoryShortage result;
  result.module = module;
  for (std::size_t stage = 0; stage < even.size(); ++stage) {
    const int64_t needed = sum(bytes, even[stage]);
    if (needed > result.bytes) {
      result.stage = static_cast<int>(stage);
      result.bytes = needed;
      result.state_bytes = sum(of.figures.state_bytes, even[stage]);
    }
  }
  result.missing_bytes = result.bytes - request_.memory_bytes;
  return result;
}

int64_t PlanBounds::lane_bound(const PlanShape& config,
                               const std::vector<StageRef>& lane,
                               const std::vector<std::vector<LayerRange>>& stages,
                               std::size_t batch) const {
  int64_t work = 0;
  int64_t reduce = 0;
  int64_t head = 0;
  int64_t tail = 0;
  for (const StageRef& ref : lane) {
    const LayerRange range = stages[at(ref.module)][at(ref.stage)];
    const LayerFigures& figures = figures_of(config, ref.module);
    work += sum(figures.work_ns[batch], range) - figures.rounding_ns[batch];
    reduce += sum(table(config, ref.module).figures.reduce_ns, range);
    if (lane.size() == 1) {
      head = sum(figures.least_forward_ns, {0, range.begin});
      tail =
          request_.figures.splits_backward ? 0 : sum(figures.least_backward_ns, {0, range.begin});
    }
  }
  return head + std::max<int64_t>(0, work) / config.replicas + std::max(reduce, tail);
}

int64_t PlanBounds::batch_bound(const PlanShape& config,
                                const std::vector<std::vector<LayerRange>>& stages,
                                std::size_t batch) const {
  int64_t result = chain_ns(config, batch);
  int64_t optimizer = 0;
  for (const std::vector<StageRef>& lane : lane_stages(config)) {
    result = std::max(result, lane_bound(config, lane, stages, batch));
    int64_t of_lane = 0;
    for (const StageRef& ref : lane) {
      of_lane += sum(table(config, ref.module).figures.optimizer_ns,
                     stages[at(ref.module)][at(ref.stage)]);
    }
    optimizer = std::max(optimizer, of_lane);
  }
  return result + optimizer;
}

std::vector<int64_t> PlanBounds::lane_work_ns(
    const PlanShape& config, const std::vector<std::vector<LayerRange>>& stages) const {
  std::vector<int64_t> result;
  for (const std::vector<StageRef>& lane : lane_stages(config)) {
    int64_t& work = result.emplace_back(0);
    for (const StageRef& ref : lane) {
      work += sum(table(config, ref.module).work_ns, stages[at(ref.module)][at(ref.stage)]);
    }
  }
  return result;
}

std::vector<int64_t> PlanBounds::lane_slot_ns(
    const PlanShape& config, const std::vector<std::vector<LayerRange>>& stages) const {
  std::vector<int64_t> result = lane_work_ns(config, stages);
  const std::vector<std::vector<StageRef>> lanes = lane_stages(config);
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    result[lane] /= num_batches_ * config.num_slots;
    for (const StageRef& ref : lanes[lane]) {
      result[lane] +=
          sum(figures_of(config, ref.module).launch_ns, stages[at(ref.module)][at(ref.stage)]);
    }
  }
  return result;
}

int64_t PlanBounds::device_work_ns(int module) const {
  int64_t work = 0;
  for (const std::vector<int64_t>& batch : figures_[at(module)].front().work_ns) {
    work += sum(batch);
  }
  return work * request_.space->degrees()[at(module)].front().devices();
}

}  // namespace entrain
