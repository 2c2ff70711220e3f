// Options shared by the commands that balance samples over data-parallel ranks.
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/study/audit.h"
#include "entrain/core/study/study.h"

#include "entrain/cli/study_options.h"

namespace entrain::cli {

struct BalanceOptions {
  StudyInputs study;
  AuditRequest request;
  std::string layout = "fsdp";
  int microbatch = 4;
  std::int64_t memory_mib = 0;
};

// INDEX, --hf-config, --costs, the options of add_sample_options(), --layout, --ranks,
// --microbatches,
// --microbatch, --padded, limits, --everywhere, --seed and --search-steps.
void add_balance_options(CLI::App& command, BalanceOptions& options);

// Sets the study's global batch and what of the request has another form in options.
// Throws  InvalidInput for more samples a step than are allowed.
void finish(BalanceOptions& options);

}  // namespace entrain::cli
