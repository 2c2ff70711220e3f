// Whisper's processor of audio clips.
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/families/processor.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

void read_audio_processor(const Json& document,
                          const std::string& where,
                          const EncoderSpec& audio) {
  HfConfig config(document, where);
  config.expect("feature_extractor_type", "WhisperFeatureExtractor");
  config.expect("feature_size", audio.mel_bands);
  config.expect("sampling_rate", 16'000);
  config.expect("hop_length", 160);
  config.expect("n_fft", 400);
  config.expect("chunk_length", audio.window_seconds);
  config.expect("n_samples", 160 * window_frames(audio));
  config.expect("nb_max_frames", window_frames(audio));
  config.expect("padding_side", "right");
  config.expect("padding_value", 0.0);
  config.expect("dither", 0.0);
  config.expect("do_normalize", false);
  config.harmless({"processor_class", "return_attention_mask"});
  if (audio.pad_windows) {
    config.harmless({"mel_filters"});  // Whisper's, which is known for costs alone
  }
  config.finish();
}

}  // namespace entrain
