// A program and its costs as flat arrays: what the replay reads in its inner loop.
//
// Read first: ReplicaTables. A *unit* is one group on one stage of its module; units of a group are
// neighbours in order of stage, so that `unit - 1` is the stage before and `unit + 1` the one
// after.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/program.h"

namespace entrain::simulation {

// Where stages stand, equal for all replicas.
class StageTable {
 public:
  // Throws  InvalidInput when a stage stands on no lane.
  explicit StageTable(const Program& program);

  [[nodiscard]] int num_modules() const { return static_cast<int>(num_stages_.size()); }
  [[nodiscard]] int llm_module() const { return num_modules() - 1; }
  [[nodiscard]] int num_stages(int module) const {
    return num_stages_[static_cast<std::size_t>(module)];
  }
  [[nodiscard]] int lane(int module, int stage) const { return lane_[number(module, stage)]; }
  // Whether the stage's output goes to another lane. False for the LLM's last stage.
  [[nodiscard]] bool output_crosses(int module, int stage) const {
    return crosses_[number(module, stage)] != 0;
  }
  [[nodiscard]] int llm_first_lane() const { return lane(llm_module(), 0); }
  [[nodiscard]] bool feeds_llm(int module, int stage) const {
    return module != llm_module() && stage + 1 == num_stages(module);
  }
  // Stages of all modules are numbered module by module.
  [[nodiscard]] std::size_t num_all_stages() const { return lane_.size(); }
  [[nodiscard]] std::size_t number(int module, int stage) const {
    return static_cast<std::size_t>(first_stage_[static_cast<std::size_t>(module)] + stage);
  }

 private:
  std::vector<int> num_stages_;   // [module]
  std::vector<int> first_stage_;  // [module]
  std::vector<int> lane_;         // [stage of all modules]
  std::vector<char> crosses_;     // likewise
};

// Costs of one unit in nanoseconds, launch constants included, and bytes.
struct UnitTotals {
  std::int64_t forward = 0;
  std::int64_t backward_input = 0;
  std::int64_t backward_weight = 0;
  std::int64_t split = 0;  // OperationTimes::split
  std::int64_t activation_bytes = 0;
  std::int64_t output_bytes = 0;
  std::int64_t key_value_bytes = 0;  // of its chunks that others follow
  RecomputeBytes recompute;
  bool takes_backward = false;
  [[nodiscard]] std::int64_t backward() const { return backward_input + backward_weight; }
  [[nodiscard]] std::int64_t weight_half() const { return backward_weight + split; }
};

// A last-stage encoder unit whose output an LLM group takes.
struct Serving {
  int unit = 0;
  bool crosses = false;  // to another lane
};

class ReplicaTables {
 public:
  // Throws  InvalidInput for a chunk that is no range within its sample's tokens and for a channel
  //         whose lanes are not those of its stages.
  // Cost    O(items × stages + parts).
  ReplicaTables(const Program& program,
                const StageTable& stages,
                const StepCosts& costs,
                int replica);

  [[nodiscard]] const StageTable& stages() const { return *stages_; }
  [[nodiscard]] int num_units() const { return static_cast<int>(totals_.size()); }
  [[nodiscard]] const UnitTotals& totals(int unit) const {
    return totals_[static_cast<std::size_t>(unit)];
  }
  // Throws  InvalidInput when the program has no such unit.
  [[nodiscard]] int unit_of(const UnitKey& key) const;

  // First-stage unit of an LLM group.
  [[nodiscard]] int llm_unit(const LlmGroupRef& ref) const;

  // Of an LLM unit's group: last-stage encoder units that serve it, by module, slot, group.
  [[nodiscard]] std::span<const Serving> serving(int llm_unit) const {
    return serving_.of(llm_group(llm_unit));
  }
  // Of any unit: how far from it, on the same stage, stand the units that hold the chunks just
  // before (`earlier`) and just after (`later`) those of its group.
  [[nodiscard]] std::span<const int> earlier(int unit) const { return linked(earlier_, unit); }
  [[nodiscard]] std::span<const int> later(int unit) const { return linked(later_, unit); }
  // Likewise the units with chunks whose samples end with this unit: it is the last to read their
  // keys and values and the first to make gradients of these.
  [[nodiscard]] std::span<const int> ended(int unit) const { return linked(ended_, unit); }
  // Of a last-stage encoder unit: how many LLM groups take its output. [unit]
  [[nodiscard]] const std::vector<int>& num_takers() const { return num_takers_; }

 private:
  struct ModuleEntry {
    int num_slots = 0;
    int num_stages = 0;
    int first_slot = 0;  // into first_group_
    int first_unit = 0;
  };

  // Lists by LLM group.
  template <class Value>
  struct Lists {
    std::vector<int> begin;  // [group + 1]
    std::vector<Value> values;

    [[nodiscard]] std::span<const Value> of(int group) const {
      const auto first = static_cast<std::size_t>(group);
      return {values.data() + begin[first], values.data() + begin[first + 1]};
    }
  };

  [[nodiscard]] int llm_group(int unit) const {
    return (unit - modules_.back().first_unit) / modules_.back().num_stages;
  }
  [[nodiscard]] std::span<const int> linked(const Lists<int>& lists, int unit) const {
    return has_links_ && unit >= modules_.back().first_unit ? lists.of(llm_group(unit))
                                                            : std::span<const int>();
  }

  void number_units(const ReplicaProgram& replica);
  void add_totals(const ReplicaProgram& replica, const StepCosts& costs);
  void check_llm_group(const LlmGroupRef& ref) const;
  void add_serving(const ReplicaProgram& replica);
  void add_links(const ReplicaProgram& replica);

  const StageTable* stages_;
  std::vector<ModuleEntry> modules_;
  std::vector<int> first_group_;  // [module's slots + 1]: groups of the module before the slot
  std::vector<UnitTotals> totals_;
  Lists<Serving> serving_;
  bool has_links_ = false;  // lists below are filled
  Lists<int> earlier_;
  Lists<int> later_;
  Lists<int> ended_;
  std::vector<int> num_takers_;
};

}  // namespace entrain::simulation
