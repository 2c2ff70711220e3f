#include "entrain/core/report/event_file.h"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

// Fields of tensorflow/core/util/event.proto and summary.proto, as key bytes: number and type.
constexpr char kEventWallTime = 0x09;     // 1, double
constexpr char kEventStep = 0x10;         // 2, varint
constexpr char kEventFileVersion = 0x1A;  // 3, text
constexpr char kEventSummary = 0x2A;      // 5, message
constexpr char kSummaryValue = 0x0A;      // 1, message
constexpr char kValueTag = 0x0A;          // 1, text
constexpr char kValueSimple = 0x15;       // 2, float

constexpr std::string_view kMark = ".entrain-";  // in the names of our files
constexpr std::size_t kHeadBytes = 12;           // length and its checksum
constexpr std::size_t kTailBytes = 4;            // checksum of the message

template <class T>
void put_fixed(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T>
T fixed_at(std::string_view bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

void put_varint(std::string& out, std::uint64_t value) {
  constexpr unsigned kMore = 0x80;
  for (; value >= kMore; value >>= 7U) {
    out += static_cast<char>((value & 0x7FU) | kMore);
  }
  out += static_cast<char>(value);
}

void put_bytes(std::string& out, char key, std::string_view bytes) {
  out += key;
  put_varint(out, bytes.size());
  out += bytes;
}

std::uint32_t masked_crc(std::string_view bytes) {
  constexpr std::uint32_t kDelta = 0xA282EAD8U;
  return std::rotr(crc32c(bytes), 15) + kDelta;
}

// The step of an Event that this file has written; empty if it has none.
std::optional<std::int64_t> step_in(std::string_view event) {
  constexpr std::size_t kStepAt = 1 + sizeof(double);
  if (event.size() <= kStepAt || event[0] != kEventWallTime || event[kStepAt] != kEventStep) {
    return std::nullopt;
  }
  std::uint64_t step = 0;
  unsigned shift = 0;
  for (std::size_t i = kStepAt + 1; i < event.size() && shift < 63; ++i, shift += 7) {
    const auto byte = static_cast<unsigned char>(event[i]);
    step |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if ((byte & 0x80U) == 0) {
      return static_cast<std::int64_t>(step);
    }
  }
  return std::nullopt;
}

// Bytes of a file up to its first record of `first_step` or later, or up to a damaged one.
std::size_t kept_bytes(std::string_view content, std::int64_t first_step) {
  std::size_t offset = 0;
  while (content.size() - offset >= kHeadBytes + kTailBytes) {
    const auto length = fixed_at<std::uint64_t>(content, offset);
    if (length > content.size() - offset - kHeadBytes - kTailBytes) {
      break;
    }
    const std::string_view event = content.substr(offset + kHeadBytes, length);
    const std::size_t end = offset + kHeadBytes + event.size() + kTailBytes;
    if (fixed_at<std::uint32_t>(content, end - kTailBytes) != masked_crc(event) ||
        step_in(event).value_or(-1) >= first_step) {
      break;
    }
    offset = end;
  }
  return offset;
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

[[noreturn]] void fail_writing(const fs::path& path, const std::string& reason) {
  throw SystemFailure(fmt::format("cannot write '{}': {}", path.string(), reason));
}

// TensorBoard reads a folder's files in the order of their names.
fs::path new_file_in(const fs::path& folder, std::int64_t first_step) {
  auto seconds = static_cast<std::int64_t>(wall_clock());
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::int64_t other = 0;
    if (std::sscanf(entry.path().filename().c_str(), "events.out.tfevents.%ld.", &other) == 1 &&
        other >= seconds) {
      seconds = other + 1;
    }
  }
  return folder / fmt::format("events.out.tfevents.{:010}{}{}", seconds, kMark, first_step);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    constexpr std::uint32_t kPolynomial = 0x82F63B78U;  // reflected
    std::array<std::uint32_t, 256> values{};
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      values[i] = i;
      for (int bit = 0; bit < 8; ++bit) {
        values[i] = (values[i] >> 1U) ^ ((values[i] & 1U) != 0 ? kPolynomial : 0);
      }
    }
    return values;
  }();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : bytes) {
    crc = (crc >> 8U) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xFFU];
  }
  return ~crc;
}

std::string version_event(double wall_s) {
  std::string event(1, kEventWallTime);
  put_fixed(event, wall_s);
  put_bytes(event, kEventFileVersion, "brain.Event:2");
  return event;
}

std::string scalars_event(double wall_s, std::int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string one;
    put_bytes(one, kValueTag, tag);
    one += kValueSimple;
    put_fixed(one, static_cast<float>(value));
    put_bytes(summary, kSummaryValue, one);
  }
  std::string event(1, kEventWallTime);
  put_fixed(event, wall_s);
  event += kEventStep;
  put_varint(event, static_cast<std::uint64_t>(step));
  put_bytes(event, kEventSummary, summary);
  return event;
}

std::string event_record(std::string_view event) {
  std::string record;
  put_fixed(record, static_cast<std::uint64_t>(event.size()));
  put_fixed(record, masked_crc(record));
  record += event;
  put_fixed(record, masked_crc(event));
  return record;
}

EventFolder::EventFolder(const fs::path& folder, std::int64_t first_step) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    fail_writing(folder, error.message());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().find(kMark) != std::string::npos) {
      const std::string content = read_file(entry.path());
      const std::size_t kept = kept_bytes(content, first_step);
      if (kept < content.size()) {
        fs::resize_file(entry.path(), kept, error);
      }
    }
    if (error) {
      fail_writing(entry.path(), error.message());
    }
  }
  path_ = new_file_in(folder, first_step);
  errno = 0;
  file_.open(path_, std::ios::binary | std::ios::trunc);
  if (!file_) {
    fail_writing(path_, strerror(errno));
  }
  write(version_event(wall_clock()));
}

void EventFolder::add(std::int64_t step, const Scalars& scalars) {
  write(scalars_event(wall_clock(), step, scalars));
}

void EventFolder::write(std::string_view event) {
  errno = 0;
  file_ << event_record(event);
  file_.flush();
  if (!file_) {
    fail_writing(path_, strerror(errno));
  }
}

}  // namespace entrain
