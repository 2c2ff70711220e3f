// Makes small tar archives, images and sounds byte by byte, good ones and damaged ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace entrain::oracle {

// Collects members of an archive in memory.
class TarWriter {
 public:
  // `type`: '0' regular file, '5' folder, '2' link, 'x' pax, 'L' GNU long name …
  TarWriter& add(const std::string& name, std::string_view content, char type = '0');
  // A pax header with one path record in front of a member with a short name.
  TarWriter& add_pax(const std::string& name, std::string_view content);
  TarWriter& add_gnu_long(const std::string& name, std::string_view content);

  // Members, and the end mark.
  [[nodiscard]] std::string archive() const;
  [[nodiscard]] const std::string& members() const { return bytes_; }

 private:
  std::string bytes_;
};

// Writes the checksum of the header at `offset` anew, after a test has changed a field.
void fix_checksum(std::string& archive, std::size_t offset);

struct PngOptions {
  int depth = 8;   // bits a channel
  int colour = 2;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
  bool interlaced = false;
  std::string palette = {};       // PLTE content
  std::string transparency = {};  // tRNS content
};

// Rows of a PNG without filter bytes: `rows` is [height, bytes of a row]; interlaced images need
// depth 8.
std::string make_png(int width, int height, std::string_view rows, const PngOptions& options = {});

struct JpegOptions {
  int quality = 95;
  bool progressive = false;
  int components = 3;  // 1 grey, 3 RGB, 4 CMYK
};
std::string make_jpeg(int width,
                      int height,
                      std::string_view pixels,
                      const JpegOptions& options = {});

// One colour everywhere.
std::string flat_png(
    int width, int height, std::uint8_t red, std::uint8_t green, std::uint8_t blue);

struct WavOptions {
  int sample_rate = 16'000;
  int channels = 1;
  int bits = 16;        // 8, 16, 24 or 32; floats: 32 or 64
  bool floats = false;  // else PCM
  bool extensible = false;
  std::string chunk_before = {};  // a whole chunk in front of the data
};

// `samples` in [-1, 1), channels interleaved.
std::string make_wav(const std::vector<double>& samples, const WavOptions& options = {});

// The same by libsndfile, with 8, 16 or 24 bits; the rest of the options says nothing.
std::string make_flac(const std::vector<double>& samples, const WavOptions& options = {});

enum class Compression { kMp3, kVorbis, kOpus };
// The same with losses. An MP3 of variable rate with an Info tag; kOpus needs one of its rates.
std::string make_compressed(Compression compression,
                            const std::vector<double>& samples,
                            const WavOptions& options = {});

// What libsndfile reads of any sound: the mean of all channels.
std::vector<float> read_by_libsndfile(const std::string& sound);

// A fresh folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // Writes a file inside and returns its path.
  std::filesystem::path write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

// The folder of this source tree.
std::filesystem::path source_root();

// The shared data folder: $ENTRAIN_SHARED, else `shared` beside the source tree. Empty when absent.
std::filesystem::path shared_folder();

}  // namespace entrain::oracle
