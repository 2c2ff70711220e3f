// entrain export: the balanced order of an epoch, as files that other trainers read.
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/study/epoch_order.h"

#include "entrain/cli/balance_options.h"
#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"

namespace entrain::cli {
namespace {

constexpr int kMostEpochs = 1'000'000;

struct ExportFlags {
  BalanceOptions balance;
  int epoch = 0;
  std::string lines;
  std::string npy;
  std::string packs;  // folder
  std::string path;
  bool force = false;
  bool json = false;
};

struct PackFiles {
  Output boundaries, samples, paths, order;
};

PackFiles open_packs(const std::string& folder, Outputs& outputs) {
  if (folder.empty()) {
    return {};
  }
  const std::filesystem::path path(folder);
  std::filesystem::create_directories(path);
  const auto open = [&](const char* name, OutputKind kind) {
    return outputs.open("--xtuner", path / name, kind);
  };
  return {open("boundaries.npy", OutputKind::kNumpy),
          open("samples.npy", OutputKind::kNumpy),
          open("paths.json", OutputKind::kPaths),
          open("sampler_order.npy", OutputKind::kNumpy)};
}

void write_packs(const PackFiles& files,
                 const EpochOrder& order,
                 const Study& study,
                 const std::string& path) {
  if (!files.boundaries.named()) {
    return;
  }
  std::vector<std::int64_t> tokens;
  for (const BalanceRequest::Sample& sample : balance_samples(study)) {
    tokens.push_back(sample.tokens);
  }
  const PresetPacks packs = preset_packs(order, tokens, path);
  files.boundaries.write(packs.boundaries);
  files.samples.write(packs.samples);
  files.paths.write(packs.paths);
  files.order.write(packs.sampler_order);
}

int run(ExportFlags options) {
  finish(options.balance);
  if (options.lines.empty() && options.npy.empty() && options.packs.empty()) {
    throw InvalidInput("nothing to write: give --order, --npy or --xtuner");
  }
  Outputs outputs(input_files(options.balance.study), options.force);
  const Output lines = outputs.open("--order", options.lines, OutputKind::kEpochOrder);
  const Output numpy = outputs.open("--npy", options.npy, OutputKind::kNumpy);
  const PackFiles packs = open_packs(options.packs, outputs);
  const Study study = open_study(options.balance.study, /*draws=*/false);
  const EpochOrder order = balanced_epoch(study, options.balance.request, options.epoch);
  lines.write(order_lines(order, study.ids));
  numpy.write(order_npy(order));
  write_packs(
      packs, order, study, options.path.empty() ? options.balance.study.index : options.path);
  const std::int64_t used = std::ssize(order.steps) * options.balance.study.global_batch;
  if (options.json) {
    print_json({{"epoch", options.epoch},
                {"steps", order.steps.size()},
                {"ranks", order.ranks},
                {"microbatches", order.microbatches},
                {"samples", used},
                {"left_out", std::ssize(study.ids) - used}});
  } else {
    print_text(concat("epoch ",
                      options.epoch,
                      ": ",
                      counted(std::ssize(order.steps), "step"),
                      " of ",
                      counted(options.balance.study.global_batch, "sample"),
                      " for ",
                      counted(order.ranks, "rank"),
                      "; left out, since they fill no step: ",
                      counted(std::ssize(study.ids) - used, "sample"),
                      "\n"));
  }
  return 0;
}

}  // namespace

void add_export_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExportFlags>();
  CLI::App* command = add_command(
      app,
      "export",
      "Writes the balanced order of an epoch as files that other trainers read (docs/sampler.md).",
      "entrain export train.csv --model model.toml --layout fsdp --ranks 64 --order order.jsonl");
  add_balance_options(*command, options->balance);
  command->add_option("--epoch", options->epoch, "whose order")->check(whole(0, kMostEpochs));
  command->add_option(
      "--order", options->lines, "JSON lines to write: step, microbatch, rank, ids of samples");
  command->add_option("--npy",
                      options->npy,
                      "numpy file to write: rows of step, microbatch, rank, row of the index");
  command->add_option("--xtuner",
                      options->packs,
                      "folder to write XTuner's preset packs into: boundaries.npy, samples.npy, "
                      "paths.json, sampler_order.npy");
  command->add_option(
      "--path", options->path, "of the data set, for paths.json; default: the index");
  add_force(*command, options->force);
  command->add_flag("--json", options->json, "print one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
