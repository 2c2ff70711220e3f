#include "entrain/cli/command.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <iostream>
#include <new>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"

namespace entrain::cli {
namespace {

thread_local std::ostream* redirected = nullptr;

bool is_word(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_' ||
         character == '-';
}

// Whether `message` holds `text` as whole words.
bool holds(const std::string& message, const std::string& text) {
  for (std::size_t at = message.find(text); at != std::string::npos && !text.empty();
       at = message.find(text, at + 1)) {
    const std::size_t end = at + text.size();
    if ((at == 0 || !is_word(message[at - 1]) || !is_word(text.front())) &&
        (end == message.size() || !is_word(message[end]) || !is_word(text.back()))) {
      return true;
    }
  }
  return false;
}

const CLI::App& chosen_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  return *command;
}

// "--model", "argument data"
std::string name_of(const CLI::Option& option) {
  return (option.get_lnames().empty() ? "argument " : "") + option.get_name();
}

bool is_number(const std::string& text) {
  return text.find_first_not_of("+-.0123456789e") == std::string::npos;
}

// Whether a value can be told from the words of a message: a word such as `all` can not.
bool is_distinct(const std::string& value) {
  return !is_number(value) && !std::ranges::all_of(value, [](unsigned char character) {
    return std::isalpha(character) != 0;
  });
}

}  // namespace

int exit_code_of(const std::function<int()>& command) {
  try {
    return command();
  } catch (const InvalidInput& error) {
    std::cerr << "entrain: " << error.what() << std::endl;
    return kExitInvalid;
  } catch (const NothingFits& no) {
    std::cerr << "entrain: nothing fits: " << no.what() << std::endl;
    return kExitNo;
  } catch (const SystemFailure& error) {
    std::cerr << "entrain: " << error.what() << std::endl;
    return kExitSystem;
  } catch (const std::bad_alloc&) {
    std::cerr << "entrain: out of memory" << std::endl;
    return kExitSystem;
  } catch (const std::exception& error) {
    std::cerr << "entrain: " << error.what() << "\nThis is a bug in Entrain; please report it."
              << std::endl;
    return kExitBug;
  }
}

CLI::App* add_command(CLI::App& app,
                      const std::string& name,
                      const std::string& description,
                      const std::string& example) {
  CLI::App* command = app.add_subcommand(name, description);
  command->footer("Example:\n  " + example);
  return command;
}

std::ostream& out() {
  return redirected != nullptr ? *redirected : std::cout;
}

OutputTo::OutputTo(std::ostream& stream) {
  redirected = &stream;
}

OutputTo::~OutputTo() {
  redirected = nullptr;
}

void print_text(const std::string& text) {
  out() << wrap(text) << std::flush;
}

void print_json(const Json& document) {
  out() << json_text(document) << std::endl;
}

void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : chosen_command(app).get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) {
        throw InvalidInput(concat(name_of(*option), ": an empty value"));
      }
    }
  }
}

std::string unknown_words(const CLI::App& app) {
  const CLI::App& command = chosen_command(app);
  std::vector<std::string> allowed;
  for (const CLI::App* known : command.get_subcommands([](const CLI::App*) { return true; })) {
    allowed.push_back(known->get_name());
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      allowed.push_back("--" + name);
    }
  }
  std::string text;
  bool value = false;  // of an unknown option before it
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    const bool option = word.starts_with("-");
    if (option || !value) {
      text +=
          concat("'", word, "' is unknown", suggestion(word.substr(0, word.find('=')), allowed));
      text += "\n";
    }
    value = option;
    if (&command == &app) {
      break;  // of an unknown command only its name
    }
  }
  if (text.empty() && command.get_require_subcommand_min() > 0) {
    allowed.resize(command.get_subcommands([](const CLI::App*) { return true; }).size());
    return concat("a command is missing; one of ", join(allowed), "\n");
  }
  return text;
}

std::string with_options(const CLI::App& app, const std::string& message) {
  std::vector<std::string> named;
  for (const CLI::Option* option : chosen_command(app).get_options()) {
    if (option->get_lnames().empty()) {
      continue;  // an argument's value is all that was typed of it
    }
    if (holds(message, option->get_name())) {
      return message;
    }
    const std::vector<std::string> values = option->results();
    // Of `--set key=value` the message may name the key.
    if (std::ranges::any_of(values, [&](const std::string& value) {
          return message.find("'" + value + "'") != std::string::npos ||
                 message.starts_with(value + ":") ||
                 (is_distinct(value) &&
                  (holds(message, value) || holds(message, value.substr(0, value.find('=')))));
        })) {
      named.push_back(name_of(*option));
    }
  }
  return named.empty() ? message : concat(message, " (", join(named), ")");
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    std::cerr << "entrain: " << note << "\n";
  }
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    if (!warning.empty()) {
      print_notes({"warning: " + warning});
    }
  }
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

std::string parse_name(const std::string& text,
                       const std::vector<std::string>& allowed,
                       const std::string& option) {
  const std::vector<std::string> names = parse_names(text, allowed, option);
  if (names.size() > 1) {
    throw InvalidInput(concat(option, ": '", text, "' given; this command takes one name"));
  }
  return names.front();
}

}  // namespace entrain::cli
