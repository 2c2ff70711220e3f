// One step of a trainer that splits the data but not the layers of a model, and how long an
// assignment of its samples takes.
//
// Read first: BalanceRequest, CellOf, step_time().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace entrain {

// When the ranks of a step wait for each other.
enum class Layout : std::uint8_t {
  // In every layer of every microbatch (FSDP, ZeRO-3): a step takes the sum over microbatches and
  // modules of the slowest rank.
  kFsdp,
  // Once, after their last microbatch (DDP, ZeRO-1, ZeRO-2): a step takes the slowest rank's sum.
  kDdp,
};

inline constexpr int kMaxBalanceModules = 4;

// One step. Everything that is counted per microbatch is counted per rank, too.
struct BalanceRequest {
  struct Sample {
    // [module] ns of forward and backward, 0 … 10^12: encoders, then the LLM.
    std::array<std::int64_t, kMaxBalanceModules> work{};
    std::int64_t tokens = 0;  // in the LLM, 0 … 10^12
    std::int64_t bytes = 0;   // kept until the backward, 0 … 10^13
  };
  Layout layout = Layout::kFsdp;
  int ranks = 1;         // >= 1
  int microbatches = 1;  // of every rank, >= 1
  int num_modules = 1;   // 1 … kMaxBalanceModules; the last one is the LLM
  std::vector<Sample> samples;
  // The LLM computes every sample of a microbatch at the length of its longest one.
  bool padded = false;
  // Limits of a microbatch; 0: none. Tokens are counted as computed, so padded where it pads.
  int max_samples = 0;
  std::int64_t max_tokens = 0;
  std::int64_t max_bytes = 0;
  // [module] every microbatch of every rank holds a sample with work in it.
  std::array<bool, kMaxBalanceModules> everywhere{};
  // Of the search: steps tried after the first assignment (twice as many under padding where there
  // are at most 1,024 samples; in proportion more for more than 4,096), and the seed of their
  // choice.
  int search_steps = 200'000;
  std::uint64_t seed = 0;
  std::array<std::string, kMaxBalanceModules> module_names;  // for messages; empty: its number

  [[nodiscard]] int num_cells() const { return ranks * microbatches; }
};

// [sample] microbatch · ranks + rank: the cell that trains it.
using CellOf = std::vector<int>;

// [sample] its work in all modules.
std::vector<std::int64_t> whole_work(const BalanceRequest& request);

// Throws  InvalidInput for a request out of the ranges above, with fewer samples than cells, and
//         with fewer samples of a module in `everywhere` than cells.
void check_request(const BalanceRequest& request);

// Samples that exceed a limit alone: no assignment can train them.
std::vector<int> oversized_samples(const BalanceRequest& request);

// Sets the limits of tokens and bytes to the most that a cell of this assignment holds.
void limit_as(const CellOf& cells, BalanceRequest& request);

// The step's time in ns under the request's layout.
//
// Requires  a cell for every sample. Cost  O(samples + cells · modules).
std::int64_t step_time(const BalanceRequest& request, const CellOf& cells);

// No assignment's step is shorter. Without padding the largest of: all work / ranks; the largest
// samples of a rank (of any ranks · j + 1 samples one rank trains j + 1); the largest sample and
// the least that the other microbatches take, since each needs samples.
//
// Cost  O(samples · (log samples + modules)).
std::int64_t step_time_bound(const BalanceRequest& request);

// The step's time if all work could be cut at will, without padding: all work / ranks.
std::int64_t perfect_step_time(const BalanceRequest& request);

// What breaks a rule of `request`, a sentence for each; empty if nothing does.
std::vector<std::string> balance_violations(const BalanceRequest& request, const CellOf& cells);

}  // namespace entrain
