#include "entrain/core/schedule/torch_csv.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

[[noreturn]] void fail_export(const std::string& reason) {
  throw InvalidInput("no CSV for torch.distributed.pipelining: " + reason);
}

std::optional<char> letter_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kForward:
      return 'F';
    case OperationKind::kBackward:
      return 'B';
    case OperationKind::kBackwardInput:
      return 'I';
    case OperationKind::kBackwardWeight:
      return 'W';
    default:
      return std::nullopt;
  }
}

std::optional<OperationKind> kind_of(std::string_view name) {
  for (const OperationKind kind : {OperationKind::kForward,
                                   OperationKind::kBackward,
                                   OperationKind::kBackwardInput,
                                   OperationKind::kBackwardWeight}) {
    if (name.size() == 1 && name[0] == letter_of(kind)) {
      return kind;
    }
  }
  return std::nullopt;
}

// torch runs every microbatch forward and backward on every stage, and nothing else.
void check_exportable(const Program& program) {
  if (program.replicas.size() != 1) {
    fail_export(fmt::format("{} replicas; one is allowed", program.replicas.size()));
  }
  if (program.num_stages.size() > 2) {
    fail_export(fmt::format("{} encoders; its stages are one chain, so at most one is allowed",
                            program.num_stages.size() - 1));
  }
  const auto& modules = program.replicas[0].groups;
  for (std::size_t module = 0; module < modules.size(); ++module) {
    const std::string name = program.module_names.empty() ? fmt::format("module {}", module)
                                                          : program.module_names[module];
    for (std::size_t slot = 0; slot < modules[module].size(); ++slot) {
      const std::vector<Group>& groups = modules[module][slot];
      if (groups.size() != 1) {
        fail_export(fmt::format(
            "{} slot {} has {} groups; each slot needs one", name, slot, groups.size()));
      }
      if (groups[0].llm_slots != std::vector<int>{static_cast<int>(slot)}) {
        fail_export(fmt::format("{} slot {} serves other LLM slots than its own", name, slot));
      }
      if (!groups[0].earlier.empty() || !groups[0].later.empty()) {
        fail_export(fmt::format("{} slot {} holds chunks of a sample", name, slot));
      }
      const auto& takes = groups[0].takes_backward;
      const auto without = std::find(takes.begin(), takes.end(), 0);
      if (without != takes.end()) {
        fail_export(fmt::format(
            "{} stage {} takes no backward in slot {}", name, without - takes.begin(), slot));
      }
    }
  }
}

// The next line, without its end; `text` loses it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (!line.empty() && line.back() == '\r') {
    line.remove_suffix(1);
  }
  return line;
}

std::vector<std::string_view> rows_of(std::string_view text) {
  std::vector<std::string_view> rows;
  while (!text.empty()) {
    rows.push_back(take_line(text));
  }
  while (!rows.empty() && rows.back().find_first_not_of(" ,") == std::string_view::npos) {
    rows.pop_back();
  }
  return rows;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\"");
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(" \t\"") - begin + 1);
}

// Takes a number off the front; -1 where there is none or it is out of range.
int take_number(std::string_view& text) {
  int value = -1;
  const char* begin = text.data();
  const auto [end, error] = std::from_chars(begin, begin + text.size(), value);
  if (error != std::errc{} || value < 0) {
    return -1;
  }
  text.remove_prefix(static_cast<std::size_t>(end - begin));
  return value;
}

struct Cell {
  std::string_view text;
  std::string where;  // "row 2 column 5"
};

class CsvReader {
 public:
  explicit CsvReader(const Plan& plan) : plan_(plan) {
    if (plan.modules.size() > 2) {
      throw InvalidInput(
          fmt::format("schedule CSV: the plan has {} encoders; its stages are one chain, so at "
                      "most one is allowed",
                      plan.modules.size() - 1));
    }
    for (int module = 0; module < static_cast<int>(plan.modules.size()); ++module) {
      for (int stage = 0; stage < static_cast<int>(plan.modules[at(module)].stages.size());
           ++stage) {
        stages_.push_back({module, stage});
      }
    }
  }

  // Nothing where the cell holds no work of ours.
  [[nodiscard]] std::optional<Operation> read(const Cell& cell, int lane) const {
    std::string_view rest = trimmed(cell.text);
    if (rest.empty()) {
      return std::nullopt;
    }
    const int stage = take_number(rest);
    const std::string_view name = rest.substr(0, rest.find_first_of("0123456789"));
    rest.remove_prefix(name.size());
    if (stage >= 0 && name == "REDUCE_GRAD" && rest.empty()) {
      return std::nullopt;
    }
    const std::optional<OperationKind> kind = kind_of(name);
    const int slot = take_number(rest);
    if (stage < 0 || !kind || slot < 0 || !rest.empty()) {
      fail(cell,
           "is not [stage][F, B, I or W][microbatch], such as 0F3; only such orders are read");
    }
    if (at(stage) >= stages_.size()) {
      fail(cell, fmt::format("names stage {}; the plan has {}", stage, stages_.size()));
    }
    const StageRef ref = stages_[at(stage)];
    const int host = plan_.lane_of(ref.module, ref.stage);
    if (host != lane) {
      fail(cell, fmt::format("names a stage of lane {}, that is row {}", host, host + 1));
    }
    return Operation{*kind, {ref.module, ref.stage, slot, 0}, -1};
  }

 private:
  [[noreturn]] static void fail(const Cell& cell, const std::string& what) {
    throw InvalidInput(
        fmt::format("schedule CSV {}: '{}' {}", cell.where, trimmed(cell.text), what));
  }

  const Plan& plan_;
  std::vector<StageRef> stages_;  // [stage in the chain]
};

}  // namespace

std::string to_torch_csv(const Program& program) {
  check_exportable(program);
  std::vector<int> first_stage{0};  // [module] in the chain
  for (const int stages : program.num_stages) {
    first_stage.push_back(first_stage.back() + stages);
  }
  std::string text;
  for (const std::vector<Operation>& lane : program.replicas[0].lanes) {
    const char* separator = "";
    for (const Operation& operation : lane) {
      const std::optional<char> letter = letter_of(operation.kind);
      if (letter) {
        const UnitKey& unit = operation.unit;
        text += fmt::format(
            "{}{}{}{}", separator, first_stage[at(unit.module)] + unit.stage, *letter, unit.slot);
        separator = ",";
      }
    }
    text += '\n';
  }
  return text;
}

std::vector<std::vector<Operation>> orders_from_torch_csv(std::string_view text, const Plan& plan) {
  const CsvReader reader(plan);
  const std::vector<std::string_view> rows = rows_of(text);
  if (rows.size() != plan.lanes.size()) {
    throw InvalidInput(fmt::format(
        "schedule CSV: {} rows; the plan has {} lanes", rows.size(), plan.lanes.size()));
  }
  std::vector<std::vector<Operation>> orders(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::string_view rest = rows[row];
    for (int column = 1; !rest.empty(); ++column) {
      const std::size_t comma = rest.find(',');
      const Cell cell{rest.substr(0, comma), fmt::format("row {} column {}", row + 1, column)};
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
      if (const auto operation = reader.read(cell, static_cast<int>(row))) {
        orders[row].push_back(*operation);
      }
    }
  }
  return orders;
}

}  // namespace entrain
