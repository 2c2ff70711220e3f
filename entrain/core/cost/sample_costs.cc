#include "entrain/core/cost/sample_costs.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/csv.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/cost/step_costs.h"

namespace entrain {
namespace {

// Exact: whole seconds, then what is left, without closing zeros.
std::string seconds(std::int64_t nanoseconds) {
  std::string text =
      fmt::format("{}.{:09}", nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') {
    text.pop_back();
  }
  return text;
}

TableUnit table_unit(const UnitCost& cost, std::int64_t tokens) {
  return {tokens, cost.time.forward.count(), cost.time.backward().count(), cost.activation_bytes};
}

TableUnit sum_of(const std::vector<TableUnit>& units) {
  TableUnit sum{.activation_bytes = 0};
  for (const TableUnit& unit : units) {
    sum.tokens += unit.tokens;
    sum.forward_ns += unit.forward_ns;
    sum.backward_ns += unit.backward_ns;
    sum.activation_bytes += unit.activation_bytes;
  }
  return sum;
}

}  // namespace

CostTable sample_costs(const ModelSpec& model,
                       const Profile& profile,
                       std::span<const std::string> ids,
                       std::span<const SampleWork> work) {
  ENTRAIN_INVARIANT(ids.size() == work.size(), "an id for every sample's work");
  // Every module one stage.
  const Plan plan = even_plan(model, std::vector<int>(at(model.num_modules()), 1), 1, 1);
  const StepCosts costs = step_costs(model, plan, profile, work);
  CostTable table;
  table.modules = module_names(model);
  table.ids.assign(ids.begin(), ids.end());
  for (int module = 0; module < model.num_modules(); ++module) {
    const ModuleCosts& from = costs.modules[at(module)];
    auto& samples = table.units.emplace_back(ids.size());
    for (std::size_t sample = 0; sample < ids.size(); ++sample) {
      for (int unit = from.first_unit[sample]; unit < from.first_unit[sample + 1]; ++unit) {
        samples[sample].push_back(
            table_unit(from.stages.front().units[at(unit)], from.tokens[at(unit)]));
      }
    }
  }
  return table;
}

void append_cost_header(std::string& out,
                        std::span<const std::string> modules,
                        const CostColumns& columns) {
  std::vector<std::string> fields = {"sample_id"};
  for (const std::string& module : modules) {
    for (const std::string_view ending : {"_tokens", "_forward_s", "_backward_s"}) {
      fields.push_back(module + std::string(ending));
    }
    if (columns.activation_bytes) {
      fields.push_back(module + "_activation_bytes");
    }
  }
  append_csv_row(out, fields);
}

void append_cost_rows(std::string& out, const CostTable& table, const CostColumns& columns) {
  std::vector<std::string> fields;
  for (std::size_t sample = 0; sample < table.ids.size(); ++sample) {
    fields = {table.ids[sample]};
    for (const auto& module : table.units) {
      const TableUnit sum = sum_of(module[sample]);
      fields.push_back(std::to_string(sum.tokens));
      fields.push_back(seconds(sum.forward_ns));
      fields.push_back(seconds(sum.backward_ns));
      if (columns.activation_bytes) {
        fields.push_back(std::to_string(sum.activation_bytes));
      }
    }
    append_csv_row(out, fields);
  }
}

void append_segment_header(std::string& out) {
  const std::vector<std::string> fields = {
      "sample_id", "module", "segment", "tokens", "forward_s", "backward_s"};
  append_csv_row(out, fields);
}

void append_segment_rows(std::string& out, const CostTable& table) {
  for (std::size_t sample = 0; sample < table.ids.size(); ++sample) {
    for (std::size_t module = 0; module + 1 < table.modules.size(); ++module) {
      const std::vector<TableUnit>& units = table.units[module][sample];
      for (std::size_t segment = 0; segment < units.size(); ++segment) {
        const std::vector<std::string> fields = {table.ids[sample],
                                                 table.modules[module],
                                                 std::to_string(segment),
                                                 std::to_string(units[segment].tokens),
                                                 seconds(units[segment].forward_ns),
                                                 seconds(units[segment].backward_ns)};
        append_csv_row(out, fields);
      }
    }
  }
}

}  // namespace entrain
