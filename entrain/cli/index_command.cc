// entrain index: sizes of real samples.
#include <iostream>

#include "entrain/core/base/text.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/shard_list.h"
#include "entrain/core/families/family.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

struct IndexFlags {
  std::vector<std::string> data;
  std::string output;
  std::string model;
  std::int64_t max_tokens = 0;
  std::string too_long = "refuse";
  std::string empty_response = "refuse";
  std::string damaged = "stop";
  std::vector<std::string> ignore_modality;
  bool verify = false;
  bool force = false;
  bool json = false;
};

BadSampleRule rule_of(const std::string& name) {
  if (name == "leave-out") {
    return BadSampleRule::kLeaveOut;
  }
  return name == "truncate" ? BadSampleRule::kTruncate : BadSampleRule::kRefuse;
}

Json percentiles_json(const Percentiles& values) {
  return {{"count", values.count},
          {"total", values.total},
          {"p50", values.p50},
          {"p90", values.p90},
          {"p99", values.p99},
          {"max", values.max}};
}

Json summary_json(const IndexSummary& summary) {
  Json left_out = Json::array();
  for (const LeftOut& sample : summary.left_out) {
    left_out.push_back({{"id", sample.id}, {"reason", sample.reason}});
  }
  Json document = {{"rows", summary.rows},
                   {"left_out", summary.left_out.size()},
                   {"left_out_samples", left_out},
                   {"scattered", summary.scattered},
                   {"truncated", summary.truncated},
                   {"reasons", summary.reasons},
                   {"ignored_members", summary.ignored_members},
                   {"text_tokens", percentiles_json(summary.text_tokens)},
                   {"images", percentiles_json(summary.images)},
                   {"pixels", percentiles_json(summary.pixels)},
                   {"audio_milliseconds", percentiles_json(summary.audio_milliseconds)}};
  if (summary.llm_tokens.has_value()) {
    document["llm_tokens"] = percentiles_json(*summary.llm_tokens);
  }
  return document;
}

int run(const IndexFlags& options) {
  IndexOptions index_options;
  index_options.verify = options.verify;
  index_options.max_tokens = options.max_tokens;
  index_options.too_long = rule_of(options.too_long);
  index_options.empty_response = rule_of(options.empty_response);
  index_options.damaged = rule_of(options.damaged);
  index_options.ignore_modality = options.ignore_modality;
  if (!options.model.empty()) {
    index_options.model = load_model(options.model);
  }
  const std::vector<std::filesystem::path> data(options.data.begin(), options.data.end());
  std::vector<std::filesystem::path> inputs = list_data(data);
  inputs.emplace_back(options.model);
  Outputs(inputs, options.force).open("--output", options.output, OutputKind::kIndex);
  const IndexResult result = build_index(data, options.output, index_options);
  print_notes(result.summary.notes);
  if (options.json) {
    print_json(summary_json(result.summary));
  } else {
    std::cout << to_string(result.summary) << "written to " << options.output << " (digest "
              << digest(result.index) << ")\n";
  }
  return 0;
}

}  // namespace

void add_index_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<IndexFlags>();
  CLI::App* command = add_command(
      app,
      "index",
      "Reads sizes, exact text lengths and byte offsets of every sample of tar shards.",
      "entrain index data/train-*.tar --output train.csv --model model.toml --too-long leave-out");
  command
      ->add_option(
          "data",
          options->data,
          "tar shards (.tar; .tar.gz for studies only), folders of them, names with braces "
          "such as 'train-{000000..000009}.tar', or index files to merge")
      ->required();
  command->add_option("--output,-o", options->output, "index CSV to write")->required();
  add_force(*command, options->force);
  command->add_option(
      "--model,-m", options->model, "model file, for the length limit and its encoders");
  command
      ->add_option("--max-tokens",
                   options->max_tokens,
                   "longest LLM sequence (default: the model's llm.max_tokens)")
      ->transform(whole(0, 1'000'000'000));
  command->add_option("--too-long", options->too_long, "what happens to longer samples")
      ->check(CLI::IsMember({"refuse", "leave-out", "truncate"}))
      ->capture_default_str();
  command
      ->add_option("--empty-response", options->empty_response, "what happens to empty responses")
      ->check(CLI::IsMember({"refuse", "leave-out"}))
      ->capture_default_str();
  command
      ->add_option(
          "--damaged", options->damaged, "what happens to unreadable samples and to damaged shards")
      ->check(CLI::IsMember({"stop", "leave-out"}))
      ->capture_default_str();
  add_ignore_modality(*command, options->ignore_modality);
  command->add_flag("--verify", options->verify, "decode every image and clip");
  command->add_flag("--json", options->json, "print the summary as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
