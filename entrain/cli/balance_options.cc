#include "entrain/cli/balance_options.h"

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/cli/checked_options.h"

namespace entrain::cli {
namespace {

constexpr int kMostRanks = 100'000;
constexpr int kMostMicrobatches = 10'000;

void add_layout_options(CLI::App& command, BalanceOptions& options) {
  AuditRequest& request = options.request;
  command
      .add_option("--layout",
                  options.layout,
                  "fsdp (ranks meet in every layer: FSDP, ZeRO-3) or ddp (they meet once a step: "
                  "DDP, ZeRO-1, ZeRO-2)")
      ->check(CLI::IsMember(std::vector<std::string>{"fsdp", "ddp"}))
      ->capture_default_str();
  command.add_option("--ranks", request.ranks, "data-parallel ranks")
      ->check(whole(1, kMostRanks))
      ->capture_default_str();
  command.add_option("--microbatches", request.microbatches, "of a rank and step (accumulation)")
      ->check(whole(1, kMostMicrobatches))
      ->capture_default_str();
  command.add_option("--microbatch", options.microbatch, "samples of a microbatch")
      ->check(whole(1, kMostSamples))
      ->capture_default_str();
  command.add_flag(
      "--padded", request.padded, "the trainer pads a microbatch's sequences to its longest");
  command.add_option("--max-tokens", request.max_tokens, "LLM tokens of a microbatch, at most")
      ->check(whole(1, kMostMebibytes));
  command.add_option("--memory", options.memory_mib, "MiB for a microbatch's activations")
      ->check(whole(1, kMostMebibytes));
  command.add_flag("--unlimited",
                   request.unlimited,
                   "let the sampler fill microbatches beyond what drawn order needs");
  command
      .add_option("--everywhere",
                  request.everywhere,
                  "encoders that every microbatch of every rank needs work in")
      ->delimiter(',');
}

}  // namespace

void add_balance_options(CLI::App& command, BalanceOptions& options) {
  options.study.global_batch = 1;  // set by finish()
  add_sample_options(command, options.study);
  command.add_option("INDEX", options.study.index, "the same as --index")
      ->excludes(command.get_option("--index"));
  command
      .add_option("--hf-config",
                  options.study.model,
                  "the model as a Hugging Face config.json: the same as --model")
      ->excludes(command.get_option("--model"));
  command.add_option(
      "--costs", options.study.costs, "measured costs (CSV) instead of index, model and profile");
  add_layout_options(command, options);
  command.add_option("--seed", options.study.seed, "of the order of samples")
      ->check(seed_number())
      ->capture_default_str();
  command
      .add_option("--search-steps",
                  options.request.search_steps,
                  "that the sampler tries to improve a step")
      ->check(whole(0, kMostSteps))
      ->capture_default_str();
}

void finish(BalanceOptions& options) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  AuditRequest& request = options.request;
  request.layout = options.layout == "ddp" ? Layout::kDdp : Layout::kFsdp;
  request.memory_bytes = options.memory_mib * kMebibyte;
  const std::int64_t batch =
      std::int64_t{request.ranks} * request.microbatches * options.microbatch;
  if (batch > kMostSamples) {
    throw InvalidInput(concat(counted(request.ranks, "rank"),
                              " × ",
                              counted(request.microbatches, "microbatch"),
                              " × ",
                              counted(options.microbatch, "sample"),
                              " are ",
                              batch,
                              " samples a step; at most ",
                              kMostSamples,
                              " are allowed"));
  }
  options.study.global_batch = static_cast<int>(batch);
}

}  // namespace entrain::cli
