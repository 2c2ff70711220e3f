#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>
#include <mpg123.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/dataset/audio_formats.h"

namespace entrain {
namespace {

constexpr std::int64_t kId3Header = 10;  // bytes of a tag in front, beside its content
constexpr std::int64_t kFrameHead = 64;  // bytes of a frame that hold the start of an Info tag

unsigned mp3_byte(std::string_view bytes, std::size_t offset) {
  return static_cast<unsigned char>(bytes[offset]);
}

bool begins_layer_3(std::string_view head) {
  return head.size() >= 2 && mp3_byte(head, 0) == 0xFF && (mp3_byte(head, 1) & 0xE6U) == 0xE2;
}

// mpg123 decodes. libsndfile, which uses it too, takes a guess for the length of a file without an
// Info tag and leaves out what is behind, and writes to the error stream.
class Mp3File final : public AudioFile {
 public:
  Mp3File(const BytesAt& bytes, std::int64_t size, const std::string& where)
      : AudioFile("MP3", where), input_{bytes, size} {
    int error = MPG123_OK;
    handle_.reset(mpg123_new(nullptr, &error));
    if (!handle_) {
      throw SystemFailure(
          fmt::format("{}: cannot decode MP3: {}", where, mpg123_plain_strerror(error)));
    }
    // Where a tag claims a number of frames, all that follow are counted; else those up to the
    // first of another kind.
    const bool claimed = claims_frames();
    set_flags(claimed ? 0 : MPG123_NO_FRANKENSTEIN);
    check(mpg123_param(handle_.get(), MPG123_REMOVE_FLAGS, MPG123_AUTO_RESAMPLE, 0));
    check(mpg123_replace_reader_handle(handle_.get(), read_input, seek_input, nullptr));
    check(mpg123_open_handle(handle_.get(), &input_));
    long rate = 0;
    int channels = 0;
    int encoding = 0;
    check(mpg123_getformat(handle_.get(), &rate, &channels, &encoding));
    if (encoding != MPG123_ENC_FLOAT_32) {
      throw SystemFailure(fmt::format("{}: mpg123 does not decode to floats here", where));
    }
    mpg123_frameinfo frame{};
    check(mpg123_info(handle_.get(), &frame));
    if (frame.layer != 3) {
      refuse(fmt::format("MPEG layer {}; layer 3 is allowed", frame.layer));
    }
    set_layout(rate, channels);
    const std::int64_t claim = mpg123_framelength(handle_.get());
    check(mpg123_scan(handle_.get()));
    const std::int64_t found = mpg123_framelength(handle_.get());
    if (claimed && found != claim) {
      damaged(fmt::format("its Info tag claims {} MPEG frames, {} are there", claim, found));
    }
    set_frames(mpg123_length(handle_.get()));
  }

  // By opening it anew, since seeking leaves the decoder in another state.
  void rewind() override {
    input_.position = 0;
    set_flags(MPG123_NO_FRANKENSTEIN);
    check(mpg123_open_handle(handle_.get(), &input_));
  }

  std::int64_t read(std::int64_t frames, double* target) override {
    const auto channels = static_cast<std::size_t>(info().channels);
    values_.resize(static_cast<std::size_t>(frames) * channels);
    std::size_t done = 0;  // bytes
    const std::size_t wanted = values_.size() * sizeof(float);
    while (done < wanted) {
      std::size_t count = 0;
      const int result = mpg123_read(handle_.get(),
                                     reinterpret_cast<unsigned char*>(values_.data()) + done,
                                     wanted - done,
                                     &count);
      input_.rethrow_failure();
      done += count;
      if (result != MPG123_OK || count == 0) {
        break;
      }
    }
    const std::size_t found = done / sizeof(float) / channels;
    std::copy_n(values_.begin(), found * channels, target);
    return static_cast<std::int64_t>(found);
  }

 private:
  static mpg123_ssize_t read_input(void* user, void* target, std::size_t wanted) {
    return static_cast<ByteStream*>(user)->read(target, static_cast<std::int64_t>(wanted));
  }
  static off_t seek_input(void* user, off_t offset, int whence) {
    return static_cast<ByteStream*>(user)->seek(offset, whence);
  }
  void set_flags(long more) {
    constexpr long kFlags = MPG123_FORCE_FLOAT | MPG123_GAPLESS | MPG123_QUIET;
    check(mpg123_param(handle_.get(), MPG123_ADD_FLAGS, kFlags | more, 0));
  }

  void check(int result) const {
    input_.rethrow_failure();
    if (result < 0) {
      damaged(mpg123_strerror(handle_.get()));
    }
    if (result != MPG123_OK) {
      damaged(mpg123_plain_strerror(result));
    }
  }

  // Whether the first frame is an Info tag (Xing's in files of variable rate) with a number of
  // frames.
  [[nodiscard]] bool claims_frames() const {
    std::int64_t first = 0;
    const std::string id3(input_.bytes(0, std::min(kId3Header, input_.size)));
    if (id3.starts_with("ID3") && std::ssize(id3) == kId3Header) {
      std::int64_t length = 0;
      for (std::size_t i = 6; i < 10; ++i) {
        length = length << 7 | (mp3_byte(id3, i) & 0x7FU);
      }
      const bool footer = (mp3_byte(id3, 5) & 0x10U) != 0;
      first = std::min(input_.size, length + (footer ? 2 : 1) * kId3Header);
    }
    const std::string_view frame = input_.bytes(first, std::min(kFrameHead, input_.size - first));
    const std::size_t tag = std::min(frame.find("Xing"), frame.find("Info"));
    constexpr std::size_t kFlags = 7;  // their last byte, from the tag's start
    return tag < frame.size() && tag + kFlags < frame.size() && (frame[tag + kFlags] & 1) != 0;
  }

  struct Delete {
    void operator()(mpg123_handle* handle) const { mpg123_delete(handle); }
  };
  ByteStream input_;
  std::unique_ptr<mpg123_handle, Delete> handle_;
  std::vector<float> values_;
};

}  // namespace

bool begins_mp3(std::string_view head) {
  return head.starts_with("ID3") || begins_layer_3(head);
}

std::unique_ptr<AudioFile> open_mp3(const BytesAt& bytes,
                                    std::int64_t size,
                                    const std::string& where) {
  return std::make_unique<Mp3File>(bytes, size, where);
}

}  // namespace entrain
