// entrain audit: what imbalance costs a data-parallel run, from sizes alone.
#include <cmath>

#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"
#include "entrain/core/study/audit.h"
#include "entrain/core/study/audit_text.h"

#include "entrain/cli/balance_options.h"
#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

constexpr double kMostConstantMs = 1e6;

struct AuditFlags {
  BalanceOptions balance;
  double constant_ms = 0;
  bool no_pipeline = false;
  std::string output;
  bool force = false;
  bool json = false;
};

int run(AuditFlags options) {
  finish(options.balance);
  options.balance.request.microbatch_ns = std::llround(1e6 * options.constant_ms);
  options.balance.request.pipeline = !options.no_pipeline;
  Outputs outputs(input_files(options.balance.study), options.force);
  const Output page = outputs.open("--output", options.output, OutputKind::kPage);
  const Study study = open_study(options.balance.study);
  const AuditReport report = audit(study, options.balance.request);
  page.write(audit_page(report, made_by()));
  if (options.json) {
    print_json(audit_json(report));
  } else {
    print_text(audit_text(report) +
               (page.named() ? concat("\npage written to ", options.output, "\n") : ""));
  }
  return 0;
}

}  // namespace

void add_audit_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<AuditFlags>();
  CLI::App* command = add_command(
      app,
      "audit",
      "Says what imbalance costs a data-parallel run, and what would remove it, from sizes alone.",
      "entrain audit train.csv --hf-config config.json --layout fsdp --ranks 64 --microbatch 4 "
      "-o audit.html");
  add_balance_options(*command, options->balance);
  command
      ->add_option(
          "--steps", options->balance.request.steps, "to look at; default: an epoch's, at most 32")
      ->check(whole(1, kMostSamples));
  command
      ->add_option("--constant-ms",
                   options->constant_ms,
                   "ms that every microbatch takes besides its samples' work")
      ->check(number({0, kMostConstantMs}))
      ->capture_default_str();
  command->add_option("--costs-note",
                      options->balance.request.costs_note,
                      "what the costs of --costs are, for the first line of report and page");
  command->add_flag("--no-pipeline",
                    options->no_pipeline,
                    "leave out the search for Entrain's pipeline on as many devices");
  command->add_option("--output,-o", options->output, "page to write (HTML)");
  add_force(*command, options->force);
  command->add_flag("--json", options->json, "print one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
