#include "entrain/core/dataset/audio.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numbers>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr std::uint16_t kPcm = 1;
constexpr std::uint16_t kFloat = 3;
constexpr std::uint16_t kExtensible = 0xFFFE;  // the coding stands at the format's byte 24
constexpr std::size_t kChunkHeader = 8;

// Little-endian, whatever the machine.
template <class Unsigned>
Unsigned read_unsigned(std::string_view bytes, std::size_t offset) {
  Unsigned value = 0;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[offset + i]);
    value = static_cast<Unsigned>(value | static_cast<Unsigned>(Unsigned{byte} << (8 * i)));
  }
  return value;
}

struct Layout {
  AudioInfo info;
  std::uint16_t coding = kPcm;
  int bytes_per_value = 0;
  std::size_t data_begin = 0;
  std::int64_t data_bytes = 0;  // whole frames, and what is left of a last one
};

Layout read_format(std::string_view chunk, const std::string& where) {
  if (chunk.size() < 16) {
    throw InvalidInput(
        fmt::format("{}: damaged WAV: a format chunk of {} bytes", where, chunk.size()));
  }
  Layout layout;
  layout.coding = read_unsigned<std::uint16_t>(chunk, 0);
  if (layout.coding == kExtensible && chunk.size() >= 26) {
    layout.coding = read_unsigned<std::uint16_t>(chunk, 24);
  }
  layout.info.channels = read_unsigned<std::uint16_t>(chunk, 2);
  const auto rate = read_unsigned<std::uint32_t>(chunk, 4);
  const auto frame_bytes = read_unsigned<std::uint16_t>(chunk, 12);
  const auto bits = read_unsigned<std::uint16_t>(chunk, 14);
  const bool pcm = layout.coding == kPcm && (bits == 8 || bits == 16 || bits == 24 || bits == 32);
  const bool floats = layout.coding == kFloat && (bits == 32 || bits == 64);
  if (!pcm && !floats) {
    throw InvalidInput(
        fmt::format("{}: WAV of coding {} with {} bits; PCM of 8, 16, 24 or 32 bits and floats of "
                    "32 or 64 bits are allowed",
                    where,
                    layout.coding,
                    bits));
  }
  if (rate < 1'000 || rate > 384'000 || layout.info.channels < 1 || layout.info.channels > 32) {
    throw InvalidInput(fmt::format(
        "{}: WAV of {} channels at {} Hz; 1 to 32 channels at 1,000 to 384,000 Hz are allowed",
        where,
        layout.info.channels,
        rate));
  }
  layout.info.sample_rate = static_cast<int>(rate);
  layout.bytes_per_value = bits / 8;
  if (frame_bytes != layout.info.channels * layout.bytes_per_value) {
    throw InvalidInput(fmt::format("{}: damaged WAV: {} bytes a frame for {} channels of {} bits",
                                   where,
                                   frame_bytes,
                                   layout.info.channels,
                                   bits));
  }
  return layout;
}

// Who writes to a pipe does not know the length when the header leaves, and writes all ones or 0;
// 0 is meant where it fits the length that the file's own header claims.
bool is_streamed(std::uint64_t data_bytes, std::uint64_t riff_bytes, std::int64_t size) {
  return data_bytes == 0xFFFFFFFF ||
         (data_bytes == 0 && std::cmp_not_equal(riff_bytes + kChunkHeader, size));
}

void set_length(std::uint64_t data_bytes,
                std::int64_t size,
                const std::string& where,
                Layout& layout) {
  const auto held = static_cast<std::uint64_t>(size) - layout.data_begin;
  if (data_bytes > held) {
    throw InvalidInput(
        fmt::format("{}: damaged WAV: its header claims {} bytes of data, {} are there",
                    where,
                    data_bytes,
                    held));
  }
  const auto frame_bytes = static_cast<std::uint64_t>(layout.info.channels) *
                           static_cast<std::uint64_t>(layout.bytes_per_value);
  const std::uint64_t frames = data_bytes / frame_bytes;
  if (frames < 1 || frames > static_cast<std::uint64_t>(kMaxAudioFrames)) {
    throw InvalidInput(fmt::format(
        "{}: WAV of {} samples a channel; 1 to {} are allowed", where, frames, kMaxAudioFrames));
  }
  layout.info.frames = static_cast<std::int64_t>(frames);
  layout.data_bytes = static_cast<std::int64_t>(data_bytes);
}

// Walks the chunks up to the data.
Layout read_layout(std::string_view prefix, std::int64_t size, const std::string& where) {
  if (prefix.size() < 12 || prefix.substr(0, 4) != "RIFF" || prefix.substr(8, 4) != "WAVE") {
    throw InvalidInput(fmt::format("{}: no WAV file", where));
  }
  std::optional<Layout> layout;
  std::size_t position = 12;
  while (position + kChunkHeader <= prefix.size()) {
    const std::string_view name = prefix.substr(position, 4);
    const auto bytes = std::size_t{read_unsigned<std::uint32_t>(prefix, position + 4)};
    position += kChunkHeader;
    if (name == "data") {
      if (!layout) {
        throw InvalidInput(fmt::format("{}: damaged WAV: data before its format", where));
      }
      layout->data_begin = position;
      const auto riff_bytes = read_unsigned<std::uint32_t>(prefix, 4);
      const bool streamed = is_streamed(bytes, riff_bytes, size);
      set_length(
          streamed ? static_cast<std::uint64_t>(size) - position : bytes, size, where, *layout);
      return *layout;
    }
    if (name == "fmt ") {
      layout = read_format(prefix.substr(position, bytes), where);
    }
    position += bytes + bytes % 2;  // chunks begin at even offsets
  }
  throw InvalidInput(fmt::format("{}: damaged WAV: it ends before its data", where));
}

double value_at(const Layout& layout, std::string_view bytes, std::size_t offset) {
  if (layout.coding == kFloat) {
    return layout.bytes_per_value == 4
               ? static_cast<double>(
                     std::bit_cast<float>(read_unsigned<std::uint32_t>(bytes, offset)))
               : std::bit_cast<double>(read_unsigned<std::uint64_t>(bytes, offset));
  }
  switch (layout.bytes_per_value) {
    case 1:  // the only unsigned one
      return (static_cast<double>(read_unsigned<std::uint8_t>(bytes, offset)) - 128.0) / 128.0;
    case 2:
      return static_cast<std::int16_t>(read_unsigned<std::uint16_t>(bytes, offset)) / 32768.0;
    case 3: {
      const auto low = read_unsigned<std::uint16_t>(bytes, offset);
      const auto high = static_cast<std::int8_t>(bytes[offset + 2]);
      return (high * 65536.0 + low) / 8388608.0;
    }
    default:
      return static_cast<std::int32_t>(read_unsigned<std::uint32_t>(bytes, offset)) / 2147483648.0;
  }
}

constexpr double kRolloff = 0.99;     // of the lower rate's half
constexpr double kZeroCrossings = 6;  // of the sinc, on either side

// The filter at `seconds` from its middle. `cutoff` in zero crossings a second, `gain` for sums
// over input samples.
double filter_value(double seconds, double cutoff, double gain) {
  const double crossings = cutoff * seconds;
  if (std::abs(crossings) >= kZeroCrossings) {
    return 0.0;
  }
  const double angle = std::numbers::pi * crossings;
  const double taper = std::cos(angle / kZeroCrossings / 2);
  return gain * taper * taper * (angle == 0.0 ? 1.0 : std::sin(angle) / angle);
}

}  // namespace

AudioInfo audio_info(std::string_view prefix, std::int64_t size, const std::string& where) {
  return read_layout(prefix, size, where).info;
}

void check_audio_end(std::string_view prefix,
                     std::int64_t size,
                     const BytesAt& bytes,
                     const std::string& where) {
  const Layout layout = read_layout(prefix, size, where);
  constexpr auto kHeader = static_cast<std::int64_t>(kChunkHeader);
  const auto data_end = static_cast<std::int64_t>(layout.data_begin) + layout.data_bytes;
  std::int64_t position = data_end + data_end % 2;
  while (position + kHeader <= size) {
    const std::string_view header = bytes(position, kHeader);
    const std::int64_t chunk = read_unsigned<std::uint32_t>(header, 4);
    const bool named = std::all_of(header.begin(), header.begin() + 4, [](char character) {
      return character >= ' ' && character <= '~';
    });
    if (!named || chunk > size - position - kHeader) {
      break;
    }
    position += kHeader + chunk + chunk % 2;
  }
  constexpr std::int64_t kPiece = 1 << 16;
  for (; position < size; position += kPiece) {
    const std::string_view rest = bytes(position, std::min(kPiece, size - position));
    if (rest.find_first_not_of('\0') != std::string_view::npos) {
      throw InvalidInput(fmt::format(
          "{}: damaged WAV: its header claims {} bytes of data, {} more follow that are "
          "neither chunks nor zeros",
          where,
          layout.data_bytes,
          size - data_end));
    }
  }
}

DecodedAudio decode_audio(std::string_view bytes, const std::string& where) {
  const Layout layout = read_layout(bytes, static_cast<std::int64_t>(bytes.size()), where);
  DecodedAudio audio{layout.info, std::vector<float>(static_cast<std::size_t>(layout.info.frames))};
  std::size_t position = layout.data_begin;
  for (float& sample : audio.samples) {
    double sum = 0;
    for (int channel = 0; channel < layout.info.channels; ++channel) {
      sum += value_at(layout, bytes, position);
      position += static_cast<std::size_t>(layout.bytes_per_value);
    }
    sample = static_cast<float>(sum / layout.info.channels);
    if (!std::isfinite(sample)) {
      throw InvalidInput(fmt::format("{}: damaged WAV: a sample is no finite number", where));
    }
  }
  return audio;
}

std::vector<float> resample(std::span<const float> samples, int from, int to) {
  ENTRAIN_INVARIANT(from >= 1 && to >= 1, fmt::format("rates {} and {}", from, to));
  if (from == to) {
    return {samples.begin(), samples.end()};
  }
  const int divisor = std::gcd(from, to);
  const std::int64_t up = to / divisor;
  const std::int64_t down = from / divisor;
  const auto length = static_cast<std::int64_t>(samples.size());
  const double cutoff = kRolloff * std::min(from, to);
  const double gain = cutoff / from;
  const auto reach = static_cast<std::int64_t>(std::ceil(kZeroCrossings * from / cutoff));
  // Output m lies at input position m · down / up: a whole sample and one of `up` fractions, each
  // with its own taps.
  const std::int64_t taps = 2 * reach + 1;
  std::vector<double> filters(static_cast<std::size_t>(up * taps));
  for (std::int64_t phase = 0; phase < up; ++phase) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const double distance =
          static_cast<double>(phase) / static_cast<double>(up) - static_cast<double>(tap - reach);
      filters[static_cast<std::size_t>(phase * taps + tap)] =
          filter_value(distance / from, cutoff, gain);
    }
  }
  std::vector<float> result(static_cast<std::size_t>((length * up + down - 1) / down));
  for (std::size_t m = 0; m < result.size(); ++m) {
    const std::int64_t scaled = static_cast<std::int64_t>(m) * down;
    const std::int64_t begin = scaled / up - reach;
    const double* filter = filters.data() + scaled % up * taps;
    double sum = 0;
    for (std::int64_t tap = std::max<std::int64_t>(0, -begin); tap < std::min(taps, length - begin);
         ++tap) {
      sum += filter[tap] * static_cast<double>(samples[static_cast<std::size_t>(begin + tap)]);
    }
    result[m] = static_cast<float>(sum);
  }
  return result;
}

}  // namespace entrain
