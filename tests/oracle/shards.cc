#include "tests/oracle/shards.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <stdexcept>

#include <jpeglib.h>
#include <sndfile.h>
#include <unistd.h>
#include <zlib.h>

namespace entrain::oracle {
namespace {

constexpr std::size_t kBlock = 512;

void put_octal(std::string& header, std::size_t begin, std::size_t digits, std::size_t value) {
  for (std::size_t i = digits; i-- > 0;) {
    header[begin + i] = static_cast<char>('0' + value % 8);
    value /= 8;
  }
}

void put_32(std::string& out, std::uint32_t value) {
  for (const unsigned shift : {24U, 16U, 8U, 0U}) {
    out.push_back(static_cast<char>(value >> shift & 0xFFU));
  }
}

void put_chunk(std::string& out, const std::string& type, const std::string& content) {
  put_32(out, static_cast<std::uint32_t>(content.size()));
  const std::string body = type + content;
  out += body;
  const auto crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  put_32(out, static_cast<std::uint32_t>(crc));
}

std::string deflate(const std::string& bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::string out(size, '\0');
  ::compress(reinterpret_cast<Bytef*>(out.data()),
             &size,
             reinterpret_cast<const Bytef*>(bytes.data()),
             bytes.size());
  out.resize(size);
  return out;
}

// Filter 0 before every row.
std::string plain_rows(std::string_view rows, std::size_t height) {
  const std::size_t size = rows.size() / height;
  std::string out;
  for (std::size_t row = 0; row < height; ++row) {
    out.push_back('\0');
    out += rows.substr(row * size, size);
  }
  return out;
}

// Adam7: seven reduced images, each of every `step`-th pixel from a start.
std::string interlaced_rows(std::string_view rows, std::size_t width, std::size_t height) {
  struct Pass {
    std::size_t x, y, step_x, step_y;
  };
  constexpr std::array<Pass, 7> kPasses = {Pass{0, 0, 8, 8},
                                           Pass{4, 0, 8, 8},
                                           Pass{0, 4, 4, 8},
                                           Pass{2, 0, 4, 4},
                                           Pass{0, 2, 2, 4},
                                           Pass{1, 0, 2, 2},
                                           Pass{0, 1, 1, 2}};
  const std::size_t pixel = rows.size() / height / width;
  std::string out;
  for (const Pass& pass : kPasses) {
    for (std::size_t y = pass.y; y < height && pass.x < width; y += pass.step_y) {
      out.push_back('\0');
      for (std::size_t x = pass.x; x < width; x += pass.step_x) {
        out += rows.substr((y * width + x) * pixel, pixel);
      }
    }
  }
  return out;
}

std::string write_by_libsndfile(int format,
                                const WavOptions& options,
                                const std::function<bool(SNDFILE*)>& write) {
  SF_INFO info{};
  info.samplerate = options.sample_rate;
  info.channels = options.channels;
  info.format = format;
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.write("sound", "");
  SNDFILE* file = ::sf_open(path.c_str(), SFM_WRITE, &info);
  if (file == nullptr || !write(file)) {
    throw std::runtime_error(::sf_strerror(file));
  }
  ::sf_close(file);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TarWriter& TarWriter::add(const std::string& name, std::string_view content, char type) {
  std::string header(kBlock, '\0');
  header.replace(0, name.size(), name);
  put_octal(header, 100, 7, 0644);
  put_octal(header, 108, 7, 0);
  put_octal(header, 116, 7, 0);
  put_octal(header, 124, 11, content.size());
  put_octal(header, 136, 11, 0);
  header[156] = type;
  header.replace(257, 8, std::string("ustar\00000", 8));
  fix_checksum(header, 0);
  bytes_ += header;
  bytes_ += content;
  bytes_.append((kBlock - content.size() % kBlock) % kBlock, '\0');
  return *this;
}

TarWriter& TarWriter::add_pax(const std::string& name, std::string_view content) {
  const std::string record = " path=" + name + "\n";
  std::size_t length = record.size() + 1;
  while (std::to_string(length).size() + record.size() != length) {
    ++length;
  }
  add("PaxHeaders/x", std::to_string(length) + record, 'x');
  return add("short", content);
}

TarWriter& TarWriter::add_gnu_long(const std::string& name, std::string_view content) {
  add("././@LongLink", name + std::string(1, '\0'), 'L');
  return add(name.substr(0, 99), content);
}

std::string TarWriter::archive() const {
  return bytes_ + std::string(2 * kBlock, '\0');
}

void fix_checksum(std::string& archive, std::size_t offset) {
  archive.replace(offset + 148, 8, 8, ' ');
  std::size_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    sum += static_cast<unsigned char>(archive[offset + i]);
  }
  put_octal(archive, offset + 148, 6, sum);
  archive[offset + 154] = '\0';
}

std::string make_png(int width, int height, std::string_view rows, const PngOptions& options) {
  std::string header;
  put_32(header, static_cast<std::uint32_t>(width));
  put_32(header, static_cast<std::uint32_t>(height));
  header.push_back(static_cast<char>(options.depth));
  header.push_back(static_cast<char>(options.colour));
  header.append(2, '\0');
  header.push_back(options.interlaced ? '\1' : '\0');
  std::string out("\x89PNG\r\n\x1A\n", 8);
  put_chunk(out, "IHDR", header);
  if (!options.palette.empty()) {
    put_chunk(out, "PLTE", options.palette);
  }
  if (!options.transparency.empty()) {
    put_chunk(out, "tRNS", options.transparency);
  }
  const auto h = static_cast<std::size_t>(height);
  put_chunk(out,
            "IDAT",
            deflate(options.interlaced ? interlaced_rows(rows, static_cast<std::size_t>(width), h)
                                       : plain_rows(rows, h)));
  put_chunk(out, "IEND", "");
  return out;
}

std::string make_jpeg(int width, int height, std::string_view pixels, const JpegOptions& options) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &buffer, &size);
  encoder.image_width = static_cast<JDIMENSION>(width);
  encoder.image_height = static_cast<JDIMENSION>(height);
  encoder.input_components = options.components;
  encoder.in_color_space = options.components == 1   ? JCS_GRAYSCALE
                           : options.components == 3 ? JCS_RGB
                                                     : JCS_CMYK;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, options.quality, TRUE);
  if (options.progressive) {
    jpeg_simple_progression(&encoder);
  }
  jpeg_start_compress(&encoder, TRUE);
  std::string row(static_cast<std::size_t>(width * options.components), '\0');
  for (int y = 0; y < height; ++y) {
    row = pixels.substr(static_cast<std::size_t>(y) * row.size(), row.size());
    auto* line = reinterpret_cast<JSAMPROW>(row.data());
    jpeg_write_scanlines(&encoder, &line, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string out(reinterpret_cast<char*>(buffer), size);
  jpeg_destroy_compress(&encoder);
  std::free(buffer);
  return out;
}

std::string flat_png(
    int width, int height, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  std::string rows;
  for (int pixel = 0; pixel < width * height; ++pixel) {
    rows.push_back(static_cast<char>(red));
    rows.push_back(static_cast<char>(green));
    rows.push_back(static_cast<char>(blue));
  }
  return make_png(width, height, rows);
}

std::string make_wav(const std::vector<double>& samples, const WavOptions& options) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) {
      out.push_back(static_cast<char>(value >> (8 * i)));
    }
    return out;
  };
  const auto chunk = [&](const char* name, const std::string& content) {
    return name + number(content.size(), 4) + content + std::string(content.size() % 2, '\0');
  };
  const int bytes = options.bits / 8;
  const int coding = options.floats ? 3 : 1;
  const auto frame =
      static_cast<std::uint64_t>(options.channels) * static_cast<std::uint64_t>(bytes);
  const auto rate = static_cast<std::uint64_t>(options.sample_rate);
  std::string format = number(options.extensible ? 0xFFFE : static_cast<std::uint64_t>(coding), 2) +
                       number(static_cast<std::uint64_t>(options.channels), 2) + number(rate, 4) +
                       number(rate * frame, 4) + number(frame, 2) +
                       number(static_cast<std::uint64_t>(options.bits), 2);
  if (options.extensible) {
    format += number(22, 2) + number(static_cast<std::uint64_t>(options.bits), 2) + number(0, 4) +
              number(static_cast<std::uint64_t>(coding), 2) +
              std::string("\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71", 14);
  }
  std::string data;
  for (const double sample : samples) {
    std::uint64_t value = 0;
    if (options.floats) {
      value = bytes == 4 ? std::bit_cast<std::uint32_t>(static_cast<float>(sample))
                         : std::bit_cast<std::uint64_t>(sample);
    } else {
      const double unsigned_offset = bytes == 1 ? 128 : 0;
      value = static_cast<std::uint64_t>(
          std::llround(sample * std::ldexp(1.0, options.bits - 1) + unsigned_offset));
    }
    data += number(value, bytes);
  }
  const std::string content =
      "WAVE" + chunk("fmt ", format) + options.chunk_before + chunk("data", data);
  return "RIFF" + number(content.size(), 4) + content;
}

std::string make_flac(const std::vector<double>& samples, const WavOptions& options) {
  std::vector<int> values;  // its floats are another scale
  for (const double sample : samples) {
    values.push_back(static_cast<int>(std::llround(std::ldexp(sample, 31))));
  }
  const int format = SF_FORMAT_FLAC | (options.bits == 8    ? SF_FORMAT_PCM_S8
                                       : options.bits == 16 ? SF_FORMAT_PCM_16
                                                            : SF_FORMAT_PCM_24);
  return write_by_libsndfile(format, options, [&](SNDFILE* file) {
    return ::sf_write_int(file, values.data(), std::ssize(values)) == std::ssize(values);
  });
}

std::string make_compressed(Compression compression,
                            const std::vector<double>& samples,
                            const WavOptions& options) {
  const int format = compression == Compression::kMp3 ? SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III
                     : compression == Compression::kVorbis ? SF_FORMAT_OGG | SF_FORMAT_VORBIS
                                                           : SF_FORMAT_OGG | SF_FORMAT_OPUS;
  return write_by_libsndfile(format, options, [&](SNDFILE* file) {
    int mode = SF_BITRATE_MODE_VARIABLE;
    ::sf_command(file, SFC_SET_BITRATE_MODE, &mode, sizeof(mode));
    return ::sf_write_double(file, samples.data(), std::ssize(samples)) == std::ssize(samples);
  });
}

std::vector<float> read_by_libsndfile(const std::string& sound) {
  const TemporaryFolder folder;
  SF_INFO info{};
  SNDFILE* file = ::sf_open(folder.write("sound", sound).c_str(), SFM_READ, &info);
  if (file == nullptr) {
    throw std::runtime_error(::sf_strerror(file));
  }
  const auto channels = static_cast<std::size_t>(info.channels);
  std::vector<double> frame(channels);
  std::vector<float> samples;
  while (::sf_readf_double(file, frame.data(), 1) == 1) {
    const double sum = std::accumulate(frame.begin(), frame.end(), 0.0);
    samples.push_back(static_cast<float>(sum / static_cast<double>(channels)));
  }
  ::sf_close(file);
  return samples;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "entrain-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("cannot create " + name);
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::filesystem::path TemporaryFolder::write(const std::string& name,
                                             std::string_view content) const {
  const std::filesystem::path file = path_ / name;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << content;
  return file;
}

std::filesystem::path source_root() {
  return ENTRAIN_SOURCE_ROOT;
}

std::filesystem::path shared_folder() {
  const char* given = std::getenv("ENTRAIN_SHARED");
  const std::filesystem::path folder =
      given != nullptr ? std::filesystem::path(given) : source_root().parent_path() / "shared";
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

}  // namespace entrain::oracle
