// From a decoded clip to the audio encoder's input: Whisper's log-mel spectrogram.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/ATen.h>

#include "entrain/core/spec/model.h"

#include "entrain/engine/data/step_data.h"

namespace entrain::engine {

inline constexpr int kMelSampleRate = 16'000;  // Hz
inline constexpr int kMelHop = 160;            // samples of a mel frame: 100 frames a second
inline constexpr int kMelWidth = 400;          // samples of a frame's Fourier transform

// Whisper's features of one window of a clip. Whisper's processor pads the window with silence;
// this returns those of the frames with sound, or as many as input_frames() names.
//
// A frame is 400 samples under a periodic Hann window around sample 160 · frame (the signal
// mirrored before the window's start, and after its end if it is full); its power spectrum passes
// the mel bands of mel_filters(). Values are log10 of at least 1e-10, then at least the window's
// maximum - 8, then (x + 4) / 4.
//
// Shapes    samples: [n] at kMelSampleRate, 1 <= n <= 160 · window_frames();
//           result: [input_frames(⌈n / 160⌉), mel_bands] float32.
// Source    Radford et al. 2022 and the WhisperFeatureExtractor of Hugging Face; computed in
//           float64.
at::Tensor log_mel(std::span<const float> samples, const EncoderSpec& encoder);

// Slaney's mel filters from 0 Hz to half the rate: triangles of equal area, linear below 1 kHz and
// logarithmic above.
//
// Shapes    result: [bands, 201] float64, over the frequencies k · 40 Hz.
at::Tensor mel_filters(int bands);

// Window `segment` of a clip, cut as sample_work() counts them: each of `window_seconds`, the last
// one shorter.
//
// Shapes    clip: [n] at kMelSampleRate.
// Requires  0 <= segment < the clip's windows.
SegmentData mel_window(std::span<const float> clip,
                       std::int64_t segment,
                       const EncoderSpec& encoder);

// The result of mel_window() for a clip of `seconds` of silence.
SegmentData silent_window(double seconds, std::int64_t segment, const EncoderSpec& encoder);

}  // namespace entrain::engine
