// Shared by all commands of `entrain`: registration, exit codes and JSON output.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "entrain/core/base/json.h"

namespace entrain::cli {

// Exit codes: 0 ok, 1 bug, 2 the caller can fix it, 3 the system failed, 4 nothing fits, 75 (the
// EX_TEMPFAIL of sysexits.h) a run stopped by a signal, which the same command continues.
inline constexpr int kExitBug = 1;
inline constexpr int kExitInvalid = 2;
inline constexpr int kExitSystem = 3;
inline constexpr int kExitNo = 4;
inline constexpr int kExitStopped = 75;

// Set by the chosen subcommand; returns the exit code.
using Action = std::function<int()>;

// Runs a command; the message of an exception goes to standard error.
// Returns  its result, or the exit code for its exception.
int exit_code_of(const std::function<int()>& command);

void add_index_command(CLI::App& app, Action& action);
void add_cost_command(CLI::App& app, Action& action);
void add_plan_command(CLI::App& app, Action& action);
void add_b_min_command(CLI::App& app, Action& action);
void add_assign_command(CLI::App& app, Action& action);
void add_simulate_command(CLI::App& app, Action& action);
void add_audit_command(CLI::App& app, Action& action);
void add_report_command(CLI::App& app, Action& action);
void add_study_command(CLI::App& app, Action& action);
void add_export_command(CLI::App& app, Action& action);
void add_explain_command(CLI::App& app, Action& action);
void add_doctor_command(CLI::App& app, Action& action);
void add_top_command(CLI::App& app, Action& action);
void add_env_command(CLI::App& app, Action& action);
// Only in the program with torch; `train` is in train_command.h.
void add_profile_command(CLI::App& app, Action& action);
void add_eval_command(CLI::App& app, Action& action);
void add_feed_command(CLI::App& app, Action& action);
void add_checkpoint_command(CLI::App& app, Action& action);

// A subcommand whose help ends with `example`.
CLI::App* add_command(CLI::App& app,
                      const std::string& name,
                      const std::string& description,
                      const std::string& example);

// Where commands print results: standard output, or this thread's OutputTo.
std::ostream& out();

// Redirects out() of this thread while it lives; one at a time.
class OutputTo {
 public:
  explicit OutputTo(std::ostream& stream);
  ~OutputTo();
  OutputTo(const OutputTo&) = delete;
  OutputTo& operator=(const OutputTo&) = delete;
};

// Text on out(), no line wider than a hundred columns.
void print_text(const std::string& text);

// One line of JSON on out().
void print_json(const Json& document);

// Refuses empty option values, such as those of unset variables.
// Throws  InvalidInput naming it.
void refuse_empty_values(const CLI::App& app);

// A line for each word of the command line that the chosen command does not know, values of unknown
// options aside: "'--modle' is unknown, did you mean '--model'?"; if a command is missing, which
// there are.
std::string unknown_words(const CLI::App& app);

// `message`, followed by the given options whose values it mentions: "… (--model)". Unchanged
// if it names an option itself, or mentions only arguments.
std::string with_options(const CLI::App& app, const std::string& message);

// A line each on standard error.
void print_notes(const std::vector<std::string>& notes);
// Likewise, as warnings; empty ones are left out.
void print_warnings(const std::vector<std::string>& warnings);

// "a,b,c" → {"a", "b", "c"}, each checked against `allowed` with a suggestion.
// Throws  InvalidInput naming `option`.
std::vector<std::string> parse_names(const std::string& text,
                                     const std::vector<std::string>& allowed,
                                     const std::string& option);
// Likewise where only one is taken.
// Throws  InvalidInput naming `option`, for several too.
std::string parse_name(const std::string& text,
                       const std::vector<std::string>& allowed,
                       const std::string& option);

}  // namespace entrain::cli
