#include "entrain/core/dataset/audio.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numbers>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <sndfile.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/thread_safety.h"
#include "entrain/core/dataset/audio_formats.h"

namespace entrain {
namespace {

constexpr int kMaxChannels = 32;
constexpr std::int64_t kHead = 42;  // bytes: a FLAC's up to the end of its stream information

struct SoundInput : ByteStream {
  std::string head;  // shown in the place of the first bytes
};

SoundInput& input_of(void* input) {
  return *static_cast<SoundInput*>(input);
}
sf_count_t size_of(void* input) {
  return input_of(input).size;
}
sf_count_t position_of(void* input) {
  return input_of(input).position;
}
sf_count_t seek_input(sf_count_t offset, int whence, void* input) {
  return input_of(input).seek(offset, whence);
}
sf_count_t read_input(void* target, sf_count_t wanted, void* user) {
  SoundInput& input = input_of(user);
  const std::int64_t begin = input.position;
  const std::int64_t count = input.read(target, wanted);
  if (std::cmp_less(begin, input.head.size())) {
    input.head.copy(static_cast<char*>(target),
                    static_cast<std::size_t>(count),
                    static_cast<std::size_t>(begin));
  }
  return count;
}

// What libsndfile reads.
class SndFile final : public AudioFile {
 public:
  enum class Format { kWav, kFlac, kOgg };

  SndFile(Format format, const BytesAt& bytes, std::int64_t size, const std::string& where)
      : AudioFile(format == Format::kWav    ? "WAV"
                  : format == Format::kFlac ? "FLAC"
                                            : "Ogg",
                  where),
        input_{{bytes, size}, std::string(bytes(0, std::min(kHead, size)))},
        ogg_(format == Format::kOgg) {
    switch (format) {
      case Format::kWav:
        open_wav();
        break;
      case Format::kFlac:
        open_flac();
        break;
      case Format::kOgg:
        open_ogg();
        break;
    }
  }

  void rewind() override {
    if (!ogg_) {  // which is where it was opened
      seek(0);
    }
  }

  std::int64_t read(std::int64_t frames, double* target) override {
    const std::int64_t found = ::sf_readf_double(file_.get(), target, frames);
    input_.rethrow_failure();
    return ::sf_error(file_.get()) == SF_ERR_NO_ERROR ? found : 0;
  }

 private:
  // Whether the next read begins there.
  bool seek(std::int64_t frame) {
    const bool done = ::sf_seek(file_.get(), frame, SEEK_SET) == frame;
    input_.rethrow_failure();
    return done;
  }

  // Returns the format that libsndfile found.
  SF_INFO open() {
    SF_INFO found{};
    SF_VIRTUAL_IO calls = {size_of, seek_input, read_input, nullptr, position_of};
    {
      static Mutex mutex;  // libsndfile keeps in a global why it could not open a file
      const MutexLock lock(mutex);
      file_.reset(::sf_open_virtual(&calls, SFM_READ, &found, &input_));
      input_.rethrow_failure();
      if (!file_) {
        damaged(::sf_strerror(nullptr));
      }
    }
    set_layout(found.samplerate, found.channels);
    return found;
  }

  [[noreturn]] void refuse_coding(int format, const char* allowed) const {
    SF_FORMAT_INFO name{format & SF_FORMAT_SUBMASK, "", ""};
    ::sf_command(nullptr, SFC_GET_FORMAT_INFO, &name, sizeof(name));
    refuse(fmt::format("coding '{}'; {} are allowed", name.name, allowed));
  }

  // Of WAV and FLAC. Returns the bytes of a value.
  int open_plain() {
    const int format = open().format;
    constexpr std::array<std::pair<int, int>, 7> kCodings = {{{SF_FORMAT_PCM_U8, 1},
                                                              {SF_FORMAT_PCM_S8, 1},
                                                              {SF_FORMAT_PCM_16, 2},
                                                              {SF_FORMAT_PCM_24, 3},
                                                              {SF_FORMAT_PCM_32, 4},
                                                              {SF_FORMAT_FLOAT, 4},
                                                              {SF_FORMAT_DOUBLE, 8}}};
    const auto* coding = std::find_if(kCodings.begin(), kCodings.end(), [&](const auto& known) {
      return known.first == (format & SF_FORMAT_SUBMASK);
    });
    if (coding == kCodings.end()) {
      refuse_coding(format, "PCM of 8, 16, 24 or 32 bits and floats of 32 or 64 bits");
    }
    return coding->second;
  }

  void open_wav() {
    // A program that writes to a pipe does not know the length when it writes the header, and
    // writes all ones or 0; libsndfile takes 0 for that only if the file's length is missing too.
    const bool unclosed =
        little_endian(std::string_view(input_.head).substr(4, 4)) + 8 != input_.size;
    if (unclosed) {
      input_.head.replace(4, 4, std::string("\x08\0\0\0", 4));
    }
    const int value_bytes = open_plain();
    check_format(value_bytes);
    seek(0);
    const std::int64_t held = input_.size - input_.position;
    const std::int64_t claim = little_endian(input_.bytes(input_.position - 4, 4));
    const std::int64_t bytes = claim == 0xFFFFFFFF || (claim == 0 && unclosed) ? held : claim;
    if (bytes > held) {
      damaged(fmt::format("its header claims {} bytes of data, {} are there", bytes, held));
    }
    set_frames(bytes / (std::int64_t{info().channels} * value_bytes));
    check_wav_end(bytes);
  }

  // libsndfile leaves alone what contradicts the rest of a format.
  void check_format(int value_bytes) {
    std::array<char, 16> format{};
    SF_CHUNK_INFO chunk{"fmt ", 4, format.size(), format.data()};
    ::sf_get_chunk_data(::sf_get_chunk_iterator(file_.get(), &chunk), &chunk);
    input_.rethrow_failure();
    const std::string_view fields(format.data(), format.size());
    const std::int64_t frame_bytes = little_endian(fields.substr(12, 2));
    const std::int64_t bits = little_endian(fields.substr(14, 2));
    if (bits != 8 * value_bytes || frame_bytes != info().channels * value_bytes) {
      damaged(fmt::format(
          "{} bytes a frame for {} channels of {} bits", frame_bytes, info().channels, bits));
    }
  }

  // Only whole chunks and zeros may follow the data.
  void check_wav_end(std::int64_t data_bytes) {
    constexpr std::int64_t kHeader = 8;
    const std::int64_t size = input_.size;
    const std::int64_t data_end = input_.position + data_bytes;
    std::int64_t position = data_end + data_end % 2;  // chunks begin at even offsets
    while (position + kHeader <= size) {
      const std::string_view header = input_.bytes(position, kHeader);
      const std::int64_t chunk = little_endian(header.substr(4));
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
      const std::string_view rest = input_.bytes(position, std::min(kPiece, size - position));
      if (rest.find_first_not_of('\0') != std::string_view::npos) {
        damaged(fmt::format(
            "its header claims {} bytes of data, {} more follow that are neither chunks nor zeros",
            data_bytes,
            size - data_end));
      }
    }
  }

  void open_flac() {
    std::string& head = input_.head;
    if (std::ssize(head) < kHead || (head[4] & 0x7F) != 0 ||
        head.compare(5, 3, "\0\0\x22", 3) != 0) {
      damaged("it does not begin with its stream information");
    }
    // libsndfile believes the 36 bits of the length; without them it reads what is there.
    const std::int64_t frames =
        std::int64_t{head[21] & 0x0F} << 32 | big_endian(std::string_view(head).substr(22, 4));
    head[21] = static_cast<char>(head[21] & 0xF0);
    head.replace(22, 4, 4, '\0');
    open_plain();
    set_frames(frames);
    std::array<double, kMaxChannels> frame{};
    if (!seek(frames - 1) || read(1, frame.data()) != 1) {
      damaged(fmt::format("its header claims {} samples a channel, fewer are there", frames));
    }
    if (read(1, frame.data()) != 0) {
      damaged(fmt::format("its header claims {} samples a channel, more follow", frames));
    }
  }

  // libsndfile takes the length from the first and last pages. It is not asked to seek: crafted
  // Vorbis makes it crash then.
  void open_ogg() {
    input_.size = end_of_ogg(input_.bytes, input_.size, where());
    const SF_INFO found = open();
    const int coding = found.format & SF_FORMAT_SUBMASK;
    if (coding != SF_FORMAT_VORBIS && coding != SF_FORMAT_OPUS) {
      refuse_coding(found.format, "Vorbis and Opus");
    }
    set_frames(found.frames);
  }

  struct Close {
    void operator()(SNDFILE* file) const { ::sf_close(file); }
  };
  SoundInput input_;  // before file_, which reads it
  bool ogg_;
  std::unique_ptr<SNDFILE, Close> file_;
};

std::unique_ptr<AudioFile> open_audio(const BytesAt& bytes,
                                      std::int64_t size,
                                      const std::string& where) {
  using Format = SndFile::Format;
  const std::string head(bytes(0, std::min(kHead, size)));
  if (size >= 12 && head.starts_with("RIFF") && head.compare(8, 4, "WAVE") == 0) {
    return std::make_unique<SndFile>(Format::kWav, bytes, size, where);
  }
  if (head.starts_with("fLaC")) {
    return std::make_unique<SndFile>(Format::kFlac, bytes, size, where);
  }
  if (head.starts_with("OggS")) {
    return std::make_unique<SndFile>(Format::kOgg, bytes, size, where);
  }
  if (begins_mp3(head)) {
    return open_mp3(bytes, size, where);
  }
  throw InvalidInput(fmt::format(
      "{}: no WAV, FLAC, MP3 or Ogg file; convert it: `ffmpeg -i x.m4a x.flac`", where));
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

void AudioFile::damaged(const std::string& message) const {
  throw InvalidInput(fmt::format("{}: damaged {}: {}", where_, kind_, message));
}

void AudioFile::refuse(const std::string& message) const {
  throw InvalidInput(fmt::format("{}: {} of {}", where_, kind_, message));
}

void AudioFile::set_layout(std::int64_t sample_rate, std::int64_t channels) {
  if (sample_rate < 1'000 || sample_rate > 384'000 || channels < 1 || channels > kMaxChannels) {
    refuse(fmt::format("{} channels at {} Hz; 1 to {} channels at 1,000 to 384,000 Hz are allowed",
                       channels,
                       sample_rate,
                       kMaxChannels));
  }
  info_.sample_rate = static_cast<int>(sample_rate);
  info_.channels = static_cast<int>(channels);
}

void AudioFile::set_frames(std::int64_t frames) {
  if (frames < 1 || frames > kMaxAudioFrames) {
    refuse(fmt::format("{} samples a channel; 1 to {} are allowed", frames, kMaxAudioFrames));
  }
  info_.frames = frames;
}

AudioInfo audio_info(const BytesAt& bytes, std::int64_t size, const std::string& where) {
  return open_audio(bytes, size, where)->info();
}

DecodedAudio decode_audio(std::string_view bytes, const std::string& where) {
  const BytesAt in_memory = bytes_in_memory(bytes);
  const auto file = open_audio(in_memory, static_cast<std::int64_t>(bytes.size()), where);
  DecodedAudio audio{file->info(), {}};
  const auto channels = static_cast<std::size_t>(audio.info.channels);
  audio.samples.reserve(std::min(static_cast<std::size_t>(audio.info.frames), bytes.size()));
  constexpr std::int64_t kBlock = 4096;
  std::vector<double> values(kBlock * channels);
  file->rewind();
  for (std::int64_t begin = 0; begin < audio.info.frames; begin += kBlock) {
    const std::int64_t frames = std::min(kBlock, audio.info.frames - begin);
    if (file->read(frames, values.data()) != frames) {
      file->damaged(
          fmt::format("samples {} to {} are not there or not sound", begin, begin + frames));
    }
    for (const double* frame = values.data(); std::ssize(audio.samples) < begin + frames;
         frame += channels) {
      const double sum = std::accumulate(frame, frame + channels, 0.0);
      audio.samples.push_back(static_cast<float>(sum / static_cast<double>(channels)));
      if (!std::isfinite(audio.samples.back())) {
        file->damaged("a sample is no finite number");
      }
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
