#include "entrain/core/spec/media.h"

#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

constexpr std::size_t kShownIds = 3;

Modality modality_of(std::string_view medium) {
  return medium == "audio" ? Modality::kAudio : Modality::kVision;
}

const EncoderSpec* encoder_of(const ModelSpec& model, std::string_view medium) {
  const auto found =
      std::find_if(model.encoders.begin(), model.encoders.end(), [&](const EncoderSpec& encoder) {
        return encoder.modality == modality_of(medium);
      });
  return found == model.encoders.end() ? nullptr : &*found;
}

std::size_t num_media(const SampleSizes& sample, std::string_view medium) {
  return medium == "audio" ? sample.audio_seconds.size()
                           : sample.images.size() + sample.videos.size();
}

std::string what_of(std::string_view medium, std::size_t count) {
  if (medium == "audio") {
    return count == 1 ? "audio clip" : "audio clips";
  }
  return count == 1 ? "image or video" : "images or videos";
}

void check_names(const ModelSpec& model,
                 const std::vector<std::string>& ignored,
                 const MediaOption& option) {
  for (const std::string& name : ignored) {
    const std::string given = fmt::format("{}{}{}", option.before, name, option.after);
    if (std::find(kMediaNames.begin(), kMediaNames.end(), name) == kMediaNames.end()) {
      throw InvalidInput(fmt::format("{}: allowed are audio and image", given));
    }
    if (const EncoderSpec* encoder = encoder_of(model, name)) {
      throw InvalidInput(
          fmt::format("{}: the model has encoder '{}' for them, so they are not ignored",
                      given,
                      encoder->name));
    }
  }
}

}  // namespace

std::vector<std::string> check_media(const ModelSpec& model,
                                     std::span<const SampleSizes> samples,
                                     const std::vector<std::string>& ignored,
                                     const std::string& where,
                                     const MediaOption& option) {
  check_names(model, ignored, option);
  std::vector<std::string> notes;
  for (const std::string_view medium : kMediaNames) {
    if (encoder_of(model, medium) != nullptr) {
      continue;
    }
    std::size_t media = 0;
    std::size_t holders = 0;
    std::vector<std::string> first;
    for (const SampleSizes& sample : samples) {
      const std::size_t here = num_media(sample, medium);
      media += here;
      holders += here > 0 ? 1 : 0;
      if (here > 0 && first.size() < kShownIds) {
        first.push_back(sample.id);
      }
    }
    if (holders == 0) {
      continue;
    }
    const std::string way_out = fmt::format("{}{}{}", option.before, medium, option.after);
    if (std::find(ignored.begin(), ignored.end(), medium) == ignored.end()) {
      throw InvalidInput(fmt::format(
          "{}: {} of {} {} {} ('{}'{}), and the model has no encoder for them: they "
          "would count as text only; use a model with {} encoder, other samples, or ignore "
          "them with {}",
          where,
          holders,
          counted(std::ssize(samples), "sample"),
          holders == 1 ? "has" : "have",
          what_of(medium, 2),
          join(std::span<const std::string>(first), "', '"),
          holders > first.size() ? " …" : "",
          medium == "audio" ? "an audio" : "a vision",
          way_out));
    }
    notes.push_back(fmt::format("{}: {} {} of {} of {} {} ignored ({})",
                                where,
                                media,
                                what_of(medium, media),
                                holders,
                                counted(std::ssize(samples), "sample"),
                                media == 1 ? "is" : "are",
                                way_out));
  }
  return notes;
}

}  // namespace entrain
