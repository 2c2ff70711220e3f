#include "entrain/core/planner/plan_space.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

std::vector<int> divisors(int number, int most) {
  std::vector<int> result;
  for (int divisor = 1; divisor <= std::min(number, most); ++divisor) {
    if (number % divisor == 0) {
      result.push_back(divisor);
    }
  }
  return result;
}

std::string list(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) {
    words.push_back(std::to_string(number));
  }
  return join(words);
}

}  // namespace

SharedLanes shared_lanes_of(const std::string& schedule, SharedLanes wanted) {
  return schedule == "dip" ? SharedLanes::kOnly : wanted;
}

void check_lane_contents(const ModelSpec& model,
                         const std::string& schedule,
                         SharedLanes shared_lanes,
                         int virtual_stages) {
  const bool shared = shared_lanes == SharedLanes::kOnly;
  if (virtual_stages < 0) {
    throw InvalidInput(
        fmt::format("{} virtual stages wanted; at least 1 is needed", virtual_stages));
  }
  if (schedule == "interleaved" && (shared || virtual_stages == 1)) {
    throw InvalidInput(
        "schedule 'interleaved' needs lanes that host several stages of one module: 2 virtual "
        "stages or more (entrain plan --virtual-stages N or auto)");
  }
  if (shared && virtual_stages != 1) {
    throw InvalidInput(
        "lanes that all modules share host one stage of each; virtual stages need lanes of a "
        "module's own");
  }
  if (shared && model.num_modules() == 1) {
    throw InvalidInput("lanes are shared by modules; this model has its LLM alone");
  }
}

PlanSpace::PlanSpace(const ModelSpec& model,
                     const ClusterSpec& cluster,
                     std::vector<std::vector<Degrees>> degrees,
                     const SpaceOptions& options)
    : model_(model), cluster_(cluster), degrees_(std::move(degrees)), options_(options) {
  ENTRAIN_INVARIANT(degrees_.size() == at(model.num_modules()), "degrees of other modules");
  if (options.global_batch < 1) {
    throw InvalidInput(
        fmt::format("global batch of {} samples; at least 1 is needed", options.global_batch));
  }
  if (options.microbatches.empty() ||
      *std::min_element(options.microbatches.begin(), options.microbatches.end()) < 1) {
    throw InvalidInput("microbatch sizes: a list of numbers of at least 1 is needed");
  }
  for (int module = 0; module < model.num_modules(); ++module) {
    layers_.push_back(num_layers(model, module));
    lanes_.push_back(layers_.back() / std::max(1, options.virtual_stages));
  }
  const auto fewest = std::min_element(layers_.begin(), layers_.end());
  if (options.virtual_stages > *fewest) {
    throw InvalidInput(fmt::format("{} virtual stages wanted; the layers of {} allow 1 to {}",
                                   options.virtual_stages,
                                   module_name(model, static_cast<int>(fewest - layers_.begin())),
                                   *fewest));
  }
  replica_counts_ = divisors(options.global_batch, num_devices());
  if (options.replicas != 0) {
    if (std::find(replica_counts_.begin(), replica_counts_.end(), options.replicas) ==
        replica_counts_.end()) {
      throw InvalidInput(
          fmt::format("{} replicas wanted: they have to divide the global batch of {} samples and "
                      "need a device each ('{}' has {}); allowed: {}",
                      options.replicas,
                      options.global_batch,
                      cluster.name,
                      num_devices(),
                      list(replica_counts_)));
    }
    replica_counts_ = {options.replicas};
  }
  for (const int replicas : replica_counts_) {
    const bool too = options_.shared_lanes == SharedLanes::kToo;
    used_.push_back(most_devices_used(replicas));
    used_by_shared_.push_back(too ? most_devices_shared(replicas) : 0);
  }
}

int PlanSpace::num_devices() const {
  return cluster_.num_nodes * cluster_.devices_per_node;
}

// The walk through the configurations of one layout.
struct PlanSpace::Walk {
  const PlanSpace& space;
  const Filter& filter;
  const Visit& visit;
  SharedLanes sharing;
  int target;         // devices to use; with idle devices an upper limit
  int shared_target;  // by kSharedLanes
  bool idle;
  std::set<int> slots_of;  // numbers of slots to try
  PlanShape config;

  [[nodiscard]] int llm() const { return space.model_.llm_module(); }
  [[nodiscard]] bool wanted(int module, int index, int stages) const {
    return filter == nullptr || filter(module, index, stages);
  }
  void set(int module, int index, int stages) {
    config.modules[at(module)] = {space.degrees_[at(module)][at(index)], stages};
  }

  void finish() {
    if (!mesh_fits(config, space.cluster_)) {
      return;
    }
    cut_lanes(0);
  }

  // Modules from `module` on get virtual stages, where they have lanes of their own.
  void cut_lanes(int module) {
    if (config.layout == ModuleLayout::kOwnLanes && module <= llm()) {
      ModuleShape& shape = config.modules[at(module)];
      const auto [least, most] = space.virtual_stages(module, shape.stages);
      for (int number = least; number <= most; ++number) {
        shape.virtual_stages = number;
        cut_lanes(module + 1);
      }
      return;
    }
    if (space.options_.virtual_only && !config.has_virtual_stages()) {
      return;
    }
    for (const int slots : slots_of) {
      config.num_slots = slots;
      visit(config);
    }
  }

  // Modules from `module` on have lanes of their own and `rest` devices.
  void own(int module, int rest) {
    const auto num_degrees = static_cast<int>(space.degrees_[at(module)].size());
    for (int index = 0; index < num_degrees; ++index) {
      const int width = space.degrees_[at(module)][at(index)].devices();
      const int most = std::min(space.lanes_[at(module)], (rest - (llm() - module)) / width);
      int first = 1;
      if (module == llm() && !idle) {
        if (rest % width != 0 || rest / width > most) {
          continue;
        }
        first = rest / width;
      }
      for (int stages = first; stages <= most; ++stages) {
        if (!wanted(module, index, stages)) {
          continue;
        }
        set(module, index, stages);
        if (module == llm()) {
          finish();
        } else {
          own(module + 1, rest - width * stages);
        }
      }
    }
  }

  // Modules from `module` to `last` share lanes: their number and their devices each.
  void shared(int module, int last, int stages, int width) {
    if (module > last) {
      const int rest = target - stages * width;
      if (last < llm()) {
        own(last + 1, rest);
      } else if (rest == 0 || idle) {
        finish();
      }
      return;
    }
    if (stages > space.layers_[at(module)]) {
      return;
    }
    const auto num_degrees = static_cast<int>(space.degrees_[at(module)].size());
    for (int index = 0; index < num_degrees; ++index) {
      if (space.degrees_[at(module)][at(index)].devices() == width &&
          wanted(module, index, stages)) {
        set(module, index, stages);
        shared(module + 1, last, stages, width);
      }
    }
  }

  void all_layouts() {
    const int modules = space.model_.num_modules();
    const bool shared = sharing == SharedLanes::kOnly;
    if (target >= modules && !shared) {
      own(0, target);
    }
    if (space.options_.virtual_only || space.options_.virtual_stages > 1) {
      return;
    }
    if (modules > 2 && !shared) {
      config.layout = ModuleLayout::kSharedEncoders;
      all_shared(llm() - 1, 1, target);
    }
    on_the_same_lanes(1, shared ? target : 1);
    if (sharing == SharedLanes::kToo) {
      target = shared_target;
      on_the_same_lanes(2, target);
    }
  }

  // All modules, on numbers of lanes.
  void on_the_same_lanes(int least, int most) {
    if (space.model_.num_modules() > 1) {
      config.layout = ModuleLayout::kColocated;
      all_shared(llm(), least, most);
    }
  }

  // The first modules share lanes, up to `last`.
  void all_shared(int last, int least_stages, int most_stages) {
    std::set<int> widths;
    for (const Degrees& degrees : space.degrees_[0]) {
      widths.insert(degrees.devices());
    }
    for (const int width : widths) {
      for (int stages = least_stages; stages <= std::min(most_stages, target / width); ++stages) {
        if (last < llm() && target - stages * width < 1) {
          break;
        }
        shared(0, last, stages, width);
      }
    }
  }
};

std::pair<int, int> PlanSpace::virtual_stages(int module, int lanes) const {
  if (options_.virtual_stages != kAutoVirtualStages) {
    return {options_.virtual_stages, options_.virtual_stages};
  }
  return {1, std::min(kMostVirtualStages, layers_[at(module)] / lanes)};
}

std::set<int> PlanSpace::slot_counts(int replicas) const {
  std::set<int> result;
  for (const int microbatch : options_.microbatches) {
    const std::int64_t per_slot = std::int64_t{replicas} * microbatch;
    result.insert(static_cast<int>((options_.global_batch + per_slot - 1) / per_slot));
  }
  return result;
}

void PlanSpace::for_each(int replicas, const Filter& filter, const Visit& visit) const {
  const auto found = std::find(replica_counts_.begin(), replica_counts_.end(), replicas);
  if (found == replica_counts_.end()) {
    return;
  }
  const std::size_t index = at(found - replica_counts_.begin());
  const bool idle = options_.idle_devices;
  const int all = num_devices() / replicas;
  Walk walk{*this,
            filter,
            visit,
            options_.shared_lanes,
            idle ? all : used_[index],
            idle ? all : used_by_shared_[index],
            idle,
            slot_counts(replicas),
            {}};
  walk.config.replicas = replicas;
  walk.config.modules.resize(at(model_.num_modules()));
  walk.all_layouts();
}

unsigned PlanSpace::features(const PlanShape& config) const {
  unsigned result = 0;
  for (const ModuleShape& module : config.modules) {
    if (module.degrees.context_parallel > 1) {
      result |= kContextParallel;
    }
  }
  if (options_.virtual_stages == kAutoVirtualStages && config.has_virtual_stages()) {
    result |= kVirtualStages;
  }
  const bool shared = shares_all_lanes(config);
  if (shared) {
    result |= kSharedLanes;
  }
  const auto found = std::find(replica_counts_.begin(), replica_counts_.end(), config.replicas);
  const std::vector<int>& used = shared ? used_by_shared_ : used_;
  if (devices_per_replica(config) < used[at(found - replica_counts_.begin())]) {
    result |= kIdleDevices;
  }
  return result;
}

bool PlanSpace::shares_all_lanes(const PlanShape& config) const {
  return options_.shared_lanes == SharedLanes::kToo && config.layout == ModuleLayout::kColocated &&
         config.modules.front().stages > 1;
}

std::vector<unsigned> PlanSpace::feature_sets() const {
  unsigned possible = 0;
  if (options_.idle_devices) {
    possible |= kIdleDevices;
  }
  if (options_.virtual_stages == kAutoVirtualStages) {
    possible |= kVirtualStages;
  }
  if (options_.shared_lanes == SharedLanes::kToo && model_.num_modules() > 1) {
    possible |= kSharedLanes;
  }
  for (const std::vector<Degrees>& module : degrees_) {
    for (const Degrees& degrees : module) {
      if (degrees.context_parallel > 1) {
        possible |= kContextParallel;
      }
    }
  }
  std::vector<unsigned> result;
  for (unsigned set = 0; set <= possible; ++set) {
    constexpr unsigned kNeverBoth = kVirtualStages | kSharedLanes;
    if ((set & ~possible) == 0 && (set & kNeverBoth) != kNeverBoth) {
      result.push_back(set);
    }
  }
  return result;
}

int PlanSpace::most_devices_used(int replicas) const {
  const int devices = num_devices() / replicas;
  // [number] whether modules up to the current one can use exactly this number.
  std::vector<char> reachable(at(devices + 1), 0);
  reachable[0] = 1;
  for (int module = 0; module < model_.num_modules(); ++module) {
    std::set<int> sizes;
    for (const Degrees& degrees : degrees_[at(module)]) {
      for (int stages = 1; stages <= lanes_[at(module)]; ++stages) {
        sizes.insert(degrees.devices() * stages);
      }
    }
    std::vector<char> next(at(devices + 1), 0);
    for (const int size : sizes) {
      for (int before = 0; before + size <= devices; ++before) {
        next[at(before + size)] |= reachable[at(before)];
      }
    }
    reachable = std::move(next);
  }
  const SharedLanes sharing =
      options_.shared_lanes == SharedLanes::kOnly ? SharedLanes::kOnly : SharedLanes::kNever;
  const int least = sharing == SharedLanes::kOnly ? devices + 1 : model_.num_modules();
  for (int used = devices; used >= least; --used) {
    if (reachable[at(used)] != 0) {
      return used;
    }
  }
  // No lanes of their own for all: as many as modules that share lanes can use.
  int most = 0;
  const Visit found = [&](const PlanShape& config) {
    most = std::max(most, devices_per_replica(config));
  };
  const Filter all;
  Walk walk{*this, all, found, sharing, devices, devices, true, {1}, {}};
  walk.config.replicas = replicas;
  walk.config.modules.resize(at(model_.num_modules()));
  walk.all_layouts();
  return most;
}

int PlanSpace::most_devices_shared(int replicas) const {
  const int devices = num_devices() / replicas;
  int most = 0;
  const Visit found = [&](const PlanShape& config) {
    most = std::max(most, devices_per_replica(config));
  };
  const Filter all;
  Walk walk{*this, all, found, SharedLanes::kToo, devices, devices, true, {1}, {}};
  walk.config.replicas = replicas;
  walk.config.modules.resize(at(model_.num_modules()));
  walk.on_the_same_lanes(2, devices);
  return most;
}

bool PlanSpace::contains(const PlanShape& config) const {
  bool found = false;
  const Filter same = [&](int module, int index, int stages) {
    const ModuleShape& shape = config.modules[at(module)];
    return shape.degrees == degrees_[at(module)][at(index)] && shape.stages == stages;
  };
  for_each(
      config.replicas, same, [&](const PlanShape& other) { found = found || other == config; });
  return found;
}

}  // namespace entrain
