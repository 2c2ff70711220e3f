// entrain index: sizes of real samples.
#include <algorithm>
#include <thread>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/shard_list.h"
#include "entrain/core/families/family.h"
#include "entrain/core/report/distribution.h"

#include "entrain/cli/checked_options.h"
#include "entrain/cli/command.h"
#include "entrain/cli/study_options.h"

namespace entrain::cli {
namespace {

struct IndexFlags {
  std::vector<std::string> data;
  std::string output;
  std::string model;
  std::string media;
  std::string split = "train";
  std::int64_t max_tokens = 0;
  std::string too_long = "refuse";
  std::string empty_response = "refuse";
  std::string damaged = "stop";
  std::vector<std::string> ignore_modality;
  std::string tokenizer;
  std::string chat_template;
  std::string loss = "answers";
  int workers = 1;
  int threads = 0;
  bool stats = false;
  std::string plot;
  std::vector<std::string> columns;
  bool verify = false;
  bool trust_metadata = false;
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
                   {"audio_milliseconds", percentiles_json(summary.audio_milliseconds)},
                   {"videos", summary.videos}};
  if (summary.llm_tokens.has_value()) {
    document["llm_tokens"] = percentiles_json(*summary.llm_tokens);
  }
  return document;
}

// Which tokenizer the flags mean: none for bytes. A model's folder brings its own, of which `notes`
// then says so.
std::optional<TokenizerOptions> tokenizer_of(const IndexFlags& flags,
                                             const IndexOptions& index,
                                             std::vector<std::string>& notes) {
  const std::filesystem::path model = flags.model;
  std::filesystem::path folder = flags.tokenizer;
  if (folder.empty() && std::filesystem::is_regular_file(model / "tokenizer.json")) {
    folder = model;
    notes.push_back(concat("texts are tokenized by the model's own tokenizer in '",
                           model.string(),
                           "' (--tokenizer bytes: as bytes)"));
  }
  if (folder.empty() && std::filesystem::is_directory(model)) {
    notes.push_back(concat(
        "'", model.string(), "' has no tokenizer.json: texts are bytes (--tokenizer FOLDER)"));
  }
  if (folder.empty() || folder == "bytes") {
    if (!flags.chat_template.empty() || flags.loss != "answers") {
      throw InvalidInput("--chat-template and --loss need a tokenizer; texts are bytes here");
    }
    return std::nullopt;
  }
  std::error_code unreachable;  // a name that is too long is no folder either
  if (!std::filesystem::is_regular_file(folder / "tokenizer.json", unreachable)) {
    throw InvalidInput(
        concat("--tokenizer: '", folder.string(), "' is no folder with a tokenizer.json"));
  }
  if (!index.model) {
    throw InvalidInput("--tokenizer needs --model, which says how many tokens an image has");
  }
  TokenizerOptions result;
  result.program = find_python_program();
  result.folder = folder;
  result.chat_template = flags.chat_template;
  result.loss_on_all = flags.loss == "all";
  result.num_workers = flags.workers;
  // A model file says nothing about texts: then the tokenizer's folder does, if it is a model's.
  const std::filesystem::path described = std::filesystem::is_directory(model) ? model : folder;
  if (std::filesystem::is_regular_file(described / "config.json")) {
    const HfModel family = read_hf_model(described);
    result.chat_specials = !family.model.encoders.empty();
    for (const EncoderSpec& encoder : index.model->encoders) {
      if (encoder.modality == Modality::kVision) {
        result.image_text = family.image_text;
        result.video_text = family.video_text;
      } else {
        result.audio_text = family.audio_text;
      }
    }
  }
  return result;
}

int run(const IndexFlags& options) {
  IndexOptions index_options;
  index_options.verify = options.verify;
  index_options.threads = options.threads > 0
                              ? options.threads
                              : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  index_options.media = options.media;
  index_options.columns = ColumnMap(join(options.columns, ";"));
  index_options.trust_metadata = options.trust_metadata;
  index_options.split = options.split;
  index_options.max_tokens = options.max_tokens;
  index_options.too_long = rule_of(options.too_long);
  index_options.empty_response = rule_of(options.empty_response);
  index_options.damaged = rule_of(options.damaged);
  index_options.ignore_modality = options.ignore_modality;
  if (!options.model.empty()) {
    index_options.model = load_model(options.model);
  }
  std::vector<std::string> notes;
  index_options.tokenizer = tokenizer_of(options, index_options, notes);
  const std::vector<std::filesystem::path> data(options.data.begin(), options.data.end());
  std::vector<std::filesystem::path> inputs;
  for (const std::filesystem::path& given : data) {
    for (const std::filesystem::path& file : list_data({named_data(given).path}, options.split)) {
      inputs.push_back(file);
    }
  }
  inputs.emplace_back(options.model);
  Outputs outputs(inputs, options.force);
  outputs.open("--output", options.output, OutputKind::kIndex);
  if (index_options.tokenizer) {
    outputs.open("--output", token_cache_path(options.output), OutputKind::kTokens);
  }
  const Output plot = outputs.open("--plot", options.plot, OutputKind::kPlot);
  print_notes(notes);
  const IndexResult result = build_index(data, options.output, index_options);
  print_notes(result.summary.notes);
  if (result.summary.left_out.size() > result.index.samples.size()) {
    print_warnings({concat(counted(std::ssize(result.summary.left_out), "sample"),
                           result.summary.left_out.size() == 1 ? " was" : " were",
                           " left out, more than the ",
                           result.index.samples.size(),
                           " that stayed: is --media the right folder, and --columns right?")});
  }
  const std::vector<SampleSizes>& samples = result.index.samples;
  const std::vector<Distribution> distributions =
      options.stats || plot.named()
          ? distributions_of(samples, index_options.model ? &*index_options.model : nullptr)
          : std::vector<Distribution>();
  if (plot.named()) {
    plot.write(to_svg(distributions));
  }
  if (options.json) {
    print_json(summary_json(result.summary));
  } else {
    for (const Distribution& distribution : distributions) {
      out() << (options.stats ? to_text(distribution, samples) : "");
    }
    out() << to_string(result.summary) << "written to " << options.output << " (digest "
          << digest(result.index) << ")\n";
    if (index_options.tokenizer) {
      out() << "token ids written to " << token_cache_path(options.output).string() << "\n";
    }
  }
  return 0;
}

}  // namespace

void add_index_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<IndexFlags>();
  CLI::App* command = add_command(
      app,
      "index",
      "Reads sizes, exact text lengths and byte offsets of every sample of a data set.",
      "entrain index data/train-*.tar --output train.csv --model model.toml --too-long leave-out");
  command
      ->add_option(
          "data",
          options->data,
          "tar shards (.tar; .tar.gz for studies only), folders of them, names with braces "
          "such as 'train-{000000..000009}.tar', tables (.parquet, .arrow), lists of records "
          "(.json, .jsonl: LLaVA, ShareGPT, OpenAI messages), or index files to merge; NAME=PATH "
          "puts \"NAME/\" before the ids")
      ->required();
  command->add_option("--output,-o", options->output, "index CSV to write")->required();
  add_force(*command, options->force);
  command
      ->add_option(
          "--split",
          options->split,
          "which part of folders that name their splits: of Energon, of the Hub's tables, of a "
          "saved DatasetDict")
      ->capture_default_str();
  command
      ->add_option("--media",
                   options->media,
                   "folder of the media that records and tables name by path (default: "
                   "the folder of each file)")
      ->check(CLI::ExistingDirectory);
  command
      ->add_option(
          "--columns",
          options->columns,
          "OURS=THEIRS: what a column or key is called in the data, such as answer=label; "
          "of shards also a member, image=.jpg, answer=.json[answers]. May be given several "
          "times")
      ->allow_extra_args(false);  // otherwise it would consume the following positional arguments
  command->add_option(
      "--model,-m",
      options->model,
      "model file (TOML) or Hugging Face folder, for the length limit and its encoders");
  command->add_option("--tokenizer",
                      options->tokenizer,
                      "folder with a Hugging Face tokenizer.json, or `bytes` (default: the model's "
                      "folder if it has one, else bytes); tokens are written beside the index");
  command->add_option("--chat-template",
                      options->chat_template,
                      "file with a chat template instead of the tokenizer's own");
  command->add_option("--loss", options->loss, "what of a tokenized text has loss")
      ->check(CLI::IsMember({"answers", "all"}))
      ->capture_default_str();
  command->add_option("--workers", options->workers, "processes that tokenize")
      ->transform(whole(1, 256))
      ->capture_default_str();
  command
      ->add_option("--threads",
                   options->threads,
                   "threads that read files, each one at a time; 0: all cores")
      ->transform(whole(0, 1024))
      ->capture_default_str();
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
  command->add_flag(
      "--stats",
      options->stats,
      "draw how tokens, pixels and seconds are distributed, and name what is far out");
  command->add_option("--plot", options->plot, "SVG file to draw that to");
  command->add_flag("--verify", options->verify, "decode every image, clip and video");
  command->add_flag(
      "--trust-metadata",
      options->trust_metadata,
      "take sizes of images from the media metadata of folders that Energon prepared, "
      "without opening the images");
  command->add_flag("--json", options->json, "print the summary as one line of JSON");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace entrain::cli
