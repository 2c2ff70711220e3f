#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/dataset/index_builder.h"

// The part of IndexBuilder that makes tokens.
namespace entrain {

void IndexBuilder::start_tokenizer(const std::filesystem::path& output) {
  const TokenizerOptions& tokenizer = *options_.tokenizer;
  if (!options_.model) {
    throw InvalidInput(
        "a tokenizer needs a model, which says how many tiles an image has and which ids there "
        "are");
  }
  if (options_.too_long == BadSampleRule::kTruncate) {
    throw InvalidInput(
        "--too-long truncate cuts texts of bytes alone; with a tokenizer refuse or leave out");
  }
  if (is_stream(output)) {
    throw InvalidInput(fmt::format(
        "'{}' is a stream; tokens are written to a file beside the index", output.string()));
  }
  workers_.emplace(tokenizer, *options_.model);
  check_tokenizer(workers_->facts(), tokenizer, options_.model->llm.vocab_size);
}

// Calls `take` when the samples before it have been taken, with the request's tokens.
void IndexBuilder::in_order(std::optional<TokenRequest> request,
                            std::function<void(TokenResult&)> take) {
  if (workers_) {
    workers_->push(std::move(request), std::move(take));
  } else {
    TokenResult nothing;
    take(nothing);
  }
}

// Whether it is known how the tokenizer writes the sample's media that have an encoder.
void IndexBuilder::check_written(const SampleSizes& sample) const {
  for (const EncoderSpec& encoder : options_.model->encoders) {
    const bool vision = encoder.modality == Modality::kVision;
    const bool has =
        vision ? !sample.images.empty() || !sample.videos.empty() : !sample.audio_seconds.empty();
    if (has && !(vision ? options_.tokenizer->image_text : options_.tokenizer->audio_text)) {
      throw InvalidInput(
          fmt::format("sample '{}' has media for encoder '{}', and nothing says how the "
                      "tokenizer '{}' writes "
                      "them: the model's Hugging Face folder does, as --model or as --tokenizer; "
                      "with a model "
                      "file texts are bytes (--tokenizer bytes)",
                      sample.id,
                      encoder.name,
                      options_.tokenizer->folder.string()));
    }
  }
}

// `where` names the text. `kept`: the sample as it was measured, where it is kept.
void IndexBuilder::tokenize_and_add(
    SampleSizes sample, std::string json, std::string where, Extra extra, std::string kept) {
  check_written(sample);
  TokenRequest request;
  const std::shared_ptr<PartialFileWriter> writer = kept.empty() ? nullptr : kept_;
  try {
    request = token_request(*options_.model, sample, std::move(where), std::move(json));
  } catch (const InvalidInput& error) {
    in_order(std::nullopt, [writer, kept](TokenResult&) {
      if (writer) {
        writer->add(kept, nullptr);
      }
    });
    damaged(sample.id, kRefusedSize, error.what());
    return;
  }
  in_order(
      std::move(request),
      [this, writer, kept = std::move(kept), sample = std::move(sample), extra = std::move(extra)](
          TokenResult& result) {
        if (writer) {
          writer->add(kept, &result);
        }
        take_tokens(sample, result, extra);
      });
}

void IndexBuilder::take_tokens(SampleSizes sample, const TokenResult& result, Extra extra) {
  if (!result.error.empty()) {
    leave_out_damaged(sample.id, kDamagedSample, result.error);
    return;
  }
  std::int64_t targets = 0;
  for (const TokenRange& range : result.tokens.targets) {
    targets += range.size();
  }
  sample.prompt_chars = result.prompt_chars;
  sample.response_chars = targets > 0 ? result.response_chars : 0;
  sample.prompt_tokens = std::ssize(result.tokens.ids) - targets;
  sample.response_tokens = targets;
  sample.prompt_tokens_estimate = *sample.prompt_tokens;
  sample.response_tokens_estimate = targets;
  const std::string id = sample.id;
  if (add(
          std::move(sample), [] { return std::nullopt; }, std::move(extra))) {
    tokens_.add(id, result.tokens);
  }
}

void IndexBuilder::write_tokens(const std::filesystem::path& output, Index& index) {
  if (workers_) {
    index.text_digest =
        tokens_.write(token_cache_path(output), workers_->facts(), workers_->table());
  }
}

}  // namespace entrain
