// entrain eval: judges trained weights on unseen samples.
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/base/text.h"
#include "entrain/core/families/family.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"
#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/train/data_set.h"
#include "entrain/engine/train/evaluate.h"
#include "entrain/engine/train/memory_fit.h"

namespace entrain::cli {
namespace {

struct EvalFlags {
  std::string run;
  std::string index;
  std::string weights;
  std::string answers;
  std::vector<std::string> ignore_modality;
  engine::EvaluateOptions evaluate;
  std::string memory_check = "stop";
  bool force = false;
  bool json = false;
};

void print_report(const engine::EvaluateResult& result, bool blank) {
  std::map<std::string, std::pair<int, int>> kinds;  // correct, all
  for (const engine::Answer& answer : result.answers) {
    auto& [correct, all] = kinds[answer.kind];
    correct += answer.correct() ? 1 : 0;
    ++all;
  }
  std::cout << std::fixed << std::setprecision(4) << "loss " << result.loss << ", accuracy "
            << std::setprecision(1) << 100 * result.accuracy() << " % of " << result.answers.size()
            << " answers" << (blank ? ", every image and clip blanked" : "") << "\n";
  for (const auto& [kind, counts] : kinds) {
    std::cout << "  " << std::left << std::setw(24) << (kind.empty() ? "(no kind)" : kind)
              << std::right << std::setw(6) << 100.0 * counts.first / counts.second << " % of "
              << counts.second << "\n";
  }
}

// Says how many of the samples the run was trained on, where its index can still be read, and
// refuses samples by another tokenizer.
void compare_with_training(const engine::RunConfig& config, const engine::DataSet& data) {
  engine::DataSet train;
  try {
    train.index = read_index(config.data.train);
    load_tokens(train.index);
    train.work.resize(train.index.samples.size());
    if (config.data.validation_fraction > 0) {
      engine::split_validation(config.data.validation_fraction, config.seed, train);
    }
  } catch (const InvalidInput&) {
    return;
  }
  engine::check_same_tokenizer(train.index, data.index);
  print_warnings({engine::overlap_warning(train.index, data.index)});
}

// What is judged: a run's model and weights, or those of a Hugging Face folder, without a
// configuration.
struct Judged {
  ModelSpec model;
  std::filesystem::path weights;
  std::optional<engine::RunConfig> config;
};

// A checkpoint has the shards of its ranks, not one file of weights.
void refuse_checkpoint(const char* option, const std::filesystem::path& path) {
  const bool one = std::filesystem::exists(path / "manifest.json");
  if (!one && !std::filesystem::exists(path / engine::kLatestName)) {
    return;
  }
  const std::filesystem::path plain = (path / "").parent_path();
  throw InvalidInput(concat(option,
                            ": '",
                            path.string(),
                            one ? "' is a checkpoint" : "' holds a run's checkpoints",
                            "; write its weights with `entrain checkpoint export ",
                            plain.string(),
                            " -o w.safetensors` and judge them with `entrain eval ",
                            (one ? plain.parent_path() : plain).parent_path().string(),
                            " --weights w.safetensors`"));
}

Judged judged_at(const std::filesystem::path& folder) {
  const std::filesystem::path model = folder / "model.json";
  refuse_checkpoint("run", folder);
  if (!std::filesystem::exists(model) && std::filesystem::exists(folder / "config.json")) {
    return {load_model(folder), folder, std::nullopt};
  }
  return {model_from_json(read_json_file(model), model.string()),
          folder / "weights.safetensors",
          engine::read_run_config(folder / "config.json", {})};
}

int run(const EvalFlags& options) {
  const std::filesystem::path folder(options.run);
  const Judged judged = judged_at(folder);
  if (!options.weights.empty()) {
    refuse_checkpoint("--weights", options.weights);
  }
  const ModelSpec& model = judged.model;
  const engine::RunConfig config = judged.config.value_or(engine::RunConfig());
  const std::string index = options.index.empty() ? config.data.validation : options.index;
  if (index.empty()) {
    throw InvalidInput(judged.config.has_value()
                           ? "the run has no validation index; give one with --index"
                           : "--index: a Hugging Face folder is judged on an index; none is given");
  }
  const std::filesystem::path weights =
      options.weights.empty() ? judged.weights : std::filesystem::path(options.weights);
  std::vector<std::string> ignored = config.data.ignore_modality;
  ignored.insert(ignored.end(), options.ignore_modality.begin(), options.ignore_modality.end());
  const engine::DataSet data = engine::load_data_set(index, model, ignored, kIgnoreOption);
  print_notes(data.notes);
  if (judged.config.has_value()) {
    compare_with_training(config, data);
  } else {
    print_warnings({engine::bytes_warning(data.index, folder)});
  }
  std::vector<std::filesystem::path> inputs = {folder, index, weights};
  for (const SampleSizes& sample : data.index.samples) {
    if (sample.location.has_value()) {
      inputs.emplace_back(located(data.index, *sample.location).shard);
    }
  }
  Outputs outputs(inputs, options.force);
  const Output answers = outputs.open("--answers", options.answers, OutputKind::kAnswers);
  const std::string warning =
      engine::check_weights_memory(model, weights, options.evaluate.device, options.memory_check);
  if (!warning.empty()) {
    std::cerr << "entrain: warning: " << warning;
  }
  const engine::EvaluateResult result = engine::evaluate(model, weights, data, options.evaluate);
  answers.write([&](std::ostream& out) {
    for (const engine::Answer& answer : result.answers) {
      const Json line = {{"id", answer.id},
                         {"kind", answer.kind},
                         {"expected", answer.expected},
                         {"given", answer.given},
                         {"correct", answer.correct()}};
      out << json_text(line) << "\n";
    }
  });
  if (options.json) {
    print_json({{"loss", result.loss},
                {"accuracy", result.accuracy()},
                {"samples", result.answers.size()},
                {"blank_images", options.evaluate.blank}});
  } else {
    print_report(result, options.evaluate.blank);
  }
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<EvalFlags>();
  CLI::App* command =
      add_command(app,
                  "eval",
                  "Loss, greedy answers and accuracy of a trained run, or of a Hugging Face\n"
                  "folder as it is.",
                  "entrain eval runs/demo --blank-images --answers answers.jsonl\n  "
                  "entrain eval Qwen2.5-VL-3B-Instruct --index val.csv");
  command->add_option("run", options->run, "run folder of `entrain train`, or Hugging Face folder")
      ->required();
  command->add_option(
      "--index,-i", options->index, "index to evaluate on (default: the run's validation index)");
  command->add_option(
      "--weights,-w",
      options->weights,
      "weights, or a Hugging Face folder's (default: the run's weights.safetensors)");
  command->add_option("--samples", options->evaluate.samples, "from the head of the index; 0 = all")
      ->transform(whole(0, 1'000'000'000));
  command->add_option("--batch", options->evaluate.batch, "samples packed together")
      ->transform(whole(1, 65'536))
      ->capture_default_str();
  command->add_option("--answers", options->answers, "JSON lines file for every answer");
  add_force(*command, options->force);
  command->add_option("--device", options->evaluate.device, "cpu or cuda")->capture_default_str();
  add_ignore_modality(*command, options->ignore_modality);
  command
      ->add_option("--memory-check",
                   options->memory_check,
                   "if memory for the weights is missing: stop (exit code 4), or warn and continue")
      ->check(CLI::IsMember({"stop", "warn"}))
      ->capture_default_str();
  command->add_flag("--blank-images",
                    options->evaluate.blank,
                    "white pixels and silence: the answer without input");
  command->add_flag("--json", options->json, "print the result as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
