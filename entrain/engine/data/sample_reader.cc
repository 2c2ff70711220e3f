#include "entrain/engine/data/sample_reader.h"

#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"

#include "entrain/engine/data/log_mel.h"
#include "entrain/engine/data/patches.h"

namespace entrain::engine {
namespace {

std::string text_or_empty(const Json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string kind_of(const std::string& json, const std::string& where) {
  const Json document = parse_json(json, where);
  const std::string kind = text_or_empty(document, "kind");
  return kind.empty() ? text_or_empty(document, "source") : kind;
}

// Which image or clip of the sample a segment is of, all images counted first, and which of its
// windows.
struct Place {
  std::size_t medium = 0;
  std::int64_t window = 0;
};

// For every segment of the encoder except those of videos.
std::vector<Place> places_of(const EncoderSpec& encoder, const SampleSizes& sizes) {
  std::vector<Place> places;
  if (encoder.modality == Modality::kVision) {
    for (std::size_t image = 0; image < sizes.images.size(); ++image) {
      places.push_back({image, 0});
    }
    return places;
  }
  for (std::size_t clip = 0; clip < sizes.audio_seconds.size(); ++clip) {
    const std::int64_t frames = mel_frames(sizes.audio_seconds[clip]);
    for (std::int64_t w = 0; w * window_frames(encoder) < frames; ++w) {
      places.push_back({sizes.images.size() + clip, w});
    }
  }
  return places;
}

// `visit(medium, features)` for every segment, encoders in module order.
template <class Visit>
void for_each_segment(const ModelSpec& model,
                      const SampleSizes& sizes,
                      const SampleWork& work,
                      const Visit& visit) {
  for (std::size_t module = 0; module < model.encoders.size(); ++module) {
    const std::vector<Place> places = places_of(model.encoders[module], sizes);
    for (std::size_t segment = 0; segment < places.size(); ++segment) {
      visit(places[segment].medium, work.segments[module].at(segment).llm_tokens);
    }
  }
}

void check_found(std::size_t found,
                 std::size_t expected,
                 const char* what,
                 const std::string& where) {
  if (found != expected) {
    throw InvalidInput(concat(where,
                              ": the shard has ",
                              found,
                              " ",
                              what,
                              ", the index says ",
                              expected,
                              "; make the index again"));
  }
}

}  // namespace

SampleReader::SampleReader(const Index& index, const ModelSpec& model, bool blank)
    : index_(index), model_(model), blank_(blank) {}

const SampleSizes& SampleReader::sizes(int sample) const {
  ENTRAIN_INVARIANT(sample >= 0 && sample < std::ssize(index_.samples),
                    concat("sample ", sample, " of an index of ", index_.samples.size()));
  return index_.samples[static_cast<std::size_t>(sample)];
}

std::string SampleReader::where(int sample) const {
  const SampleSizes& given = sizes(sample);
  if (!given.location) {
    return concat("sample '", given.id, "'");
  }
  return concat("sample '",
                given.id,
                "' in shard '",
                shard_path(index_, *given.location).string(),
                "' at offset ",
                given.location->offset);
}

const RawSample& SampleReader::raw(int sample) {
  if (held_ != sample) {
    const SampleSizes& given = sizes(sample);
    if (!given.location) {
      throw InvalidInput(concat(where(sample),
                                " has no shard: the index holds sizes only; training needs one "
                                "made from shards"));
    }
    held_ = -1;
    raw_ = read_sample(shard_path(index_, *given.location), *given.location, given.id);
    held_ = sample;
  }
  return raw_;
}

void SampleReader::refuse_videos(int sample, const SampleWork& work) const {
  for (std::size_t module = 0; module < model_.encoders.size(); ++module) {
    const EncoderSpec& encoder = model_.encoders[module];
    if (work.segments[module].size() > places_of(encoder, sizes(sample)).size()) {
      throw InvalidInput(concat(where(sample),
                                " has video for encoder '",
                                encoder.name,
                                "'; only images and audio can be read for training"));
    }
  }
}

SegmentData SampleReader::image(int sample, std::size_t image, const EncoderSpec& encoder) {
  const SampleSizes& given = sizes(sample);
  if (blank_) {
    return white_patches(given.images[image], encoder);
  }
  const std::string place = concat(where(sample), ", image ", image);
  const std::vector<std::string>& images = raw(sample).images;
  check_found(images.size(), given.images.size(), "images", place);
  const DecodedImage decoded = decode_image(images[image], place);
  if (decoded.size != given.images[image]) {
    throw InvalidInput(concat(place,
                              ": ",
                              decoded.size.width,
                              "x",
                              decoded.size.height,
                              " pixels, the index says ",
                              given.images[image].width,
                              "x",
                              given.images[image].height,
                              "; make the index again"));
  }
  return patches_of(decoded, encoder);
}

SegmentData SampleReader::sound(int sample,
                                std::size_t clip,
                                std::int64_t window,
                                const EncoderSpec& encoder) {
  const SampleSizes& given = sizes(sample);
  if (blank_) {
    return silent_window(given.audio_seconds[clip], window, encoder);
  }
  const std::string place = concat(where(sample), ", clip ", clip);
  const std::vector<std::string>& clips = raw(sample).audio;
  check_found(clips.size(), given.audio_seconds.size(), "clips", place);
  if (held_clip_ != std::pair(sample, clip)) {
    held_clip_ = {-1, 0};
    const DecodedAudio decoded = decode_audio(clips[clip], place);
    if (decoded.info.seconds() != given.audio_seconds[clip]) {
      throw InvalidInput(concat(place,
                                ": ",
                                decoded.info.seconds(),
                                " s, the index says ",
                                given.audio_seconds[clip],
                                "; make the index again"));
    }
    clip_ = resample(decoded.samples, decoded.info.sample_rate, kMelSampleRate);
    held_clip_ = {sample, clip};
  }
  return mel_window(clip_, window, encoder);
}

SegmentData SampleReader::segment(int sample, int module, int segment) {
  const EncoderSpec& encoder = model_.encoders.at(static_cast<std::size_t>(module));
  const auto index = static_cast<std::size_t>(segment);
  const SampleSizes& given = sizes(sample);
  const SampleWork planned = sample_work(model_, given);
  refuse_videos(sample, planned);
  const auto [medium, window] = places_of(encoder, given).at(index);
  const bool vision = encoder.modality == Modality::kVision;
  SegmentData data = vision ? image(sample, medium, encoder)
                            : sound(sample, medium - given.images.size(), window, encoder);
  const SegmentWork& work = planned.segments.at(static_cast<std::size_t>(module)).at(index);
  const std::int64_t rows = data.input.size(0);
  ENTRAIN_INVARIANT(data.rows == work.rows && data.columns == work.columns &&
                        fits_input(encoder, rows, work.tokens),
                    concat(where(sample),
                           vision ? ", image " : ", audio window ",
                           segment,
                           ": ",
                           rows,
                           " rows, planned with tokens: ",
                           work.tokens));
  return data;
}

SampleTokens SampleReader::text(int sample) {
  const SampleSizes& given = sizes(sample);
  const std::string place = where(sample);
  if (!given.prompt_tokens || !given.response_tokens) {
    throw InvalidInput(concat(place, " has estimated lengths only; make an index from shards"));
  }
  const SampleWork work = sample_work(model_, given);
  refuse_videos(sample, work);
  const std::string& json = raw(sample).text;
  SampleTokens result{
      index_.tokens != nullptr ? cached_tokens(sample, work) : byte_tokens(sample, work, json),
      kind_of(json, place)};
  const std::int64_t length = std::ssize(result.tokens.ids);
  if (length != work.llm_tokens || result.tokens.num_targets() != work.target_tokens) {
    throw InvalidInput(concat(place,
                              ": ",
                              length,
                              " tokens, ",
                              result.tokens.num_targets(),
                              " with loss; the index says ",
                              work.llm_tokens,
                              " and ",
                              work.target_tokens,
                              "; make the index again"));
  }
  return result;
}

TokenizedSample SampleReader::cached_tokens(int sample, const SampleWork& work) const {
  const SampleSizes& given = sizes(sample);
  const TextTokens tokens = index_.tokens->sample(given.id);
  // A slot for every tile that the encoders take, and for every clip.
  std::size_t num_tiles = 0;
  std::size_t num_clips = 0;
  for (std::size_t module = 0; module < model_.encoders.size(); ++module) {
    const bool vision = model_.encoders[module].modality == Modality::kVision;
    (vision ? num_tiles : num_clips) =
        vision ? work.segments[module].size() : given.audio_seconds.size();
  }
  if (tokens.slots.size() != num_tiles + num_clips) {
    throw InvalidInput(concat(where(sample),
                              ": its tokens have places for ",
                              tokens.slots.size(),
                              " tiles and clips, the model makes ",
                              num_tiles + num_clips,
                              " of it; make the index again with this model"));
  }
  std::vector<std::size_t> slots;  // [segment of all encoders]
  std::vector<std::int64_t> features(tokens.slots.size(), 0);
  for (std::size_t module = 0; module < model_.encoders.size(); ++module) {
    const EncoderSpec& encoder = model_.encoders[module];
    const std::vector<Place> places = places_of(encoder, given);
    for (std::size_t k = 0; k < work.segments[module].size(); ++k) {
      slots.push_back(encoder.modality == Modality::kVision
                          ? k
                          : num_tiles + places.at(k).medium - given.images.size());
      features[slots.back()] += work.segments[module][k].llm_tokens;
    }
  }
  const TokenFacts& facts = index_.tokens->facts();
  TokenizedSample result =
      with_features(tokens, features, num_tiles, facts.image_token, facts.audio_token);
  std::vector<std::int64_t> next = std::exchange(result.feature_begin, {});
  std::size_t segment = 0;
  for (const std::vector<SegmentWork>& segments : work.segments) {
    for (const SegmentWork& one : segments) {
      std::int64_t& begin = next[slots[segment++]];
      result.feature_begin.push_back(begin);
      begin += one.llm_tokens;
    }
  }
  return result;
}

TokenizedSample SampleReader::byte_tokens(int sample,
                                          const SampleWork& work,
                                          const std::string& json) const {
  const SampleSizes& given = sizes(sample);
  const std::string place = where(sample);
  const SampleText text =
      cut_prompt(sample_text(json, place), given.num_media(), *given.prompt_tokens, place);
  if (response_tokens(text) != *given.response_tokens) {
    throw InvalidInput(concat(place,
                              ": a response of ",
                              response_tokens(text),
                              " tokens, the index says ",
                              *given.response_tokens,
                              "; make the index again"));
  }
  std::vector<std::int64_t> per_image(given.images.size(), 0);
  std::vector<std::int64_t> per_clip(given.audio_seconds.size(), 0);
  for_each_segment(model_, given, work, [&](std::size_t medium, std::int64_t features) {
    (medium < per_image.size() ? per_image[medium] : per_clip[medium - per_image.size()]) +=
        features;
  });
  TokenizedSample result = tokenize(text, per_image, per_clip);
  // Segments are numbered through all encoders; between a medium's marks the encoders' features
  // are consecutive.
  std::vector<std::int64_t> next = std::exchange(result.feature_begin, {});
  for_each_segment(model_, given, work, [&](std::size_t medium, std::int64_t features) {
    result.feature_begin.push_back(next[medium]);
    next[medium] += features;
  });
  return result;
}

}  // namespace entrain::engine
