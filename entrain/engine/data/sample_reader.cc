#include "entrain/engine/data/sample_reader.h"

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/image.h"

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

// Features of each image by encoder: several vision encoders see the same images.
std::vector<std::vector<std::int64_t>> image_features(const ModelSpec& model,
                                                      const SampleWork& work,
                                                      std::size_t num_images) {
  std::vector<std::vector<std::int64_t>> features;
  for (std::size_t encoder = 0; encoder < model.encoders.size(); ++encoder) {
    if (model.encoders[encoder].modality == Modality::kVision) {
      std::vector<std::int64_t>& counts = features.emplace_back();
      for (std::size_t image = 0; image < num_images; ++image) {
        counts.push_back(work.segments[encoder][image].llm_tokens);
      }
    }
  }
  return features;
}

// feature_begin of every segment, numbered through all encoders in module order: inside an image's
// marks the encoders' features stand one after another.
std::vector<std::int64_t> segment_begins(const std::vector<std::vector<std::int64_t>>& features,
                                         std::vector<std::int64_t> next) {
  std::vector<std::int64_t> begins;
  for (const std::vector<std::int64_t>& counts : features) {
    for (std::size_t image = 0; image < counts.size(); ++image) {
      begins.push_back(next[image]);
      next[image] += counts[image];
    }
  }
  return begins;
}

}  // namespace

SampleReader::SampleReader(const Index& index, const ModelSpec& model, bool blank_images)
    : index_(index), model_(model), blank_images_(blank_images) {}

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

void SampleReader::refuse_audio_and_video(int sample, const SampleWork& work) const {
  for (std::size_t module = 0; module < model_.encoders.size(); ++module) {
    const EncoderSpec& encoder = model_.encoders[module];
    const bool vision = encoder.modality == Modality::kVision;
    if (work.segments[module].size() > (vision ? sizes(sample).images.size() : 0)) {
      throw InvalidInput(concat(where(sample),
                                " has ",
                                vision ? "video" : "audio",
                                " for encoder '",
                                encoder.name,
                                "'; only images can be read for training"));
    }
  }
}

SegmentData SampleReader::segment(int sample, int module, int segment) {
  const EncoderSpec& encoder = model_.encoders.at(static_cast<std::size_t>(module));
  const SampleSizes& given = sizes(sample);
  const auto image = static_cast<std::size_t>(segment);
  const SampleWork planned = sample_work(model_, given);
  refuse_audio_and_video(sample, planned);
  SegmentData data;
  if (blank_images_) {
    data = white_patches(given.images[image], encoder);
  } else {
    const std::string place = concat(where(sample), ", image ", segment);
    const std::vector<std::string>& images = raw(sample).images;
    if (images.size() != given.images.size()) {
      throw InvalidInput(concat(place,
                                ": the shard has ",
                                images.size(),
                                " images, the index says ",
                                given.images.size(),
                                "; make the index anew"));
    }
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
                                "; make the index anew"));
    }
    data = patches_of(decoded, encoder);
  }
  const SegmentWork& work = planned.segments.at(static_cast<std::size_t>(module)).at(image);
  ENTRAIN_INVARIANT(
      data.rows == work.rows && data.columns == work.columns && data.patches.size(0) == work.tokens,
      concat(where(sample),
             ", image ",
             segment,
             ": ",
             data.patches.size(0),
             " patches, planned with ",
             work.tokens));
  return data;
}

SampleTokens SampleReader::text(int sample) {
  const SampleSizes& given = sizes(sample);
  const std::string place = where(sample);
  if (!given.prompt_tokens || !given.response_tokens) {
    throw InvalidInput(concat(place, " has estimated lengths only; make an index from shards"));
  }
  const auto num_images = static_cast<int>(given.images.size());
  const std::string& json = raw(sample).text;
  const SampleText text =
      cut_prompt(sample_text(json, place), num_images, *given.prompt_tokens, place);
  if (response_tokens(text) != *given.response_tokens) {
    throw InvalidInput(concat(place,
                              ": a response of ",
                              response_tokens(text),
                              " tokens, the index says ",
                              *given.response_tokens,
                              "; make the index anew"));
  }
  const SampleWork work = sample_work(model_, given);
  refuse_audio_and_video(sample, work);
  const auto features = image_features(model_, work, given.images.size());
  std::vector<std::int64_t> per_image(given.images.size(), 0);
  for (const std::vector<std::int64_t>& counts : features) {
    for (std::size_t image = 0; image < counts.size(); ++image) {
      per_image[image] += counts[image];
    }
  }
  SampleTokens result{tokenize(text, per_image), kind_of(json, place)};
  result.tokens.feature_begin = segment_begins(features, std::move(result.tokens.feature_begin));
  const std::int64_t length = std::ssize(result.tokens.ids);
  ENTRAIN_INVARIANT(
      length == work.llm_tokens && length - result.tokens.target_begin == work.target_tokens,
      concat(place, ": ", length, " tokens, planned with ", work.llm_tokens));
  return result;
}

}  // namespace entrain::engine
