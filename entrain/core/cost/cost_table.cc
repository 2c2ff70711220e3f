#include "entrain/core/cost/cost_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/csv.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/length_fit.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

constexpr double kMostSeconds = 1e9;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
constexpr std::string_view kLlm = "llm";
constexpr std::string_view kForward = "_forward_s";

int needed_column(const CsvReader& reader, const std::string& name, const std::string& where) {
  const int column = reader.column(name);
  if (column < 0) {
    throw InvalidInput(fmt::format(
        "{}: column '{}' is missing{}", where, name, suggestion(name, reader.columns())));
  }
  return column;
}

template <class T>
T number(const CsvReader& reader, int column, T most) {
  const std::string& field = reader.field(column);
  T value{};
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size() || !(value >= 0) ||
      !(value <= most)) {
    reader.fail(column, fmt::format("'{}' given; a number from 0 to {} is needed", field, most));
  }
  return value;
}

std::int64_t time_of(const CsvReader& reader, int column) {
  return std::llround(number<double>(reader, column, kMostSeconds) * 1e9);
}

struct ModuleColumns {
  int tokens = -1;
  int forward = -1;
  int backward = -1;
  int activation = -1;  // -1: not given

  [[nodiscard]] TableUnit read(const CsvReader& reader) const {
    TableUnit unit;
    unit.tokens = number<std::int64_t>(reader, tokens, kMostTokens);
    unit.forward_ns = time_of(reader, forward);
    unit.backward_ns = time_of(reader, backward);
    if (activation >= 0) {
      unit.activation_bytes =
          std::llround(number<double>(reader, activation, static_cast<double>(kMostTokens)));
    }
    return unit;
  }
};

// Modules in order of their columns, the LLM moved to the end.
std::vector<std::string> modules_of(const CsvReader& reader, const std::string& where) {
  std::vector<std::string> modules;
  bool llm = false;
  for (const std::string& column : reader.columns()) {
    for (const std::string_view ending : {kForward, std::string_view("_backward_s")}) {
      if (!column.ends_with(ending) || column.size() == ending.size()) {
        continue;
      }
      const std::string name = column.substr(0, column.size() - ending.size());
      llm = llm || name == kLlm;
      if (name != kLlm && std::find(modules.begin(), modules.end(), name) == modules.end()) {
        modules.push_back(name);
      }
    }
  }
  if (!llm) {
    throw InvalidInput(fmt::format(
        "{}: columns 'llm_tokens', 'llm_forward_s' and 'llm_backward_s' are missing", where));
  }
  modules.emplace_back(kLlm);
  return modules;
}

bool has_work(const TableUnit& unit) {
  return unit.tokens > 0 || unit.forward_ns > 0 || unit.backward_ns > 0;
}

using RowOfId = std::unordered_map<std::string, int>;

CostTable read_samples(std::string_view content, const std::string& where, RowOfId& row_of) {
  CsvReader reader(content, where);
  const int id = needed_column(reader, "sample_id", where);
  CostTable table;
  table.modules = modules_of(reader, where);
  std::vector<ModuleColumns> columns;
  for (const std::string& module : table.modules) {
    columns.push_back({needed_column(reader, module + "_tokens", where),
                       needed_column(reader, module + std::string(kForward), where),
                       needed_column(reader, module + "_backward_s", where),
                       reader.column(module + "_activation_bytes")});
  }
  table.units.resize(table.modules.size());
  while (reader.next()) {
    const std::string& name = reader.field(id);
    if (name.empty()) {
      reader.fail(id, "the sample has no id");
    }
    if (!row_of.emplace(name, static_cast<int>(table.ids.size())).second) {
      reader.fail(id, fmt::format("sample '{}' occurs twice", name));
    }
    table.ids.push_back(name);
    for (std::size_t module = 0; module < columns.size(); ++module) {
      const TableUnit unit = columns[module].read(reader);
      std::vector<TableUnit>& units = table.units[module].emplace_back();
      if (has_work(unit) || module + 1 == columns.size()) {
        units.push_back(unit);
      }
    }
  }
  if (table.ids.empty()) {
    throw InvalidInput(fmt::format("{}: no samples", where));
  }
  return table;
}

CostWeights weights_of(const std::vector<std::vector<TableUnit>>& samples,
                       std::int64_t TableUnit::*time) {
  std::vector<LengthCost> costs;
  for (const std::vector<TableUnit>& units : samples) {
    for (const TableUnit& unit : units) {
      costs.push_back({unit.tokens, unit.*time});
    }
  }
  return fit_length_costs(costs);
}

void check_sum(const std::vector<TableUnit>& segments,
               const std::vector<TableUnit>& whole,
               const std::string& what) {
  TableUnit sum;
  for (const TableUnit& segment : segments) {
    sum.tokens += segment.tokens;
    sum.forward_ns += segment.forward_ns;
    sum.backward_ns += segment.backward_ns;
  }
  const TableUnit row = whole.empty() ? TableUnit{} : whole.front();
  const auto differ = [&](std::int64_t a, std::int64_t b) {
    return std::abs(a - b) > b / 1000 + static_cast<std::int64_t>(segments.size());
  };
  if (sum.tokens != row.tokens || differ(sum.forward_ns, row.forward_ns) ||
      differ(sum.backward_ns, row.backward_ns)) {
    throw InvalidInput(fmt::format(
        "{}: its segments add up to {} tokens, {} s forward, {} s backward; its row in the costs "
        "says {}, {} and {}",
        what,
        sum.tokens,
        static_cast<double>(sum.forward_ns) * 1e-9,
        static_cast<double>(sum.backward_ns) * 1e-9,
        row.tokens,
        static_cast<double>(row.forward_ns) * 1e-9,
        static_cast<double>(row.backward_ns) * 1e-9));
  }
}

// Activation bytes of the sample dealt to its segments by tokens, the rest to the last one.
void share_activations(const TableUnit& whole, std::vector<TableUnit>& segments) {
  if (whole.activation_bytes < 0) {
    return;
  }
  std::int64_t left = whole.activation_bytes;
  for (TableUnit& segment : segments) {
    const double share =
        whole.tokens > 0 ? static_cast<double>(segment.tokens) / static_cast<double>(whole.tokens)
                         : 0;
    segment.activation_bytes = std::min<std::int64_t>(
        left, std::llround(static_cast<double>(whole.activation_bytes) * share));
    left -= segment.activation_bytes;
  }
  segments.back().activation_bytes += left;
}

void read_segments(std::string_view content,
                   const std::string& where,
                   const RowOfId& row_of,
                   CostTable& table) {
  CsvReader reader(content, where);
  const int id = needed_column(reader, "sample_id", where);
  const int module_column = needed_column(reader, "module", where);
  const int number_column = needed_column(reader, "segment", where);
  const ModuleColumns columns{needed_column(reader, "tokens", where),
                              needed_column(reader, "forward_s", where),
                              needed_column(reader, "backward_s", where),
                              -1};
  const std::vector<std::string> encoders(table.modules.begin(), table.modules.end() - 1);
  using Segments = std::vector<std::optional<TableUnit>>;  // of a sample in an encoder, by number
  std::vector<std::unordered_map<int, Segments>> segments(encoders.size());  // [encoder][row]
  while (reader.next()) {
    const auto row = row_of.find(reader.field(id));
    if (row == row_of.end()) {
      reader.fail(id, fmt::format("sample '{}' is not in the costs", reader.field(id)));
    }
    const auto module = std::find(encoders.begin(), encoders.end(), reader.field(module_column));
    if (module == encoders.end()) {
      reader.fail(module_column,
                  fmt::format("'{}' is no encoder of the costs{}",
                              reader.field(module_column),
                              suggestion(reader.field(module_column), encoders)));
    }
    const auto segment =
        static_cast<std::size_t>(number<std::int64_t>(reader, number_column, 1'000'000));
    Segments& given = segments[at(module - encoders.begin())][row->second];
    given.resize(std::max(given.size(), segment + 1));
    if (given[segment].has_value()) {
      reader.fail(number_column, fmt::format("segment {} occurs twice", segment));
    }
    given[segment] = columns.read(reader);
  }
  for (std::size_t encoder = 0; encoder < segments.size(); ++encoder) {
    for (const auto& [row, given] : segments[encoder]) {
      const std::string what =
          fmt::format("{}: sample '{}', module '{}'", where, table.ids[at(row)], encoders[encoder]);
      std::vector<TableUnit> read;
      for (const std::optional<TableUnit>& segment : given) {
        if (!segment.has_value()) {
          throw InvalidInput(fmt::format("{}: segment {} is missing", what, read.size()));
        }
        read.push_back(*segment);
      }
      std::vector<TableUnit>& units = table.units[encoder][at(row)];
      check_sum(read, units, what);
      if (!units.empty()) {
        share_activations(units.front(), read);
      }
      units = std::move(read);
    }
  }
}

// What of `total` falls to layers [begin, end) of `layers`; neighbouring ranges sum exactly.
std::int64_t share(std::int64_t total, LayerRange range, int layers) {
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>(Wide{total} * range.end / layers -
                                   Wide{total} * range.begin / layers);
}

UnitCost stage_cost(const TableUnit& unit, LayerRange range, int layers) {
  UnitCost cost;
  const std::int64_t weight = unit.backward_ns / 2;
  cost.time.forward = nanoseconds{share(unit.forward_ns, range, layers)};
  cost.time.backward_weight = nanoseconds{share(weight, range, layers)};
  cost.time.backward_input = nanoseconds{share(unit.backward_ns - weight, range, layers)};
  cost.activation_bytes = unit.activation_bytes < 0 ? unit.tokens * (range.end - range.begin)
                                                    : share(unit.activation_bytes, range, layers);
  return cost;
}

void check_total(const CostTable& table, std::span<const int> rows) {
  double total = 0;
  for (const auto& module : table.units) {
    for (const int row : rows) {
      for (const TableUnit& unit : module[at(row)]) {
        total += static_cast<double>(unit.forward_ns) + static_cast<double>(unit.backward_ns);
      }
    }
  }
  if (!(total < static_cast<double>(kMostNanoseconds))) {
    throw InvalidInput("the batch needs more than 2^62 ns in total: check the costs");
  }
}

ModuleCosts module_costs(const std::vector<std::vector<TableUnit>>& units,
                         const ModulePlan& plan,
                         std::span<const int> rows,
                         bool trainable,
                         bool takes_backward) {
  ModuleCosts result;
  result.first_unit.push_back(0);
  for (const int row : rows) {
    for (const TableUnit& unit : units[at(row)]) {
      result.tokens.push_back(unit.tokens);
    }
    result.first_unit.push_back(static_cast<int>(result.tokens.size()));
  }
  const int layers = plan.stages.back().end;
  for (const LayerRange& range : plan.stages) {
    StageCosts& stage = result.stages.emplace_back();
    stage.trainable = trainable;
    for (const int row : rows) {
      for (const TableUnit& unit : units[at(row)]) {
        UnitCost& cost = stage.units.own().emplace_back(stage_cost(unit, range, layers));
        if (!trainable) {
          cost.time.backward_weight = nanoseconds{0};
        }
        if (!takes_backward) {
          cost.time.backward_input = nanoseconds{0};
          cost.activation_bytes = 0;
        }
      }
    }
  }
  return result;
}

}  // namespace

bool CostTable::has_activation_bytes() const {
  for (const auto& module : units) {
    for (const std::vector<TableUnit>& sample : module) {
      if (!sample.empty() && sample.front().activation_bytes < 0) {
        return false;
      }
    }
  }
  return true;
}

CostTable parse_cost_table(std::string_view costs,
                           const std::string& where,
                           std::string_view segments,
                           const std::string& segments_where) {
  RowOfId row_of;
  CostTable table = read_samples(costs, where, row_of);
  table.llm_forward = weights_of(table.units.back(), &TableUnit::forward_ns);
  table.llm_backward = weights_of(table.units.back(), &TableUnit::backward_ns);
  if (!segments.empty()) {
    read_segments(segments, segments_where, row_of, table);
  }
  return table;
}

CostTable read_cost_table(const std::filesystem::path& costs,
                          const std::filesystem::path& segments) {
  const std::string content = read_file(costs);
  if (segments.empty()) {
    return parse_cost_table(content, costs.string());
  }
  const std::string segment_content = read_file(segments);
  if (segment_content.empty()) {
    throw InvalidInput(
        fmt::format("{}: the file is empty; a header line is needed", segments.string()));
  }
  return parse_cost_table(content, costs.string(), segment_content, segments.string());
}

ModelSpec table_model(const CostTable& table, std::span<const int> num_layers) {
  ENTRAIN_INVARIANT(num_layers.size() == table.modules.size(), "a number of layers per module");
  ModelSpec model;
  model.name = "cost table";
  for (std::size_t module = 0; module + 1 < table.modules.size(); ++module) {
    EncoderSpec& encoder = model.encoders.emplace_back();
    encoder.name = table.modules[module];
    encoder.num_layers = num_layers[module] - 2;  // embedding and projector are the other two
  }
  model.llm.num_layers = num_layers.back() - 2;
  return model;
}

Plan table_plan(const CostTable& table, const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  ObjectReader modules = reader.object("modules");
  std::vector<int> num_layers;
  for (const std::string& name : table.modules) {
    ObjectReader module = modules.object(name);
    const auto stages = module.array("stages");
    int layers = 1;
    if (!stages.empty()) {
      const auto range = elements_of(*stages.back().first, stages.back().second);
      if (range.size() == 2) {
        layers = std::max(1, value_as<int>(*range[1].first, range[1].second));
      }
    }
    num_layers.push_back(layers);
  }
  return plan_from_json(document, table_model(table, num_layers), where);
}

SampleWork table_work(const CostTable& table, int row) {
  SampleWork work;
  for (int module = 0; module + 1 < table.num_modules(); ++module) {
    std::vector<SegmentWork>& segments = work.segments.emplace_back();
    for (const TableUnit& unit : table.units[at(module)][at(row)]) {
      SegmentWork& segment = segments.emplace_back();
      segment.tokens = unit.tokens;
    }
  }
  work.llm_tokens = table.units.back()[at(row)].front().tokens;
  return work;
}

StepCosts table_costs(const CostTable& table,
                      const Plan& plan,
                      std::span<const int> rows,
                      const std::vector<char>& frozen) {
  ENTRAIN_INVARIANT(
      plan.modules.size() == table.modules.size() && frozen.size() == table.modules.size(),
      "a plan and freezing for every module of the table");
  check_total(table, rows);
  for (const ModulePlan& module : plan.modules) {
    if (recomputes(module)) {
      throw InvalidInput(
          fmt::format("plan: modules.{}.recompute is given; a cost table has no costs of "
                      "recomputation: give --model and --profile instead of --costs",
                      module.name));
    }
  }
  StepCosts costs;
  costs.num_samples = static_cast<int>(rows.size());
  bool encoder_trains = false;
  for (std::size_t module = 0; module < table.modules.size(); ++module) {
    const bool llm = module + 1 == table.modules.size();
    const bool trainable = frozen[module] == 0;
    costs.modules.push_back(module_costs(table.units[module],
                                         plan.modules[module],
                                         rows,
                                         trainable,
                                         trainable || (llm && encoder_trains)));
    encoder_trains = encoder_trains || trainable;
  }
  for (StageCosts& stage : costs.modules.back().stages) {
    stage.chunk_weights.forward = table.llm_forward;
    stage.chunk_weights.backward_input = table.llm_backward;
    stage.chunk_weights.backward_weight = table.llm_backward;
  }
  for (const int row : rows) {
    costs.work.own().push_back(table_work(table, row));
  }
  return costs;
}

}  // namespace entrain
