// Files that may be compressed.
#include "entrain/core/base/files.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::expect_result_or_refusal([&] { read_file(file.path()); });
  return 0;
}
