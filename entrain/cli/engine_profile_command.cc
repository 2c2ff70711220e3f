// entrain profile: layer costs measured on this machine.
#include <iostream>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/report/table.h"

#include "entrain/cli/command.h"
#include "entrain/engine/profiler/quick_profile.h"

namespace entrain::cli {
namespace {

struct Options {
  std::string model;
  std::string output;
  std::string device = "cpu";
  std::int64_t max_tokens = 1024;
  double seconds = 15;
  bool quick = false;
  bool json = false;
};

void print_table(const Profile& profile) {
  Table table({"module",
               "layer",
               "forward ns/token",
               "ns/pair",
               "us/launch",
               "backward ns/token",
               "worst fit"});
  for (const LayerProfile& layer : profile.layers) {
    const double backward = layer.backward_input.per_token_ns + layer.backward_weight.per_token_ns;
    const double error = std::max(
        {layer.forward.fit_error, layer.backward_input.fit_error, layer.backward_weight.fit_error});
    table.add_row({layer.module,
                   std::string(name_of(layer.kind)),
                   format_fixed(layer.forward.per_token_ns, 0),
                   format_fixed(layer.forward.per_pair_ns, 2),
                   format_fixed(layer.forward.per_launch_ns * 1e-3, 1),
                   format_fixed(backward, 0),
                   format_fixed(100 * error, 0) + " %"});
  }
  std::cout << table.to_text();
}

int run(const Options& options) {
  if (!options.quick) {
    throw InvalidInput("entrain profile: this version measures with --quick only; add it");
  }
  if (options.device != "cpu") {
    throw InvalidInput("--device '" + options.device + "': this version measures on cpu");
  }
  const ModelSpec model = read_model(options.model);
  engine::QuickProfileOptions quick;
  quick.max_tokens = options.max_tokens;
  quick.seconds = options.seconds;
  quick.device = options.device;
  quick.command = "entrain profile --quick --model " + options.model;
  const Profile profile = engine::quick_profile(model, quick);
  if (!options.output.empty()) {
    write_file(options.output, to_json(profile).dump(1) + "\n");
  }
  if (options.json) {
    print_json(to_json(profile));
    return 0;
  }
  print_table(profile);
  if (!options.output.empty()) {
    std::cout << "written to " << options.output << "\n";
  }
  return 0;
}

}  // namespace

void add_profile_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app,
                  "profile",
                  "Measures what every layer kind of a model costs on this machine.",
                  "entrain profile --quick --model model.toml -o profile.json");
  command->add_flag("--quick", options->quick, "three sizes per layer kind, a few seconds");
  command->add_option("--model,-m", options->model, "model file (TOML)")->required();
  command->add_option("--output,-o", options->output, "profile JSON to write");
  command->add_option("--device", options->device, "device to measure on")->capture_default_str();
  command->add_option("--max-tokens", options->max_tokens, "largest microbatch measured")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "time to spend")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "print the profile as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
