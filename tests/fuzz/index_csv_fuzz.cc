// Index and manifest files.
#include "entrain/core/dataset/index.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::expect_result_or_refusal([&] {
    const Index index = parse_index(fuzz::text_of(data, size), "index.csv");
    digest(index);
  });
  return 0;
}
