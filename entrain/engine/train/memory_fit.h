// Checks whether a run fits into the memory of this host and its devices, before anything
// is allocated.
//
// Read first: check_memory(). The bytes come from the memory model (lane_states(), and the
// simulated peak of the first step's activations), so they are a prediction: temporaries of the
// current operation and messages in flight are not included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "entrain/core/base/host_memory.h"

#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {

// Ranks of the run on this host: all if ranks are threads.
struct HostRanks {
  int first = 0;
  int count = 0;
};
HostRanks all_ranks(const Plan& plan);

// Bytes of one rank of a lane: the largest among the lane's ranks on this host.
struct LaneMemory {
  int lane = 0;
  int ranks = 0;  // of the lane on this host
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t moments = 0;
  std::int64_t masters = 0;      // float32 values of bf16 weights
  std::int64_t activations = 0;  // simulated peak of the first step
  [[nodiscard]] std::int64_t total() const;
};

// Memory that ranks share: this host, or one of its devices.
struct MemoryPlace {
  std::string name;                  // "this host", "cuda:0"
  std::int64_t of_ranks = 0;         // sum over its ranks of LaneMemory
  std::int64_t read_ahead = 0;       // decoded pieces of two steps, within data.read_ahead_mib
  std::int64_t checkpoint = 0;       // copies of weights and moments, written or read
  std::int64_t available_bytes = 0;  // -1: the system does not report it
  std::string source;                // what limits it
  [[nodiscard]] std::int64_t needed() const;
  [[nodiscard]] std::int64_t missing() const;  // 0 if it fits, or if unknown
};

struct MemoryFit {
  std::vector<LaneMemory> lanes;
  std::vector<MemoryPlace> places;  // this host first
  [[nodiscard]] std::int64_t needed() const;
  [[nodiscard]] std::int64_t missing() const;
  [[nodiscard]] bool fits() const { return missing() == 0; }
};

// Available memory.
struct MemorySupply {
  HostMemory host;
  std::vector<std::int64_t> devices;  // free bytes of each; empty: ranks compute on the host
};
MemorySupply memory_supply(const RunConfig& config);

// `first`: prepare_step(setup, 0). Sums that overflow are the largest integer.
MemoryFit memory_fit(const RunSetup& setup,
                     const PreparedStep& first,
                     const HostRanks& ranks,
                     const MemorySupply& supply);

// One change of the run and the memory it would then need.
struct WayToFit {
  std::string change;  // "execution.recompute = \"full\""
  std::string price;   // its cost in other respects
  std::int64_t needed = 0;
  std::int64_t saved = 0;  // > 0
  bool fits = false;
};

// The cheapest changes that fit, at most three: first those that change the training least.
// If none fits alone, those that save the most, followed by their combination, if that
// fits. Each is computed by the same model. Cost  a prepared step each.
std::vector<WayToFit> ways_to_fit(const RunSetup& setup,
                                  const HostRanks& ranks,
                                  const MemorySupply& supply,
                                  const MemoryFit& now);

// One line for the outcome, then a table of lanes and one of places, no line longer than 100
// columns.
std::string to_string(const MemoryFit& fit);
std::string to_string(const std::vector<WayToFit>& ways);

// Empty for paced runs, which hold nothing.
//
// Returns  a warning if the run does not fit and execution.memory_check is "warn", else nothing.
// Throws   NothingFits with both tables if it does not fit.
std::string check_memory(const RunSetup& setup, const HostRanks& ranks);

// For `entrain eval`: the model's weights on `device`, and the file while it is read. `check`: one
// of kMemoryChecks. Returns and throws as check_memory() does.
std::string check_weights_memory(const ModelSpec& model,
                                 const std::filesystem::path& weights,
                                 const std::string& device,
                                 const std::string& check);

}  // namespace entrain::engine
