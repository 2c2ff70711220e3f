#include "entrain/engine/data/sample_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/audio.h"
#include "entrain/core/dataset/image.h"
#include "entrain/core/dataset/resize.h"

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

// The first feature position of each segment, from that of each slot: the features of a slot's
// segments are consecutive, in the order of the encoders.
//
// Shapes  slots, result: [segment of all encoders]; slot_begins: [slot].
std::vector<std::int64_t> segment_begins(const SampleWork& work,
                                         const std::vector<std::size_t>& slots,
                                         std::vector<std::int64_t> slot_begins) {
  std::vector<std::int64_t> result;
  for (const std::vector<SegmentWork>& segments : work.segments) {
    for (const SegmentWork& segment : segments) {
      std::int64_t& begin = slot_begins[slots[result.size()]];
      result.push_back(begin);
      begin += segment.llm_tokens;
    }
  }
  return result;
}

void check_found(std::size_t found,
                 std::size_t expected,
                 const char* what,
                 const std::string& where) {
  if (found != expected) {
    throw InvalidInput(concat(where,
                              ": the data have ",
                              found,
                              " ",
                              what,
                              ", the index says ",
                              expected,
                              "; make the index again"));
  }
}

DecodedImage checked(DecodedImage image, ImageSize indexed, const std::string& where) {
  if (image.size != indexed) {
    throw InvalidInput(concat(where,
                              ": ",
                              image.size.width,
                              "x",
                              image.size.height,
                              " pixels, the index says ",
                              indexed.width,
                              "x",
                              indexed.height,
                              "; make the index again"));
  }
  return image;
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
                "' in '",
                located(index_, *given.location).shard,
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
    video_.reset();
    raw_ = read_sample(located(index_, *given.location), given.id);
    held_ = sample;
  }
  return raw_;
}

void SampleReader::refuse_videos(int sample) const {
  for (const EncoderSpec& encoder : model_.encoders) {
    const bool vision = encoder.modality == Modality::kVision;
    if (vision && !sizes(sample).videos.empty() && !reads_videos(encoder)) {
      throw InvalidInput(concat(where(sample),
                                " has video for encoder '",
                                encoder.name,
                                "', which cannot read videos for training"));
    }
  }
}

SegmentData SampleReader::image(int sample, SegmentPlace place, const EncoderSpec& encoder) {
  const SampleSizes& given = sizes(sample);
  const std::tuple wanted(sample, place.medium, &encoder);
  const bool decoded = held_image_ != wanted;
  if (decoded) {
    held_image_ = {-1, 0, nullptr};
    const std::string name = concat(where(sample), ", image ", place.medium);
    const std::vector<std::string>& images = raw(sample).images;
    check_found(images.size(), given.images.size(), "images", name);
    image_ = resize_image(
        checked(decode_image(images[place.medium], name), given.images[place.medium], name),
        encoder,
        given.images.size() == 1);
    held_image_ = wanted;
  }
  SegmentData data = patches_of(image_, place.part, encoder);
  data.decoded_images = decoded ? 1 : 0;
  return data;
}

std::vector<DecodedImage> SampleReader::decoded_frames(int sample,
                                                       std::size_t number,
                                                       std::span<const std::int64_t> indices) {
  const SampleSizes& given = sizes(sample);
  const std::string name = concat(where(sample), ", video ", number);
  const std::vector<RawVideo>& videos = raw(sample).videos;
  check_found(videos.size(), given.videos.size(), "videos", name);
  const std::int64_t num_frames = given.videos[number].frames.value_or(0);
  if (videos[number].file) {
    if (!video_ || held_video_ != number) {
      video_.emplace(*videos[number].file, num_frames, name);
      held_video_ = number;
    }
    return video_->frames(indices);
  }
  const std::vector<std::string>& frames = videos[number].frames;
  check_found(frames.size(), static_cast<std::size_t>(num_frames), "frames", name);
  std::vector<DecodedImage> result;
  for (const std::int64_t index : indices) {
    result.push_back(
        decode_image(frames[static_cast<std::size_t>(index)], concat(name, ", frame ", index)));
  }
  return result;
}

SegmentData SampleReader::frames(int sample, SegmentPlace place, const EncoderSpec& encoder) {
  const std::size_t number = place.medium - sizes(sample).images.size();
  const VideoSize& video = sizes(sample).videos[number];
  const std::vector<std::int64_t> read = frame_indices(encoder, video);
  const auto index = [&](std::int64_t patch_frame) {
    // Of an odd number the last one is read twice.
    return read[static_cast<std::size_t>(std::min(patch_frame, std::ssize(read) - 1))];
  };
  const std::array<std::int64_t, 2> indices = {index(2 * place.part), index(2 * place.part + 1)};
  std::vector<DecodedImage> pair = decoded_frames(sample, number, indices);
  const ImageSize size = video_work(encoder, video).size;
  for (std::size_t i = 0; i < pair.size(); ++i) {
    const std::string name = concat(where(sample), ", video ", number, ", frame ", indices[i]);
    pair[i] = resize(checked(std::move(pair[i]), video.size.value_or(ImageSize()), name),
                     size,
                     encoder.resize_filter);
  }
  SegmentData data = patches_of_frames(pair[0], pair[1], encoder);
  data.decoded_images = static_cast<int>(pair.size());
  return data;
}

SegmentData SampleReader::sound(int sample, SegmentPlace place, const EncoderSpec& encoder) {
  const SampleSizes& given = sizes(sample);
  const std::size_t clip = place.medium - given.images.size() - given.videos.size();
  if (blank_) {
    return silent_window(given.audio_seconds[clip], place.part, encoder);
  }
  const std::string name = concat(where(sample), ", clip ", clip);
  const std::vector<std::string>& clips = raw(sample).audio;
  check_found(clips.size(), given.audio_seconds.size(), "clips", name);
  const bool decoded = held_clip_ != std::pair(sample, clip);
  if (decoded) {
    held_clip_ = {-1, 0};
    const DecodedAudio audio = decode_audio(clips[clip], name);
    if (audio.info.seconds() != given.audio_seconds[clip]) {
      throw InvalidInput(concat(name,
                                ": ",
                                audio.info.seconds(),
                                " s, the index says ",
                                given.audio_seconds[clip],
                                "; make the index again"));
    }
    clip_ = resample(audio.samples, audio.info.sample_rate, kMelSampleRate);
    held_clip_ = {sample, clip};
  }
  SegmentData data = mel_window(clip_, place.part, encoder);
  data.decoded_clips = decoded ? 1 : 0;
  return data;
}

SegmentData SampleReader::segment(int sample, int module, int segment) {
  const EncoderSpec& encoder = model_.encoders.at(static_cast<std::size_t>(module));
  const auto index = static_cast<std::size_t>(segment);
  const SampleSizes& given = sizes(sample);
  const SampleWork planned = sample_work(model_, given);
  refuse_videos(sample);
  const SegmentPlace place = segment_places(encoder, given).at(index);
  const SegmentWork& work = planned.segments.at(static_cast<std::size_t>(module)).at(index);
  const bool vision = encoder.modality == Modality::kVision;
  SegmentData data;
  if (!vision) {
    data = sound(sample, place, encoder);
  } else if (blank_) {
    data = white_patches({static_cast<int>(work.columns) * encoder.patch_size,
                          static_cast<int>(work.rows) * encoder.patch_size},
                         encoder);
    data.input = data.input.repeat({work.canvas.tiles.count(), 1});
  } else {
    data = place.medium < given.images.size() ? image(sample, place, encoder)
                                              : frames(sample, place, encoder);
  }
  const std::int64_t rows = data.input.size(0);
  ENTRAIN_INVARIANT(data.rows == work.rows && data.columns == work.columns &&
                        fits_input(encoder, rows, work.tokens),
                    concat(where(sample),
                           vision ? ", image segment " : ", audio window ",
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
  refuse_videos(sample);
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
  // A slot for every tile and temporal patch that the encoders take, then for every clip.
  std::size_t num_images = 0;
  std::size_t num_clips = 0;
  for (std::size_t module = 0; module < model_.encoders.size(); ++module) {
    const bool vision = model_.encoders[module].modality == Modality::kVision;
    (vision ? num_images : num_clips) =
        vision ? work.segments[module].size() : given.audio_seconds.size();
  }
  if (tokens.slots.size() != num_images + num_clips) {
    throw InvalidInput(concat(where(sample),
                              ": its tokens have places for ",
                              tokens.slots.size(),
                              " tiles, temporal patches and clips, the model makes ",
                              num_images + num_clips,
                              " of it; make the index again with this model"));
  }
  const TokenFacts& facts = index_.tokens->facts();
  const std::size_t first_video = given.images.size();
  const std::size_t first_clip = first_video + given.videos.size();
  std::vector<std::size_t> slots;  // [segment of all encoders]
  std::vector<std::int64_t> features(tokens.slots.size(), 0);
  std::vector<std::int64_t> placeholders(tokens.slots.size(), facts.audio_token);
  for (std::size_t module = 0; module < model_.encoders.size(); ++module) {
    const EncoderSpec& encoder = model_.encoders[module];
    const bool vision = encoder.modality == Modality::kVision;
    const std::vector<SegmentPlace> places = segment_places(encoder, given);
    for (std::size_t k = 0; k < places.size(); ++k) {
      const std::size_t slot = vision ? k : num_images + places[k].medium - first_clip;
      if (vision) {
        placeholders.at(slot) =
            places[k].medium < first_video ? facts.image_token : facts.video_token;
      }
      features.at(slot) += work.segments[module].at(k).llm_tokens;
      slots.push_back(slot);
    }
  }
  TokenizedSample result = with_features(tokens, features, placeholders);
  result.feature_begin = segment_begins(work, slots, std::move(result.feature_begin));
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
  // Videos have the marks of images and follow them.
  std::vector<std::int64_t> per_image(given.images.size() + given.videos.size(), 0);
  std::vector<std::int64_t> per_clip(given.audio_seconds.size(), 0);
  std::vector<std::size_t> media;  // [segment of all encoders]
  for (std::size_t module = 0; module < model_.encoders.size(); ++module) {
    const std::vector<SegmentPlace> places = segment_places(model_.encoders[module], given);
    for (std::size_t k = 0; k < places.size(); ++k) {
      const std::size_t medium = places[k].medium;
      (medium < per_image.size() ? per_image[medium] : per_clip[medium - per_image.size()]) +=
          work.segments[module].at(k).llm_tokens;
      media.push_back(medium);
    }
  }
  TokenizedSample result = tokenize(text, per_image, per_clip);
  result.feature_begin = segment_begins(work, media, std::move(result.feature_begin));
  return result;
}

}  // namespace entrain::engine
