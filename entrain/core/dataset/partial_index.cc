#include "entrain/core/dataset/partial_index.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <ctime>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartialMagic = "epart001";
constexpr std::string_view kKeptExtension = ".measured";
constexpr const char* kBegunName = "begun";
constexpr std::size_t kDigestBytes = 32;

// Numbers and texts one after another, in this machine's byte order.
class BytesOut {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(std::string_view value) {
    number(std::uint64_t{value.size()});
    bytes_ += value;
  }
  template <class List, class Each>
  void list(const List& values, const Each& each) {
    number(std::uint64_t{values.size()});
    for (const auto& value : values) {
      each(value);
    }
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what BytesOut wrote; the digest has been checked.
class BytesIn {
 public:
  BytesIn(std::string_view bytes, std::size_t& at) : bytes_(bytes), at_(at) {}

  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }
  template <class Each>
  void list(const Each& each) {
    for (auto left = number<std::uint64_t>(); left > 0; --left) {
      each();
    }
  }

 private:
  std::string_view take(std::uint64_t size) {
    ENTRAIN_INVARIANT(size <= bytes_.size() - at_, "a kept file that ends too early");
    return bytes_.substr(std::exchange(at_, at_ + size), size);
  }

  std::string_view bytes_;
  std::size_t& at_;
};

std::string to_bytes(const MeasuredFile& file) {
  BytesOut out;
  out.number(file.num_samples);
  out.number(file.bytes_of_a_row);
  out.list(file.skipped, [&](const auto& entry) {
    out.text(entry.first);
    out.number(entry.second);
  });
  out.list(file.notes, [&](const std::string& note) { out.text(note); });
  out.text(file.damage);
  return out.take();
}

MeasuredFile read_file_facts(BytesIn& in) {
  MeasuredFile file;
  file.num_samples = in.number<std::int64_t>();
  file.bytes_of_a_row = in.number<std::int64_t>();
  in.list([&] {
    std::string reason = in.text();
    file.skipped[std::move(reason)] = in.number<std::int64_t>();
  });
  in.list([&] { file.notes.push_back(in.text()); });
  file.damage = in.text();
  return file;
}

void append_tokens(const TokenResult& result, BytesOut& out) {
  out.list(result.tokens.ids, [&](std::int64_t id) { out.number(static_cast<std::int32_t>(id)); });
  out.list(result.tokens.targets, [&](const TokenRange& range) {
    out.number(range.begin);
    out.number(range.end);
  });
  out.list(result.tokens.slots, [&](const FeatureSlot& slot) {
    out.number(slot.position);
    out.number(slot.number);
  });
  out.number(result.prompt_chars);
  out.number(result.response_chars);
  out.text(result.error);
}

TokenResult read_tokens(BytesIn& in) {
  TokenResult result;
  in.list([&] { result.tokens.ids.push_back(in.number<std::int32_t>()); });
  in.list([&] {
    const auto begin = in.number<std::int64_t>();
    result.tokens.targets.push_back({begin, in.number<std::int64_t>()});
  });
  in.list([&] {
    const auto position = in.number<std::int64_t>();
    result.tokens.slots.push_back({position, in.number<std::int64_t>()});
  });
  result.prompt_chars = in.number<std::int64_t>();
  result.response_chars = in.number<std::int64_t>();
  result.error = in.text();
  return result;
}

void append_size(const ImageSize& size, BytesOut& out) {
  out.number(size.width);
  out.number(size.height);
}

ImageSize read_size(BytesIn& in) {
  const auto width = in.number<int>();
  return {width, in.number<int>()};
}

MeasuredSample read_sample(BytesIn& in) {
  MeasuredSample sample;
  SampleSizes& sizes = sample.sizes;
  sizes.id = in.text();
  in.list([&] { sizes.images.push_back(read_size(in)); });
  in.list([&] { sizes.audio_seconds.push_back(in.number<double>()); });
  in.list([&] {
    VideoSize& video = sizes.videos.emplace_back();
    video.seconds = in.number<double>();
    if (const auto frames = in.number<std::int64_t>(); frames >= 0) {
      video.frames = frames;
    }
    const ImageSize size = read_size(in);
    if (size.width > 0) {
      video.size = size;
    }
  });
  sizes.prompt_chars = in.number<std::int64_t>();
  sizes.response_chars = in.number<std::int64_t>();
  sizes.prompt_tokens_estimate = in.number<std::int64_t>();
  sizes.response_tokens_estimate = in.number<std::int64_t>();
  const auto prompt_tokens = in.number<std::int64_t>();
  const auto response_tokens = in.number<std::int64_t>();
  if (prompt_tokens >= 0) {
    sizes.prompt_tokens = prompt_tokens;
    sizes.response_tokens = response_tokens;
  }
  const auto offset = in.number<std::int64_t>();
  const auto bytes = in.number<std::int64_t>();
  if (offset >= 0) {
    sizes.location = SampleLocation{"", offset, bytes};
  }
  sample.damage = in.text();
  sample.where = in.text();
  sample.json = in.text();
  in.list([&] { sample.ignored.push_back(in.text()); });
  sample.scattered = in.number<char>() != 0;
  return sample;
}

}  // namespace

std::string to_bytes(const MeasuredSample& sample, bool json) {
  BytesOut out;
  const SampleSizes& sizes = sample.sizes;
  out.text(sizes.id);
  out.list(sizes.images, [&](const ImageSize& size) { append_size(size, out); });
  out.list(sizes.audio_seconds, [&](double seconds) { out.number(seconds); });
  out.list(sizes.videos, [&](const VideoSize& video) {
    out.number(video.seconds);
    out.number(video.frames.value_or(-1));
    append_size(video.size.value_or(ImageSize{}), out);
  });
  out.number(sizes.prompt_chars);
  out.number(sizes.response_chars);
  out.number(sizes.prompt_tokens_estimate);
  out.number(sizes.response_tokens_estimate);
  out.number(sizes.prompt_tokens.value_or(-1));
  out.number(sizes.response_tokens.value_or(-1));
  out.number(sizes.location ? sizes.location->offset : -1);
  out.number(sizes.location ? sizes.location->bytes : -1);
  out.text(sample.damage);
  out.text(sample.where);
  out.text(json ? std::string_view(sample.json) : std::string_view());
  out.list(sample.ignored, [&](const std::string& extension) { out.text(extension); });
  out.number(static_cast<char>(sample.scattered ? 1 : 0));
  return out.take();
}

PartialFileWriter::PartialFileWriter(fs::path path, const MeasuredFile& file)
    : path_(std::move(path)),
      written_(fmt::format("{}.{}", path_.string(), getpid())),
      unfinished_(written_) {
  fs::create_directories(path_.parent_path());
  out_.open(written_, std::ios::binary | std::ios::trunc);
  out_ << kPartialMagic << to_bytes(file);
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
  BytesOut out;
  out.number(static_cast<char>(tokens != nullptr ? 1 : 0));
  if (tokens != nullptr) {
    append_tokens(*tokens, out);
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
  kept->at_ = kPartialMagic.size();
  BytesIn in(content, kept->at_);
  kept->file_ = read_file_facts(in);
  return kept;
}

KeptFile::Sample KeptFile::next() {
  BytesIn in(content_.bytes(), at_);
  Sample sample;
  sample.measured = read_sample(in);
  if (in.number<char>() != 0) {
    sample.tokens = read_tokens(in);
  }
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
