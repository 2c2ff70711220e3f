#include "entrain/core/dataset/token_workers.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/base64.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/spec/video.h"

namespace entrain {
namespace {

// Enough samples that waiting does not count, and few enough that workers finish together.
constexpr std::size_t kBatchSize = 16;

Json media_json(const std::optional<MediaText>& text) {
  if (!text) {
    return nullptr;
  }
  return {{"token", text->token},
          {"written", text->written},
          {"mark", text->mark},
          {"single", text->single},
          {"before", text->before},
          {"tile", text->tile},
          {"row_end", text->row_end},
          {"whole", text->whole},
          {"after", text->after}};
}

// How texts are made of samples, whatever the tokenizer and the template.
Json media_settings(const TokenizerOptions& options) {
  return {{"image", media_json(options.image_text)},
          {"video", media_json(options.video_text)},
          {"audio", media_json(options.audio_text)},
          {"chat_specials", options.chat_specials}};
}

Json settings_json(const TokenizerOptions& options) {
  Json settings = media_settings(options);
  settings["folder"] = options.folder.string();
  settings["chat_template"] =
      options.chat_template.empty() ? Json() : Json(options.chat_template.string());
  settings["loss"] = options.loss_on_all ? "all" : "answers";
  settings["time"] = options.time > 0 ? options.time : std::int64_t{std::time(nullptr)};
  return settings;
}

// When each temporal patch of a video is: the mean of its two frames, as Qwen3-VL's processor has
// it.
std::vector<double> patch_seconds(const EncoderSpec& encoder, const VideoSize& video) {
  const std::vector<std::int64_t> frames = frame_indices(encoder, video);
  // The rate that made the length: times are written with one decimal, and a hair decides ties.
  const double given = static_cast<double>(*video.frames) / video.seconds;
  const double rounded = std::nearbyint(given * 1000) / 1000;
  const double rate = std::abs(given - rounded) <= 1e-9 * given ? rounded : given;
  std::vector<double> seconds;
  for (std::size_t first = 0; first < frames.size(); first += 2) {
    const std::size_t second = std::min(first + 1, frames.size() - 1);
    seconds.push_back(
        (static_cast<double>(frames[first]) / rate + static_cast<double>(frames[second]) / rate) /
        2);
  }
  return seconds;
}

Json request_json(const TokenRequest& request) {
  Json images = Json::array();
  for (const ImageTiles& grid : request.images) {
    images.push_back(Json::array({grid.rows, grid.columns, grid.whole}));
  }
  return {{"json", request.json},
          {"images", images},
          {"videos", request.videos},
          {"clips", request.num_clips}};
}

}  // namespace

TokenRequest token_request(const ModelSpec& model,
                           const SampleSizes& sizes,
                           std::string where,
                           std::string json) {
  TokenRequest request = {
      std::move(where), std::move(json), {}, {}, std::ssize(sizes.audio_seconds)};
  const auto vision = std::ranges::find(model.encoders, Modality::kVision, &EncoderSpec::modality);
  if (vision == model.encoders.end()) {  // their places are left out
    request.images.resize(sizes.images.size());
    request.videos.resize(sizes.videos.size());
    return request;
  }
  for (const ImageSize& size : sizes.images) {
    request.images.push_back(tile_segments(*vision, size));
  }
  for (const VideoSize& video : sizes.videos) {
    if (!reads_videos(*vision) || !video.frames) {
      throw InvalidInput(
          fmt::format("{}: encoder '{}' cannot read the sample's videos for training",
                      request.where,
                      vision->name));
    }
    request.videos.push_back(patch_seconds(*vision, video));
  }
  return request;
}

TokenWorkers::TokenWorkers(const TokenizerOptions& options, const ModelSpec& model) {
  const std::string settings = settings_json(options).dump() + "\n";
  const std::string where = fmt::format("tokenizer '{}'", options.folder.string());
  for (int i = 0; i < options.num_workers; ++i) {
    workers_.push_back(
        std::make_unique<PythonProcess>(options.program, "entrain.tokens", "makes its tokens"));
    workers_.back()->write(settings, where);
  }
  batches_.resize(workers_.size());
  for (const std::unique_ptr<PythonProcess>& worker : workers_) {
    const Json facts = worker->read_line(where);
    if (const auto error = facts.find("error"); error != facts.end()) {
      throw InvalidInput(fmt::format("{}: {}", where, error->get<std::string>()));
    }
    facts_ = token_facts_from_json(facts, where);
  }
  Json encoders = to_json(model);
  encoders.erase("llm");
  encoders.erase("name");
  facts_.settings =
      digest_of(Json{{"media", media_settings(options)}, {"encoders", encoders}}.dump());
}

TokenWorkers::~TokenWorkers() = default;

void TokenWorkers::push(std::optional<TokenRequest> request,
                        std::function<void(TokenResult&)> take) {
  entries_.push_back({request.has_value(), std::move(take)});
  if (!request) {
    return;
  }
  waiting_.push_back(std::move(*request));
  if (waiting_.size() == kBatchSize) {
    send();
  }
}

void TokenWorkers::flush() {
  if (!waiting_.empty()) {
    send();
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    receive();
    next_ = (next_ + 1) % workers_.size();
  }
  TokenResult nothing;
  while (!entries_.empty()) {
    take_next(nothing);
  }
}

// Workers take turns: the next one's earlier batch is the oldest of all, and is taken first.
void TokenWorkers::send() {
  receive();
  std::string text = fmt::format("{}\n", waiting_.size());
  for (const TokenRequest& request : waiting_) {
    text += request_json(request).dump() + "\n";
  }
  workers_[next_]->write(text, waiting_.front().where);
  batches_[next_] = std::exchange(waiting_, {});
  next_ = (next_ + 1) % workers_.size();
}

// Takes the batch of the next worker, if it has one.
void TokenWorkers::receive() {
  for (const TokenRequest& request : batches_[next_]) {
    TokenResult nothing;
    while (!entries_.front().requested) {
      take_next(nothing);
    }
    TokenResult result = result_of(workers_[next_]->read_line(request.where), request);
    take_next(result);
  }
  batches_[next_].clear();
}

void TokenWorkers::take_next(TokenResult& result) {
  const Entry entry = std::move(entries_.front());
  entries_.pop_front();
  entry.take(result);
}

TokenResult TokenWorkers::result_of(const Json& document, const TokenRequest& request) const {
  TokenResult result;
  if (const auto error = document.find("error"); error != document.end()) {
    result.error = fmt::format("{}: {}", request.where, error->get<std::string>());
    return result;
  }
  for (const Json& id : document.at("ids")) {
    result.tokens.ids.push_back(id.get<std::int64_t>());
  }
  for (const Json& range : document.at("targets")) {
    result.tokens.targets.push_back({range[0].get<std::int64_t>(), range[1].get<std::int64_t>()});
  }
  for (const Json& slot : document.at("slots")) {
    result.tokens.slots.push_back({slot[0].get<std::int64_t>(), slot[1].get<std::int64_t>()});
  }
  validate(result.tokens, facts_.vocabulary, request.where);
  result.prompt_chars = document.at("prompt_chars").get<std::int64_t>();
  result.response_chars = document.at("response_chars").get<std::int64_t>();
  return result;
}

std::vector<std::string> TokenWorkers::table() {
  ENTRAIN_INVARIANT(entries_.empty(), "a table between batches");
  workers_.front()->write("table\n", "the tokenizer's table");
  const Json document = workers_.front()->read_line("the tokenizer's table");
  std::vector<std::string> table;
  for (const Json& entry : document.at("table")) {
    table.push_back(decode_base64(entry.get_ref<const std::string&>()).value());
  }
  return table;
}

void check_tokenizer(const TokenFacts& facts,
                     const TokenizerOptions& options,
                     std::int64_t vocab_size) {
  const std::string folder = options.folder.string();
  if (facts.vocabulary > vocab_size) {
    throw InvalidInput(fmt::format("tokenizer '{}' has ids up to {}; the model's vocab_size is {}",
                                   folder,
                                   facts.vocabulary - 1,
                                   vocab_size));
  }
  const auto check = [&](const std::optional<MediaText>& text, std::int64_t id) {
    if (text && text->token_id >= 0 && id >= 0 && text->token_id != id) {
      throw InvalidInput(
          fmt::format("tokenizer '{}' has '{}' as {}; the model's config.json says {}",
                      folder,
                      text->token,
                      id,
                      text->token_id));
    }
  };
  check(options.image_text, facts.image_token);
  check(options.video_text, facts.video_token);
  check(options.audio_text, facts.audio_token);
}

}  // namespace entrain
