// The user's own costs: seconds per sample and module from CSV files, instead of a model and a
// profile.
//
// Read first: read_cost_table(), then table_costs(). Columns of the first file, in any order:
//   sample_id                                                     needed, unique
//   <module>_tokens, <module>_forward_s, <module>_backward_s      needed for every module; the
//   module
//                                                                 `llm` is needed, others are
//                                                                 encoders
//   <module>_activation_bytes                                     optional: kept until the backward
// Other columns are ignored. Columns of the second file, one row per segment of an encoder:
//   sample_id, module, segment, tokens, forward_s, backward_s
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain {

// Costs over a whole module.
struct TableUnit {
  std::int64_t tokens = 0;
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  std::int64_t activation_bytes = -1;  // -1: not given
};

struct CostTable {
  std::vector<std::string> modules;  // encoders in order of their columns, then "llm"
  std::vector<std::string> ids;      // [sample]
  // [module][sample] the sample's units: segments of an encoder (none without work there), in the
  // LLM one.
  std::vector<std::vector<std::vector<TableUnit>>> units;
  // How the LLM's times are distributed over the tokens of a sample that is cut into chunks:
  // fit_length_costs() over all samples.
  CostWeights llm_forward;
  CostWeights llm_backward;

  [[nodiscard]] int num_modules() const { return static_cast<int>(modules.size()); }
  [[nodiscard]] bool has_activation_bytes() const;  // for every module
};

// Without `segments` a sample is one unit in every module. A sample's segments have to add up to
// its row in the first file: tokens exactly, seconds within a thousandth.
//
// Throws  InvalidInput naming file, line and column: a missing column, a number that is negative,
//         none or above 10^9 s, an id twice; segments of an unknown sample or module, not numbered
//         0, 1, … or not adding up.
CostTable read_cost_table(const std::filesystem::path& costs,
                          const std::filesystem::path& segments = {});
// The same from text; `segments` is empty for none.
CostTable parse_cost_table(std::string_view costs,
                           const std::string& where,
                           std::string_view segments = {},
                           const std::string& segments_where = {});

// A model with the table's modules and these numbers of layers, for functions that need nothing
// else of a model: plans and their search. It has no widths.
//
// Shapes  num_layers: [module], each >= 1.
ModelSpec table_model(const CostTable& table, std::span<const int> num_layers);

// A plan for the table's modules; a module has as many layers as the plan's stages cover.
//
// Throws  InvalidInput as plan_from_json() does.
Plan table_plan(const CostTable& table, const Json& document, const std::string& where);

// A sample's work: tokens, and as many segments as it has units. Attention pairs and features
// are 0, since a table does not contain them.
SampleWork table_work(const CostTable& table, int row);

// Costs of a batch under a plan. A stage takes its layers' share of each unit; half of a backward
// is weight gradient (the smaller half of an odd number). Without activation bytes in the table a
// token keeps one byte per layer: comparable within a lane, but not real bytes. No launch
// constants, free link, no reduction and no optimizer time. Chunks of a sample cost as unit_cost()
// says, by the table's weights, the same in every stage and in both halves of a backward.
//
// Frozen modules have no weight gradient, and an input gradient only in the LLM in front of an
// encoder that is not frozen.
//
// Shapes    rows: [sample of the batch] positions in the table; frozen: [module].
// Requires  a plan of table_plan() or for table_model().
// Ensures   shares of a unit over all stages sum to the unit exactly.
// Throws    InvalidInput when the batch's total exceeds 2^62 ns or bytes, and for a plan that
//           recomputes layers: a table does not contain their costs.
StepCosts table_costs(const CostTable& table,
                      const Plan& plan,
                      std::span<const int> rows,
                      const std::vector<char>& frozen);

}  // namespace entrain
