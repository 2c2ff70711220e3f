// The loads of cells (a rank's microbatches) while samples are placed, moved and swapped, and what
// a change would make of the step's time.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "entrain/core/balance/request.h"
#include "entrain/core/base/at.h"

namespace entrain {

class CellLoads {
 public:
  using Work = std::array<std::int64_t, kMaxBalanceModules>;
  // Of a change that breaks a limit or leaves a cell without what it must hold.
  static constexpr std::int64_t kRefused = std::numeric_limits<std::int64_t>::max();

  // The request outlives the object. No sample is placed.
  explicit CellLoads(const BalanceRequest& request);
  // Requires  a cell for every sample.
  CellLoads(const BalanceRequest& request, const CellOf& cells);

  void place(int sample, int cell);
  // Requires  placed samples.
  void move(int sample, int cell);
  void swap(int first, int second);

  // By how much the step's time would change; kRefused where a rule forbids it.
  // Cost  O(modules); under padding O(samples of the cells), too.
  [[nodiscard]] std::int64_t place_change(int sample, int cell) const;
  [[nodiscard]] std::int64_t move_change(int sample, int cell) const;
  [[nodiscard]] std::int64_t swap_change(int first, int second) const;

  [[nodiscard]] std::int64_t step_time() const { return step_time_; }
  [[nodiscard]] const CellOf& cells() const { return cell_of_; }
  [[nodiscard]] const std::vector<int>& members(int cell) const { return members_[at(cell)]; }
  [[nodiscard]] const Work& work(int cell) const { return cells_[at(cell)].work; }
  // Under kFsdp a microbatch's module, microbatch · modules + module; under kDdp the whole step.
  // The step's time is the sum over meetings of the slowest rank's.
  [[nodiscard]] int num_meetings() const { return static_cast<int>(meetings_.size()); }
  [[nodiscard]] int slowest_rank(int meeting) const { return meetings_[at(meeting)].slowest[0]; }
  [[nodiscard]] const std::vector<std::int64_t>& times(int meeting) const {
    return meetings_[at(meeting)].time;
  }

 private:
  // What a cell holds. `work` is as computed: padded in the LLM where the request pads.
  struct Cell {
    Work work{};
    Work holders{};  // [module] samples with work there
    std::int64_t llm_sum = 0;
    std::int64_t llm_longest = 0;
    std::int64_t token_sum = 0;
    std::int64_t longest = 0;  // tokens
    std::int64_t bytes = 0;
    std::int64_t count = 0;
  };
  // Where all ranks wait for each other: their times, and some of the slowest. At least three of
  // them (all, of fewer ranks) are known: a change of two ranks leaves one that is not changed.
  struct Meeting {
    std::vector<std::int64_t> time;  // [rank]
    std::array<int, 8> slowest{};    // slowest first, `known` of them; no other rank is slower
    int known = 0;
  };

  [[nodiscard]] Cell after(int cell, int removed, int added) const;
  [[nodiscard]] bool within_limits(std::int64_t count,
                                   std::int64_t tokens,
                                   std::int64_t bytes) const;
  [[nodiscard]] bool within_limits(const Cell& cell) const;
  static void find_slowest(Meeting& meeting);
  static void set_time(Meeting& meeting, int rank, std::int64_t time);
  [[nodiscard]] bool holds_needed(const Cell& cell) const;
  [[nodiscard]] std::int64_t change(int first,
                                    const Cell& first_after,
                                    int second,
                                    const Cell& second_after) const;
  [[nodiscard]] std::int64_t meeting_change(const Meeting& meeting,
                                            int first,
                                            std::int64_t more,
                                            int second,
                                            std::int64_t more_second) const;
  void apply(int cell, const Cell& after);
  void take_out(int sample);
  void put_in(int sample, int cell);

  const BalanceRequest* request_;
  CellOf cell_of_;
  std::vector<Cell> cells_;
  std::vector<std::vector<int>> members_;
  std::vector<int> place_;         // [sample] its place in members_[cell]
  std::vector<Meeting> meetings_;  // [microbatch · modules + module]; one under DDP
  std::int64_t step_time_ = 0;
};

}  // namespace entrain
