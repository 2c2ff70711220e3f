#include "entrain/engine/data/feed_messages.h"

#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include <ATen/ATen.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/byte_fields.h"

namespace entrain::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kDigestLength = 32;

struct FeedFormat {
  using TextLength = std::uint32_t;
  [[noreturn]] static void too_short() { throw InvalidInput("message of a feed: too short"); }
};

class MessageWriter : public BytesOut<FeedFormat> {
 public:
  void count(std::int64_t value, std::int64_t /*least*/, const char* /*what*/) { number(value); }
  void digest(const std::string& value) { text(value); }
  void numbers(const std::vector<std::int64_t>& values) {
    number(std::uint64_t{values.size()});
    bytes().append(reinterpret_cast<const char*>(values.data()),
                   values.size() * sizeof(std::int64_t));
  }
  // float32, of two dimensions.
  void tensor(const at::Tensor& given) {
    const at::Tensor values = given.contiguous();
    ENTRAIN_INVARIANT(values.dim() == 2 && values.scalar_type() == at::kFloat,
                      "a segment that is no float matrix");
    number(values.size(0));
    number(values.size(1));
    bytes().append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }
  // Which of its types a variant holds, and the fields of that.
  template <class Variant>
  void alternative(const Variant& variant) {
    number(static_cast<std::uint8_t>(variant.index()));
    std::visit([&](const auto& held) { fields(*this, held); }, variant);
  }
};

class MessageReader : public BytesIn<FeedFormat> {
 public:
  using BytesIn::BytesIn;

  void count(std::int64_t& value, std::int64_t least, const char* what) {
    number(value);
    if (value < least) {
      throw InvalidInput(concat("message of a feed: ", what, " is ", value));
    }
  }
  void digest(std::string& value) {
    text(value);
    if (value.size() != kDigestLength) {
      throw InvalidInput(concat("message of a feed: a digest of ", value.size(), " characters"));
    }
  }
  void numbers(std::vector<std::int64_t>& values) {
    std::uint64_t size = 0;
    number(size);
    if (size > rest().size() / sizeof(std::int64_t)) {
      FeedFormat::too_short();
    }
    values.resize(size);
    const std::string_view bytes = take(size * sizeof(std::int64_t));
    if (size > 0) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
    }
  }
  void tensor(at::Tensor& values) {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    count(rows, 0, "rows");
    count(columns, 0, "columns");
    const auto held = static_cast<std::int64_t>(rest().size() / sizeof(float));
    if (columns > 0 && rows > held / columns) {
      FeedFormat::too_short();
    }
    if ((rows == 0) != (columns == 0)) {
      throw InvalidInput("message of a feed: a matrix of one empty side");
    }
    values = at::empty({rows, columns}, at::kFloat);
    if (values.nbytes() > 0) {
      std::memcpy(values.mutable_data_ptr(), take(values.nbytes()).data(), values.nbytes());
    }
  }
  template <class Variant>
  void alternative(Variant& variant) {
    std::uint8_t index = 0;
    number(index);
    read_alternative(index, variant);
  }
  void end() const {
    if (!rest().empty()) {
      throw InvalidInput(concat("message of a feed: ", rest().size(), " bytes too many"));
    }
  }

 private:
  template <class Variant, std::size_t kAt = 0>
  void read_alternative(std::size_t index, Variant& variant) {
    if constexpr (kAt == std::variant_size_v<Variant>) {
      throw InvalidInput(concat("message of a feed: unknown kind ", index));
    } else if (index == kAt) {
      fields(*this, variant.template emplace<kAt>());
    } else {
      read_alternative<Variant, kAt + 1>(index, variant);
    }
  }
};

template <class Bytes, class Empty>
requires std::is_empty_v<Empty>
void fields(Bytes& /*bytes*/, const Empty& /*message*/) {}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, FeedPosition> position) {
  bytes.count(position.step, 0, "step");
  bytes.count(position.piece, 0, "piece");
}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, FeedHello> hello) {
  bytes.text(hello.run.version);
  bytes.text(hello.run.model);
  bytes.text(hello.run.index);
  bytes.text(hello.run.plan);
  bytes.text(hello.run.data);
  bytes.number(hello.replica);
  bytes.number(hello.lane);
  bytes.number(hello.readers);
  fields(bytes, hello.from);
  bytes.count(hello.credit, 0, "credit");
}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, FeedCredit> credit) {
  fields(bytes, credit.from);
  bytes.count(credit.released, 0, "credit");
}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, FeedRefusal> refusal) {
  bytes.text(refusal.why);
}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, FedStep> step) {
  bytes.count(step.step, 0, "step");
  bytes.digest(step.digest);
  bytes.flag(step.sound);
}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, SegmentData> segment) {
  bytes.count(segment.rows, 0, "patch rows");
  bytes.count(segment.columns, 0, "patch columns");
  bytes.tensor(segment.input);
}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, SampleTokens> text) {
  bytes.text(text.kind);
  bytes.numbers(text.tokens.ids);
  std::vector<std::int64_t> ends;
  for (const TokenRange& range : text.tokens.targets) {
    ends.insert(ends.end(), {range.begin, range.end});
  }
  bytes.numbers(ends);
  if constexpr (Bytes::kReads) {
    for (std::size_t i = 0; i + 1 < ends.size(); i += 2) {
      text.tokens.targets.push_back({ends[i], ends[i + 1]});
    }
  }
  bytes.numbers(text.tokens.feature_begin);
}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, PackedPixels> pixels) {
  bytes.number(pixels.module);
  bytes.count(pixels.rows, 0, "patch rows");
  bytes.count(pixels.columns, 0, "patch columns");
  bytes.number(pixels.frames);
  bytes.text(pixels.values);
}

template <class Bytes>
void fields(Bytes& bytes, FieldsOf<Bytes, FedPiece> piece) {
  fields(bytes, piece.position);
  bytes.digest(piece.digest);
  bytes.alternative(piece.content);
}

template <class Message>
std::string written(const Message& message) {
  MessageWriter writer;
  writer.alternative(message);
  return writer.take();
}

template <class Message>
Message read_whole(std::string_view bytes) {
  MessageReader reader(bytes);
  Message message;
  reader.alternative(message);
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
