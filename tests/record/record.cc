#include "tests/record/record.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/parallel.h"
#include "entrain/core/base/text.h"

#include "tests/record/fields.h"

namespace entrain::record {
namespace {

using Fields = std::map<std::string, std::string>;

Fields fields_of(const std::string& line) {
  Fields fields;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const std::size_t sign = word.find('=');
    if (sign == std::string::npos) {
      throw InvalidInput(concat("a record has '", word, "' where a field belongs"));
    }
    fields[word.substr(0, sign)] = word.substr(sign + 1);
  }
  return fields;
}

std::string value_of(const Fields& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "(none)" : found->second;
}

// One case's differing fields, which are counted too.
std::string differences(const std::string& before,
                        const std::string& after,
                        std::map<std::string, int>& counts) {
  const Fields old_fields = fields_of(before);
  const Fields new_fields = fields_of(after);
  std::set<std::string> names;
  for (const Fields* fields : {&old_fields, &new_fields}) {
    for (const auto& [name, value] : *fields) {
      names.insert(name);
    }
  }
  std::string text;
  for (const std::string& name : names) {
    const std::string old_value = value_of(old_fields, name);
    const std::string new_value = value_of(new_fields, name);
    if (old_value != new_value) {
      text += concat("  ", name, "\n    old ", old_value, "\n    new ", new_value, "\n");
      ++counts[name];
    }
  }
  return text;
}

}  // namespace

Record compute(const std::vector<Case>& cases, int threads) {
  std::vector<std::string> lines(cases.size());
  parallel_for(std::ssize(cases), threads, [&](std::int64_t i) {
    const auto index = static_cast<std::size_t>(i);
    lines[index] = or_refusal(cases[index].run);
  });
  Record record;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const bool added = record.emplace(cases[i].name, lines[i]).second;
    ENTRAIN_INVARIANT(added, concat("two cases are called ", cases[i].name));
  }
  return record;
}

std::string to_text(const Record& record) {
  std::string text;
  for (const auto& [name, fields] : record) {
    text += concat(name, " ", fields, "\n");
  }
  return text;
}

Record record_from_text(std::string_view text) {
  Record record;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) {
      continue;
    }
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) {
      throw InvalidInput(concat("a record has the line '", line, "', without fields"));
    }
    record[std::string(line.substr(0, blank))] = line.substr(blank + 1);
  }
  return record;
}

Comparison compare(const Record& before, const Record& after) {
  Comparison result;
  std::map<std::string, int> counts;
  int differing = 0;
  int missing = 0;
  for (const auto& [name, fields] : before) {
    const auto found = after.find(name);
    if (found == after.end()) {
      result.text += concat(name, "\n  is in the record alone\n");
      ++missing;
    } else if (found->second != fields) {
      result.text += concat(name, "\n", differences(fields, found->second, counts));
      ++differing;
    }
  }
  const auto added = std::count_if(
      after.begin(), after.end(), [&](const auto& line) { return !before.contains(line.first); });
  for (const auto& [name, fields] : after) {
    result.text += before.contains(name) ? "" : concat(name, "\n  is not in the record\n");
  }
  result.equal = differing == 0 && missing == 0 && added == 0;
  result.text += concat(after.size(), " cases: ", differing, " differ");
  for (const auto& [name, count] : counts) {
    result.text += concat(", ", name, " in ", count);
  }
  result.text += concat("; ", missing, " missing, ", added, " new\n");
  return result;
}

}  // namespace entrain::record
