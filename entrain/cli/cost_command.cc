// entrain cost: what every sample costs in every module, as CSV.
#include <algorithm>
#include <chrono>
#include <span>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/sample_costs.h"
#include "entrain/core/report/table.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

constexpr std::size_t kSamplesAtOnce = 1024;

struct CostFlags {
  StudyInputs study;
  std::string output;
  std::string segments;
  CostColumns columns;
  bool force = false;
  bool json = false;
};

// Over all samples.
struct ModuleSummary {
  std::string module;
  std::int64_t samples = 0;  // with work in the module
  std::int64_t units = 0;
  std::int64_t tokens = 0;
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  std::int64_t heaviest_ns = -1;  // forward and backward
  std::string heaviest;           // sample id
};

void add(const CostTable& table, std::vector<ModuleSummary>& summaries) {
  for (std::size_t module = 0; module < table.modules.size(); ++module) {
    ModuleSummary& summary = summaries[module];
    for (std::size_t sample = 0; sample < table.ids.size(); ++sample) {
      std::int64_t time = 0;
      for (const TableUnit& unit : table.units[module][sample]) {
        ++summary.units;
        summary.tokens += unit.tokens;
        summary.forward_ns += unit.forward_ns;
        summary.backward_ns += unit.backward_ns;
        time += unit.forward_ns + unit.backward_ns;
      }
      summary.samples += table.units[module][sample].empty() ? 0 : 1;
      if (time > summary.heaviest_ns && !table.units[module][sample].empty()) {
        summary.heaviest_ns = time;
        summary.heaviest = table.ids[sample];
      }
    }
  }
}

// Writes both files, piece by piece; a mistake in the samples leaves neither.
std::vector<ModuleSummary> write_costs(const Study& study,
                                       const CostFlags& options,
                                       const Output& costs_file,
                                       const Output& segments_file) {
  const std::vector<std::string> modules = study.module_names();
  std::vector<ModuleSummary> summaries(modules.size());
  for (std::size_t module = 0; module < modules.size(); ++module) {
    summaries[module].module = modules[module];
  }
  const auto produce = [&](std::ostream& costs, std::ostream* segments) {
    Progress progress("cost", std::ssize(study.samples));
    std::string text;
    append_cost_header(text, modules, options.columns);
    costs << text;
    if (segments != nullptr) {
      text.clear();
      append_segment_header(text);
      *segments << text;
    }
    for (std::size_t begin = 0; begin < study.samples.size(); begin += kSamplesAtOnce) {
      const std::size_t count = std::min(kSamplesAtOnce, study.samples.size() - begin);
      const CostTable table =
          sample_costs(study.model,
                       study.profile,
                       std::span(study.ids).subspan(begin, count),
                       batch_work(study.model, std::span(study.samples).subspan(begin, count)));
      add(table, summaries);
      text.clear();
      append_cost_rows(text, table, options.columns);
      costs << text;
      if (segments != nullptr) {
        text.clear();
        append_segment_rows(text, table);
        *segments << text;
      }
      progress.advance(static_cast<std::int64_t>(count));
    }
  };
  costs_file.write([&](std::ostream& costs) {
    if (segments_file.named()) {
      segments_file.write([&](std::ostream& segments) { produce(costs, &segments); });
    } else {
      produce(costs, nullptr);
    }
  });
  return summaries;
}

double seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

double total_of(const std::vector<ModuleSummary>& summaries) {
  double total = 0;
  for (const ModuleSummary& summary : summaries) {
    total += seconds(summary.forward_ns) + seconds(summary.backward_ns);
  }
  return total;
}

double share_of(const ModuleSummary& summary, double total) {
  return total > 0 ? (seconds(summary.forward_ns) + seconds(summary.backward_ns)) / total : 0;
}

Json summary_json(const std::vector<ModuleSummary>& summaries,
                  const Study& study,
                  const CostFlags& options) {
  const double total = total_of(summaries);
  Json modules = Json::object();
  for (const ModuleSummary& summary : summaries) {
    modules[summary.module] = {{"samples", summary.samples},
                               {"units", summary.units},
                               {"tokens", summary.tokens},
                               {"forward_s", seconds(summary.forward_ns)},
                               {"backward_s", seconds(summary.backward_ns)},
                               {"share", share_of(summary, total)},
                               {"heaviest", summary.heaviest}};
  }
  Json document = {{"samples", study.samples.size()},
                   {"modules", modules},
                   {"note", study.note()},
                   {"output", options.output}};
  if (!options.segments.empty()) {
    document["segments"] = options.segments;
  }
  return document;
}

std::string summary_table(const std::vector<ModuleSummary>& summaries) {
  const double total = total_of(summaries);
  Table table(
      {"module", "samples", "units", "tokens", "forward", "backward", "share", "heaviest sample"});
  for (const ModuleSummary& summary : summaries) {
    table.add_row({summary.module,
                   format_count(summary.samples),
                   format_count(summary.units),
                   format_count(summary.tokens),
                   format_duration(std::chrono::nanoseconds(summary.forward_ns)),
                   format_duration(std::chrono::nanoseconds(summary.backward_ns)),
                   format_fixed(100 * share_of(summary, total), 1) + " %",
                   summary.heaviest.empty() ? "-" : summary.heaviest});
  }
  return table.to_text();
}

int run(const CostFlags& options) {
  Outputs outputs(input_files(options.study), options.force);
  const Output costs = outputs.open("--output", options.output, OutputKind::kCosts);
  const Output segments = outputs.open("--segments", options.segments, OutputKind::kSegmentCosts);
  const Study study = open_study(options.study, /*draws=*/false);
  const std::vector<ModuleSummary> summaries = write_costs(study, options, costs, segments);
  if (options.json) {
    print_json(summary_json(summaries, study, options));
    return 0;
  }
  print_text(concat(study.note(),
                    "\n",
                    summary_table(summaries),
                    counted(std::ssize(study.samples), "sample"),
                    "; units: images, clips or sequences; times without launch constants\n"
                    "written to ",
                    options.output,
                    options.segments.empty() ? "" : " and " + options.segments,
                    "\n"));
  return 0;
}

}  // namespace

void add_cost_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<CostFlags>();
  options->study.global_batch = 1;  // nothing is drawn
  CLI::App* command = add_command(app,
                                  "cost",
                                  "Writes what every sample costs in every module.",
                                  "entrain cost --index index.csv --model model.toml --profile "
                                  "profile.json -o costs.csv --segments segments.csv");
  add_sample_options(*command, options->study);
  command->get_option("--index")->required();
  command->get_option("--model")->required();
  command->add_option("--output,-o", options->output, "costs CSV to write, one row a sample")
      ->required();
  command->add_option("--segments",
                      options->segments,
                      "second CSV to write, one row per image, tile, audio window or video patch");
  add_force(*command, options->force);
  command->add_flag("--activation-bytes",
                    options->columns.activation_bytes,
                    "add <module>_activation_bytes: what one device keeps until the backward");
  command->add_flag("--json", options->json, "print the summary as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
