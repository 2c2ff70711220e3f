// A step's figures in Prometheus' text format, for node_exporter's textfile collector.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "entrain/core/report/run_rows.h"

namespace entrain {

// What the figures of a run are beside its last step.
struct RunTotals {
  std::string run;         // value of the label `run`
  std::int64_t steps = 0;  // of the whole run
  std::int64_t skipped = 0;
  std::optional<ValidationRow> validation;
  double finished_s = 0;  // when the step ended, in seconds since 1970
};

// Every figure with HELP and TYPE, named entrain_…; what the row lacks is left out. Lanes have the
// labels `replica` and `lane`, too.
std::string exposition(const RunRow& row, const RunTotals& totals);

}  // namespace entrain
