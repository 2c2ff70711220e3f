#include "entrain/cli/command.h"

#include <algorithm>
#include <iostream>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::cli {

CLI::App* add_command(CLI::App& app,
                      const std::string& name,
                      const std::string& description,
                      const std::string& example) {
  CLI::App* command = app.add_subcommand(name, description);
  command->footer("Example:\n  " + example);
  return command;
}

void print_json(const Json& document) {
  std::cout << document.dump() << std::endl;
}

std::vector<std::string> parse_names(const std::string& text,
                                     const std::vector<std::string>& allowed,
                                     const std::string& option) {
  std::vector<std::string> names;
  for (const std::string_view part : split(text, ',')) {
    const std::string name(part);
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
      throw InvalidInput(concat(option, ": unknown name '", name, "'", suggestion(name, allowed)));
    }
    names.push_back(name);
  }
  if (names.empty()) {
    throw InvalidInput(concat(option, ": give at least one of ", join(allowed)));
  }
  return names;
}

}  // namespace entrain::cli
