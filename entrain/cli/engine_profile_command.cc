// entrain profile: layer costs measured on this machine, and how well they predict whole stages.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/families/family.h"
#include "entrain/core/report/table.h"
#include "entrain/core/spec/cost_origin.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/training.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"
#include "entrain/engine/comm/torch_errors.h"
#include "entrain/engine/profiler/profile_run.h"
#include "entrain/engine/profiler/stage_check.h"

namespace entrain::cli {
namespace {

constexpr std::int64_t kQuickTokens = 1024;
constexpr std::int64_t kFullTokens = 16384;

struct ProfileFlags {
  std::string model;
  std::string output;
  std::string device = "cpu";
  std::string dtype = "float32";
  std::vector<int> tensor_parallel = {1};
  int lanes = 1;
  std::int64_t max_tokens = 0;  // 0: the preset's
  double seconds = 0;           // 0: the preset's
  int repeats = 0;              // 0: the preset's
  std::int64_t memory_mib = 4096;
  std::string points;
  bool quick = false;
  bool force = false;
  bool json = false;
  // --check
  std::string check;
  std::string index;
  int slots = 12;
  int samples_per_slot = 8;
  std::uint64_t seed = 0;
  std::vector<std::string> ignore_modality;
};

std::string percent(double value) {
  return format_fixed(100 * value, 1) + " %";
}

double worst_fit(const LayerProfile& layer) {
  return std::max(
      {layer.forward.fit_error, layer.backward_input.fit_error, layer.backward_weight.fit_error});
}

double median_fit(const LayerProfile& layer) {
  return std::max({layer.forward.fit_median,
                   layer.backward_input.fit_median,
                   layer.backward_weight.fit_median});
}

void print_table(const Profile& profile) {
  Table table({"module",
               "layer",
               "TP",
               "forward ns/token",
               "ns/pair",
               "us/launch",
               "backward ns/token",
               "up to tokens",
               "spread",
               "fit",
               "worst fit"},
              2);
  for (const LayerProfile& layer : profile.layers) {
    const double backward = layer.backward_input.per_token_ns + layer.backward_weight.per_token_ns;
    table.add_row({layer.module,
                   std::string(name_of(layer.kind)),
                   std::to_string(layer.tensor_parallel),
                   format_fixed(layer.forward.per_token_ns, 0),
                   format_fixed(layer.forward.per_pair_ns, 2),
                   format_fixed(layer.forward.per_launch_ns * 1e-3, 1),
                   format_fixed(backward, 0),
                   format_fixed(layer.range.most_tokens, 0),
                   percent(layer.spread),
                   percent(median_fit(layer)),
                   percent(worst_fit(layer))});
  }
  print_text(table.to_text() +
             "fit: error of the fitted curve at the measured points, median and largest over "
             "points, of the worst of forward and both gradients\n"
             "TP: tensor parallelism; pair: of attention; launch: constant per operation\n"
             "up to tokens: the largest microbatch measured; spread: between repeats\n");
}

engine::ProfileOptions profile_options(const ProfileFlags& options) {
  const std::int64_t tokens =
      options.max_tokens > 0 ? options.max_tokens : (options.quick ? kQuickTokens : kFullTokens);
  engine::ProfileOptions result =
      options.quick ? engine::quick_options(tokens) : engine::full_options(tokens);
  result.tensor_parallel = options.tensor_parallel;
  result.lanes = options.lanes;
  result.device = options.device;
  result.dtype = options.dtype;
  result.memory_bytes = options.memory_mib << 20U;
  result.seconds = options.seconds > 0 ? options.seconds : result.seconds;
  result.repeats = options.repeats > 0 ? options.repeats : result.repeats;
  result.command = concat("entrain profile ",
                          options.quick ? "--quick " : "",
                          "--model ",
                          options.model,
                          options.device == "cpu" ? "" : " --device " + options.device,
                          options.dtype == "float32" ? "" : " --dtype " + options.dtype,
                          options.lanes == 1 ? "" : concat(" --lanes ", options.lanes),
                          " --max-tokens ",
                          tokens);
  return result;
}

int measure(const ProfileFlags& options) {
  const ModelSpec model = load_model(options.model);
  check_trainable(model, options.model);
  engine::ProfileOptions wanted = profile_options(options);
  Outputs outputs({options.model}, options.force);
  const Output output = outputs.open("--output", options.output, OutputKind::kProfile);
  const Output points = outputs.open("--points", options.points, OutputKind::kPoints);
  if (!options.quick && output.named() && !is_stream(output.path())) {
    wanted.partial =
        outputs.open("--output", options.output + ".partial.json", OutputKind::kPoints).path();
  }
  if (!wanted.partial.empty() && std::filesystem::exists(wanted.partial)) {
    std::cerr << "entrain: continuing with the points in " << wanted.partial.string() << "\n";
  }
  const engine::ProfileRun run = engine::measure_profile(model, wanted);
  for (const engine::MeasuredLayer& layer : run.points.layers) {
    for (const std::string& skipped : layer.skipped) {
      std::cerr << "entrain: left out: " << name_of(layer.kind) << " of '" << layer.module
                << "' at tensor_parallel " << layer.tensor_parallel << ": " << skipped << "\n";
    }
  }
  const std::string machine = machine_name(options.device);
  const Json document = with_machine(to_json(run.profile), machine);
  points.write(json_text(engine::to_json(run.points)) + "\n");
  output.write(json_text(document, 1) + "\n");
  if (!wanted.partial.empty()) {
    std::filesystem::remove(wanted.partial);
  }
  if (options.json) {
    print_json(document);
    return 0;
  }
  std::cout << concat("device ", options.device, " (", machine, "), ", options.dtype, "\n");
  print_table(run.profile);
  if (output.named()) {
    std::cout << "written to " << options.output << "\n";
  }
  return 0;
}

// Slots of samples in the order in which a run with this seed draws them.
std::vector<std::vector<SampleWork>> drawn_slots(const ProfileFlags& options,
                                                 const ModelSpec& model) {
  const std::vector<SampleSizes> samples = read_index(options.index).samples;
  print_notes(check_media(model,
                          samples,
                          options.ignore_modality,
                          concat("index '", options.index, "'"),
                          kIgnoreOption));
  const int wanted = options.slots * options.samples_per_slot;
  if (std::ssize(samples) < wanted) {
    throw InvalidInput(concat("--check: index '",
                              options.index,
                              "' has ",
                              counted(std::ssize(samples), "sample"),
                              "; ",
                              counted(options.slots, "slot"),
                              " of ",
                              options.samples_per_slot,
                              " need ",
                              wanted));
  }
  GlobalBatchSampler sampler(static_cast<int>(std::ssize(samples)), wanted, options.seed);
  const std::vector<int> batch = sampler.batch(0);
  std::vector<std::vector<SampleWork>> slots;
  for (int i = 0; i < wanted; ++i) {
    if (i % options.samples_per_slot == 0) {
      slots.emplace_back();
    }
    const auto sample = static_cast<std::size_t>(batch[static_cast<std::size_t>(i)]);
    slots.back().push_back(sample_work(model, samples[sample]));
  }
  return slots;
}

Json check_json(const std::vector<engine::ErrorSummary>& rows) {
  Json result = Json::array();
  for (const engine::ErrorSummary& row : rows) {
    result.push_back({{"what", row.what},
                      {"count", row.count},
                      {"median_error", row.median},
                      {"worst_error", row.worst},
                      {"bias", row.bias}});
  }
  return result;
}

// Predicted against measured times of whole stages, every module as one stage and as two.
int check(const ProfileFlags& options) {
  if (options.index.empty()) {
    throw InvalidInput("--check needs --index: the samples for the slots");
  }
  const ModelSpec model = load_model(options.model);
  check_trainable(model, options.model);
  const Profile profile = read_profile(options.check);
  validate(profile, model, options.check);
  const std::vector<std::vector<SampleWork>> slots = drawn_slots(options, model);
  const int repeats = options.repeats > 0 ? options.repeats : 9;
  Json report = Json::object();
  for (const int stages : {1, 2}) {
    const Plan plan = even_plan(
        model, std::vector<int>(static_cast<std::size_t>(model.num_modules()), stages), 1, 1);
    const std::vector<engine::StageTime> times =
        engine::check_stages(model, plan, profile, slots, repeats);
    const std::vector<engine::ErrorSummary> rows = engine::summarise(model, times);
    const std::string title = concat(stages, stages == 1 ? " stage" : " stages", " a module");
    report[title] = check_json(rows);
    if (options.json) {
      continue;
    }
    Table table({title, "slots", "median error", "worst", "bias"});
    for (const engine::ErrorSummary& row : rows) {
      table.add_row({row.what,
                     std::to_string(row.count),
                     percent(row.median),
                     percent(row.worst),
                     percent(row.bias)});
    }
    std::cout << table.to_text() << "\n";
  }
  if (options.json) {
    print_json(report);
  } else {
    std::cout << "error: (predicted - measured) / measured; measured in processor time, mean of "
              << repeats << " repeats\n";
  }
  return 0;
}

void add_check_options(CLI::App& command, ProfileFlags& options) {
  CLI::Option* option = command.add_option(
      "--check",
      options.check,
      "without a new measurement: compare this profile with whole stages on slots of --index");
  command.add_option("--index,-i", options.index, "samples for --check (index or manifest)")
      ->needs(option);
  add_ignore_modality(command, options.ignore_modality);
  command.add_option("--slots", options.slots, "slots to check")
      ->transform(whole(1, 10'000))
      ->capture_default_str();
  command.add_option("--samples-per-slot", options.samples_per_slot, "samples packed in each")
      ->transform(whole(1, 10'000))
      ->capture_default_str();
  command.add_option("--seed", options.seed, "of the samples drawn")
      ->transform(seed_number())
      ->capture_default_str();
}

}  // namespace

void add_profile_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ProfileFlags>();
  CLI::App* command =
      add_command(app,
                  "profile",
                  "Measures the cost of every layer kind of a model on this machine.",
                  "entrain profile --model model.toml -o profile.json\n"
                  "In seconds, coarser:  entrain profile --quick --model model.toml -o p.json\n"
                  "How well it predicts: entrain profile --check p.json --model model.toml "
                  "--index train.csv");
  command->add_flag("--quick", options->quick, "three sizes per layer kind, a few seconds");
  command->add_option("--model,-m", options->model, "model file (TOML), or a Hugging Face folder")
      ->required();
  command->add_option("--output,-o",
                      options->output,
                      "profile JSON to write; without --quick, points so far are kept beside it in "
                      ".partial.json and a killed run continues there");
  command->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  command->add_option("--dtype", options->dtype, "float32 or bfloat16")->capture_default_str();
  command
      ->add_option("--tensor-parallel",
                   options->tensor_parallel,
                   "degrees to measure, comma-separated; those that divide a module")
      ->delimiter(',')
      ->transform(whole(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--max-tokens",
                   options->max_tokens,
                   "largest microbatch measured (default: 16384, with --quick 1024)")
      ->transform(whole(16, 1 << 20));
  command
      ->add_option("--seconds",
                   options->seconds,
                   "time to spend on layers (default: 180, with --quick 20); what does not fit is "
                   "skipped and reported")
      ->transform(number({0, 86'400, true}));
  command
      ->add_option("--lanes",
                   options->lanes,
                   "lanes that will run at once on this machine: the others run as background load "
                   "and compete with the measured one for memory bandwidth")
      ->transform(whole(1, 1024))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "most measurements per point (default: 15)")
      ->transform(whole(3, 1000));
  command
      ->add_option("--memory-mib", options->memory_mib, "activations of the largest point; 0 = any")
      ->transform(whole(0, 1'000'000'000))
      ->capture_default_str();
  command->add_option("--points", options->points, "JSON file for all single measurements");
  add_force(*command, options->force);
  add_check_options(*command, *options);
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, &action] {
    action = [options] {
      return engine::without_torch_errors(
          [&] { return options->check.empty() ? measure(*options) : check(*options); });
    };
  });
}

}  // namespace entrain::cli
