#include "entrain/engine/data/feed_messages.h"

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kDigestLength = 32;

class MessageWriter {
 public:
  template <typename Number>
  void number(Number value) {
    static_assert(std::is_arithmetic_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
  }
  void position(const FeedPosition& value) {
    number(value.step);
    number(value.piece);
  }
  void numbers(const std::vector<std::int64_t>& values) {
    number(static_cast<std::uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()),
                  values.size() * sizeof(std::int64_t));
  }
  // float32, of two dimensions.
  void tensor(const at::Tensor& given) {
    const at::Tensor values = given.contiguous();
    ENTRAIN_INVARIANT(values.dim() == 2 && values.scalar_type() == at::kFloat,
                      "a segment that is no float matrix");
    number(values.size(0));
    number(values.size(1));
    bytes_.reserve(bytes_.size() + values.nbytes() + sizeof(std::int64_t) * 2);
    bytes_.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::int64_t count(std::int64_t least, const char* what) {
    const auto value = number<std::int64_t>();
    if (value < least) {
      throw InvalidInput(concat("message of a feed: ", what, " is ", value));
    }
    return value;
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  std::string digest() {
    std::string value = text();
    if (value.size() != kDigestLength) {
      throw InvalidInput(concat("message of a feed: a digest of ", value.size(), " characters"));
    }
    return value;
  }
  FeedPosition position() {
    const std::int64_t step = count(0, "step");
    return {step, count(0, "piece")};
  }
  std::vector<std::int64_t> numbers() {
    const auto size = number<std::uint64_t>();
    if (size > rest_.size() / sizeof(std::int64_t)) {
      throw too_short();
    }
    std::vector<std::int64_t> values(size);
    const std::string_view bytes = take(size * sizeof(std::int64_t));
    if (size > 0) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
    }
    return values;
  }
  at::Tensor tensor() {
    const std::int64_t rows = count(0, "rows");
    const std::int64_t columns = count(0, "columns");
    const auto held = static_cast<std::int64_t>(rest_.size() / sizeof(float));
    if (columns > 0 && rows > held / columns) {
      throw too_short();
    }
    if ((rows == 0) != (columns == 0)) {
      throw InvalidInput("message of a feed: a matrix of one empty side");
    }
    at::Tensor values = at::empty({rows, columns}, at::kFloat);
    if (values.nbytes() > 0) {
      std::memcpy(values.mutable_data_ptr(), take(values.nbytes()).data(), values.nbytes());
    }
    return values;
  }
  void end() const {
    if (!rest_.empty()) {
      throw InvalidInput(concat("message of a feed: ", rest_.size(), " bytes too many"));
    }
  }

 private:
  static InvalidInput too_short() { return InvalidInput("message of a feed: too short"); }
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) {
      throw too_short();
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

void write(MessageWriter& writer, const FeedRun& run) {
  for (const std::string* text : {&run.version, &run.model, &run.index, &run.plan, &run.data}) {
    writer.text(*text);
  }
}
void write(MessageWriter& writer, const FeedHello& hello) {
  write(writer, hello.run);
  writer.number(hello.replica);
  writer.number(hello.lane);
  writer.number(hello.readers);
  writer.position(hello.from);
  writer.number(hello.credit);
}
void write(MessageWriter& writer, const FeedCredit& credit) {
  writer.position(credit.from);
  writer.number(credit.released);
}
void write(MessageWriter& writer, const FeedRefusal& refusal) {
  writer.text(refusal.why);
}
void write(MessageWriter& writer, const FedStep& step) {
  writer.number(step.step);
  writer.text(step.digest);
  writer.number(static_cast<std::uint8_t>(step.sound ? 1 : 0));
}
void write(MessageWriter& /*writer*/, const Undecoded& /*content*/) {}
void write(MessageWriter& writer, const SegmentData& segment) {
  writer.number(segment.rows);
  writer.number(segment.columns);
  writer.tensor(segment.input);
}
void write(MessageWriter& writer, const SampleTokens& text) {
  writer.text(text.kind);
  writer.numbers(text.tokens.ids);
  std::vector<std::int64_t> ends;
  for (const TokenRange& range : text.tokens.targets) {
    ends.push_back(range.begin);
    ends.push_back(range.end);
  }
  writer.numbers(ends);
  writer.numbers(text.tokens.feature_begin);
}
void write(MessageWriter& writer, const PackedPixels& pixels) {
  writer.number(pixels.module);
  writer.number(pixels.rows);
  writer.number(pixels.columns);
  writer.number(pixels.frames);
  writer.text(pixels.values);
}
void write(MessageWriter& writer, const FedPiece& piece) {
  writer.position(piece.position);
  writer.text(piece.digest);
  writer.number(static_cast<std::uint8_t>(piece.content.index()));
  std::visit([&](const auto& content) { write(writer, content); }, piece.content);
}
template <typename Empty>
requires std::is_empty_v<Empty>
void write(MessageWriter& /*writer*/, const Empty& /*message*/) {}

template <typename Message>
std::string written(const Message& message) {
  MessageWriter writer;
  writer.number(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& kind) { write(writer, kind); }, message);
  return writer.take();
}

void read(MessageReader& reader, FeedHello& hello) {
  for (std::string* text :
       {&hello.run.version, &hello.run.model, &hello.run.index, &hello.run.plan, &hello.run.data}) {
    *text = reader.text();
  }
  hello.replica = reader.number<int>();
  hello.lane = reader.number<int>();
  hello.readers = reader.number<int>();
  hello.from = reader.position();
  hello.credit = reader.count(0, "credit");
}
void read(MessageReader& reader, FeedCredit& credit) {
  credit.from = reader.position();
  credit.released = reader.count(0, "credit");
}
void read(MessageReader& reader, FeedRefusal& refusal) {
  refusal.why = reader.text();
}
void read(MessageReader& reader, FedStep& step) {
  step.step = reader.count(0, "step");
  step.digest = reader.digest();
  step.sound = reader.number<std::uint8_t>() != 0;
}
void read(MessageReader& reader, SegmentData& segment) {
  segment.rows = reader.count(0, "patch rows");
  segment.columns = reader.count(0, "patch columns");
  segment.input = reader.tensor();
}
void read(MessageReader& reader, SampleTokens& text) {
  text.kind = reader.text();
  text.tokens.ids = reader.numbers();
  const std::vector<std::int64_t> ends = reader.numbers();
  for (std::size_t i = 0; i + 1 < ends.size(); i += 2) {
    text.tokens.targets.push_back({ends[i], ends[i + 1]});
  }
  text.tokens.feature_begin = reader.numbers();
}
void read(MessageReader& reader, PackedPixels& pixels) {
  pixels.module = reader.number<int>();
  pixels.rows = reader.count(0, "patch rows");
  pixels.columns = reader.count(0, "patch columns");
  pixels.frames = reader.number<int>();
  pixels.values = reader.text();
}
void read(MessageReader& reader, FedPiece& piece);
template <typename Empty>
requires std::is_empty_v<Empty>
void read(MessageReader& /*reader*/, Empty& /*message*/) {}

// Makes `variant` hold alternative `index` and reads it.
template <typename Variant, std::size_t kAt = 0>
void read_alternative(MessageReader& reader, std::size_t index, Variant& variant) {
  if constexpr (kAt == std::variant_size_v<Variant>) {
    throw InvalidInput(concat("message of a feed: unknown kind ", index));
  } else if (index == kAt) {
    read(reader, variant.template emplace<kAt>());
  } else {
    read_alternative<Variant, kAt + 1>(reader, index, variant);
  }
}

void read(MessageReader& reader, FedPiece& piece) {
  piece.position = reader.position();
  piece.digest = reader.digest();
  read_alternative(reader, reader.number<std::uint8_t>(), piece.content);
}

template <typename Message>
Message read_whole(std::string_view bytes) {
  MessageReader reader(bytes);
  Message message;
  read_alternative(reader, reader.number<std::uint8_t>(), message);
  reader.end();
  return message;
}

}  // namespace

std::int64_t credit_of(const FedPiece& piece) {
  constexpr std::int64_t kOverhead = 64;
  if (const auto* segment = std::get_if<SegmentData>(&piece.content); segment != nullptr) {
    return static_cast<std::int64_t>(segment->input.nbytes()) + kOverhead;
  }
  if (const auto* text = std::get_if<SampleTokens>(&piece.content); text != nullptr) {
    return std::ssize(text->tokens.ids) * 8 + kOverhead;
  }
  return kOverhead;
}

std::string message_of(const ToFeed& message) {
  return written(message);
}
std::string message_of(const FromFeed& message) {
  return written(message);
}
ToFeed read_to_feed(std::string_view bytes) {
  return read_whole<ToFeed>(bytes);
}
FromFeed read_from_feed(std::string_view bytes) {
  return read_whole<FromFeed>(bytes);
}

}  // namespace entrain::engine
