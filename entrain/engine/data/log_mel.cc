#include "entrain/engine/data/log_mel.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/workload.h"

namespace entrain::engine {
namespace {

constexpr std::int64_t kFrequencies = kMelWidth / 2 + 1;
constexpr std::int64_t kReach = kMelWidth / 2;  // samples of a frame on either side of its middle

// Slaney's scale: 200/3 Hz a mel up to 1 kHz (15 mel), above it 27 mel for a factor of 6.4.
constexpr double kLinearHertz = 200.0 / 3.0;
constexpr double kBendHertz = 1000.0;
constexpr double kBendMel = kBendHertz / kLinearHertz;
const double kLogStep = std::log(6.4) / 27.0;

double mel_of(double hertz) {
  return hertz < kBendHertz ? hertz / kLinearHertz
                            : kBendMel + std::log(hertz / kBendHertz) / kLogStep;
}

double hertz_of(double mel) {
  return mel < kBendMel ? mel * kLinearHertz : kBendHertz * std::exp((mel - kBendMel) * kLogStep);
}

// `samples` from `kReach` before the first to after the last of `frames`, mirrored at both ends of
// a window of `window` samples, zero beyond the recording.
at::Tensor padded_signal(std::span<const float> samples, std::int64_t frames, std::int64_t window) {
  const auto length = static_cast<std::int64_t>(samples.size());
  at::Tensor signal = at::zeros({(frames - 1) * kMelHop + kMelWidth}, at::kDouble);
  double* values = signal.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < signal.size(0); ++i) {
    const std::int64_t position = i - kReach;
    const std::int64_t mirrored = position < 0        ? -position
                                  : position < window ? position
                                                      : 2 * (window - 1) - position;
    if (mirrored >= 0 && mirrored < length) {
      values[i] = static_cast<double>(samples[static_cast<std::size_t>(mirrored)]);
    }
  }
  return signal;
}

SegmentData window_of(at::Tensor mel) {
  SegmentData data;
  data.input = std::move(mel);
  return data;
}

// Samples of window `segment` of a clip of `length` samples: [first, second).
std::pair<std::int64_t, std::int64_t> window_samples(std::int64_t length,
                                                     std::int64_t segment,
                                                     const EncoderSpec& encoder) {
  const std::int64_t window = window_frames(encoder) * kMelHop;
  const std::int64_t begin = segment * window;
  ENTRAIN_INVARIANT(segment >= 0 && begin < length,
                    concat("window ", segment, " of a clip of ", length, " samples"));
  return {begin, std::min(length, begin + window)};
}

}  // namespace

at::Tensor mel_filters(int bands) {
  // Hz; a band rises to the next edge, falls to the one after
  std::vector<double> edges(static_cast<std::size_t>(bands) + 2);
  const double highest = mel_of(kMelSampleRate / 2.0);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    edges[i] = hertz_of(highest * static_cast<double>(i) / (bands + 1));
  }
  at::Tensor filters = at::zeros({bands, kFrequencies}, at::kDouble);
  auto values = filters.accessor<double, 2>();
  for (std::int64_t band = 0; band < bands; ++band) {
    const auto i = static_cast<std::size_t>(band);
    const double area = 2.0 / (edges[i + 2] - edges[i]);
    for (std::int64_t k = 0; k < kFrequencies; ++k) {
      const double hertz = static_cast<double>(k) * kMelSampleRate / kMelWidth;
      const double rise = (hertz - edges[i]) / (edges[i + 1] - edges[i]);
      const double fall = (edges[i + 2] - hertz) / (edges[i + 2] - edges[i + 1]);
      values[band][k] = area * std::max(0.0, std::min(rise, fall));
    }
  }
  return filters;
}

at::Tensor log_mel(std::span<const float> samples, const EncoderSpec& encoder) {
  const auto length = static_cast<std::int64_t>(samples.size());
  const std::int64_t window = window_frames(encoder);
  ENTRAIN_INVARIANT(length >= 1 && length <= window * kMelHop,
                    concat(length, " samples in a window of ", window, " mel frames"));
  thread_local std::map<int, at::Tensor> by_bands;
  at::Tensor& filters = by_bands[encoder.mel_bands];  // [201, bands]
  if (!filters.defined()) {
    filters = mel_filters(encoder.mel_bands).t().contiguous();
  }
  static const at::Tensor hann = at::hann_window(kMelWidth, at::kDouble);
  const std::int64_t kept = input_frames(encoder, (length + kMelHop - 1) / kMelHop);
  // Frames that overlap the sound: they include the window's maximum.
  const std::int64_t reached = std::min(window, (length - 1 + kReach) / kMelHop + 1);
  const at::Tensor frames =
      padded_signal(samples, reached, window * kMelHop).unfold(0, kMelWidth, kMelHop).mul(hann);
  const at::Tensor spectrum = at::view_as_real(at::fft_rfft(frames));
  const at::Tensor power = spectrum.square().sum(2);
  at::Tensor mel = at::mm(power, filters).clamp_min_(1e-10).log10_();
  if (kept > reached) {
    mel = at::cat({mel, at::full({kept - reached, encoder.mel_bands}, -10.0, at::kDouble)});
  }
  mel.clamp_min_(mel.max().item<double>() - 8.0);
  return mel.narrow(0, 0, kept).add(4.0).div_(4.0).to(at::kFloat);
}

SegmentData mel_window(std::span<const float> clip,
                       std::int64_t segment,
                       const EncoderSpec& encoder) {
  const auto [begin, end] = window_samples(std::ssize(clip), segment, encoder);
  return window_of(
      log_mel(clip.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
              encoder));
}

SegmentData silent_window(double seconds, std::int64_t segment, const EncoderSpec& encoder) {
  const auto [begin, end] = window_samples(mel_frames(seconds) * kMelHop, segment, encoder);
  const std::int64_t frames = input_frames(encoder, (end - begin) / kMelHop);
  return window_of(at::full({frames, encoder.mel_bands}, (-10.0 + 4.0) / 4.0, at::kFloat));
}

}  // namespace entrain::engine
