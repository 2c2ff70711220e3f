#include "entrain/core/dataset/partial_index.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/dataset/byte_fields.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartialMagic = "epart001";
constexpr std::string_view kKeptExtension = ".measured";
constexpr const char* kBegunName = "begun";
constexpr std::size_t kDigestBytes = 32;

// Its digest has been checked, so that it is whole.
struct KeptFormat {
  using TextLength = std::uint64_t;
  [[noreturn]] static void too_short() { throw InternalError("a kept file that ends too early"); }
};

template <class Bytes>
void size_fields(Bytes& bytes, FieldsOf<Bytes, ImageSize> size) {
  bytes.number(size.width);
  bytes.number(size.height);
}

// -1 for none.
template <class Bytes>
void optional_field(Bytes& bytes, FieldsOf<Bytes, std::optional<std::int64_t>> field) {
  std::int64_t value = field.value_or(-1);
  bytes.number(value);
  if constexpr (Bytes::kReads) {
    field = value < 0 ? std::nullopt : std::optional(value);
  }
}

template <class Bytes>
void file_fields(Bytes& bytes, FieldsOf<Bytes, MeasuredFile> file) {
  bytes.number(file.num_samples);
  bytes.number(file.bytes_of_a_row);
  std::vector<std::pair<std::string, std::int64_t>> skipped(file.skipped.begin(),
                                                            file.skipped.end());
  bytes.list(skipped, [&](auto& entry) {
    bytes.text(entry.first);
    bytes.number(entry.second);
  });
  if constexpr (Bytes::kReads) {
    file.skipped = {skipped.begin(), skipped.end()};
  }
  bytes.list(file.notes, [&](auto& note) { bytes.text(note); });
  bytes.text(file.damage);
}

template <class Bytes>
void token_fields(Bytes& bytes, FieldsOf<Bytes, TokenResult> result) {
  bytes.list(result.tokens.ids, [&](auto& id) { bytes.template number_as<std::int32_t>(id); });
  bytes.list(result.tokens.targets, [&](auto& range) {
    bytes.number(range.begin);
    bytes.number(range.end);
  });
  bytes.list(result.tokens.slots, [&](auto& slot) {
    bytes.number(slot.position);
    bytes.number(slot.number);
  });
  bytes.number(result.prompt_chars);
  bytes.number(result.response_chars);
  bytes.text(result.error);
}

template <class Bytes>
void video_fields(Bytes& bytes, FieldsOf<Bytes, VideoSize> video) {
  bytes.number(video.seconds);
  optional_field(bytes, video.frames);
  ImageSize size = video.size.value_or(ImageSize{});  // 0x0 for none
  size_fields(bytes, size);
  if constexpr (Bytes::kReads) {
    video.size = size.width > 0 ? std::optional(size) : std::nullopt;
  }
}

// Of its place in the file the offset and the size.
template <class Bytes>
void place_fields(Bytes& bytes, FieldsOf<Bytes, std::optional<SampleLocation>> location) {
  SampleLocation place = location.value_or(SampleLocation{"", -1, -1});
  bytes.number(place.offset);
  bytes.number(place.bytes);
  if constexpr (Bytes::kReads) {
    location = place.offset < 0 ? std::nullopt : std::optional(place);
  }
}

template <class Bytes>
void sample_fields(Bytes& bytes, FieldsOf<Bytes, MeasuredSample> sample, bool with_json) {
  auto& sizes = sample.sizes;
  bytes.text(sizes.id);
  bytes.list(sizes.images, [&](auto& size) { size_fields(bytes, size); });
  bytes.list(sizes.audio_seconds, [&](auto& seconds) { bytes.number(seconds); });
  bytes.list(sizes.videos, [&](auto& video) { video_fields(bytes, video); });
  bytes.number(sizes.prompt_chars);
  bytes.number(sizes.response_chars);
  bytes.number(sizes.prompt_tokens_estimate);
  bytes.number(sizes.response_tokens_estimate);
  optional_field(bytes, sizes.prompt_tokens);
  optional_field(bytes, sizes.response_tokens);
  place_fields(bytes, sizes.location);
  bytes.text(sample.damage);
  bytes.text(sample.where);
  std::string no_json;
  bytes.text(with_json ? sample.json : no_json);
  bytes.list(sample.ignored, [&](auto& extension) { bytes.text(extension); });
  bytes.flag(sample.scattered);
}

}  // namespace

std::string to_bytes(const MeasuredSample& sample, bool json) {
  BytesOut<KeptFormat> out;
  sample_fields(out, sample, json);
  return out.take();
}

PartialFileWriter::PartialFileWriter(fs::path path, const MeasuredFile& file)
    : path_(std::move(path)),
      written_(fmt::format("{}.{}", path_.string(), getpid())),
      unfinished_(written_) {
  fs::create_directories(path_.parent_path());
  BytesOut<KeptFormat> facts;
  file_fields(facts, file);
  out_.open(written_, std::ios::binary | std::ios::trunc);
  out_ << kPartialMagic << facts.take();
  check();
}

PartialFileWriter::~PartialFileWriter() {
  std::error_code gone;
  fs::remove(written_, gone);
}

void PartialFileWriter::check() const {
  if (!out_) {
    throw SystemFailure(
        fmt::format("'{}' cannot be written: is the disk full?", written_.string()));
  }
}

void PartialFileWriter::add(const std::string& sample, const TokenResult* tokens) {
  BytesOut<KeptFormat> out;
  out.flag(tokens != nullptr);
  if (tokens != nullptr) {
    token_fields(out, *tokens);
  }
  out_ << sample << out.take();
}

void PartialFileWriter::finish() {
  out_.flush();
  check();
  out_ << digest_of_file(written_);
  out_.close();
  check();
  std::error_code error;
  fs::rename(written_, path_, error);
  if (error) {
    throw SystemFailure(fmt::format("'{}': {}", path_.string(), error.message()));
  }
}

std::unique_ptr<KeptFile> KeptFile::open(const fs::path& path) {
  if (!fs::is_regular_file(path) || fs::file_size(path) < kPartialMagic.size() + kDigestBytes) {
    return nullptr;
  }
  std::unique_ptr<KeptFile> kept(new KeptFile(path));
  const std::string_view bytes = kept->content_.bytes();
  const std::string_view content = bytes.substr(0, bytes.size() - kDigestBytes);
  if (!content.starts_with(kPartialMagic) ||
      digest_of(content) != bytes.substr(bytes.size() - kDigestBytes)) {
    return nullptr;
  }
  BytesIn<KeptFormat> in(content.substr(kPartialMagic.size()));
  file_fields(in, kept->file_);
  kept->rest_ = in.rest();
  return kept;
}

KeptFile::Sample KeptFile::next() {
  BytesIn<KeptFormat> in(rest_);
  Sample sample;
  sample_fields(in, sample.measured, true);
  bool has_tokens = false;
  in.flag(has_tokens);
  if (has_tokens) {
    token_fields(in, sample.tokens.emplace());
  }
  rest_ = in.rest();
  return sample;
}

PartialIndex::PartialIndex(const fs::path& output)
    : folder_(fs::path(follow_links(output).string() + ".partial")) {}

std::int64_t PartialIndex::begun() {
  const fs::path path = folder_ / kBegunName;
  std::int64_t time = 0;
  if (fs::is_regular_file(path)) {
    const std::string text = read_file(path);
    std::from_chars(text.data(), text.data() + text.size(), time);
  }
  if (time <= 0) {
    time = std::time(nullptr);
    write_file(path, std::to_string(time));
  }
  return time;
}

fs::path PartialIndex::path_of(const FileToMeasure& file, const std::string& settings) const {
  std::error_code error;
  const auto size = fs::file_size(file.path, error);
  const auto changed = fs::last_write_time(file.path, error);
  const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}\n{}",
                                      settings,
                                      fs::absolute(file.path).string(),
                                      error ? 0 : size,
                                      changed.time_since_epoch().count(),
                                      file.columns.text(),
                                      file.image_sizes.string());
  return folder_ / (digest_of(key) + std::string(kKeptExtension));
}

std::unique_ptr<KeptFile> PartialIndex::read(const FileToMeasure& file,
                                             const std::string& settings) const {
  return KeptFile::open(path_of(file, settings));
}

std::shared_ptr<PartialFileWriter> PartialIndex::write(const FileToMeasure& file,
                                                       const std::string& settings,
                                                       const MeasuredFile& measured) const {
  return std::make_shared<PartialFileWriter>(path_of(file, settings), measured);
}

bool PartialIndex::holds_files() const {
  std::error_code missing;
  const fs::directory_iterator entries(folder_, missing);
  return std::any_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return entry.path().extension() == kKeptExtension;
  });
}

void PartialIndex::remove() const {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == kBegunName || name.find(kKeptExtension) != std::string::npos) {
      fs::remove(entry.path(), ignored);
    }
  }
  fs::remove(folder_, ignored);
}

}  // namespace entrain
