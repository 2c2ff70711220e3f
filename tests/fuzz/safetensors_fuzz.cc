// Headers of safetensors files.
#include "entrain/core/base/safetensors.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::expect_result_or_refusal([&] {
    const std::uint64_t header_bytes = safetensors_header_bytes(bytes, size, "x.safetensors");
    const std::uint64_t data_bytes = size - kSafetensorsLengthBytes - header_bytes;
    const SafetensorsHeader header = parse_safetensors_header(
        bytes.substr(kSafetensorsLengthBytes, header_bytes), data_bytes, "x.safetensors");
    std::uint64_t filled = 0;
    for (const SafetensorsEntry& entry : header.entries) {
      fuzz::expect(entry.begin == filled && entry.end >= entry.begin && entry.end <= data_bytes,
                   "tensors fill the data in order");
      filled = entry.end;
    }
    fuzz::expect(filled == data_bytes, "tensors fill all of the data");
  });
  // The JSON alone, so that mutation need not keep the length in front of it right.
  fuzz::expect_result_or_refusal([&] { parse_safetensors_header(bytes, 64, "x.safetensors"); });
  return 0;
}
