// Cost tables; what follows a zero byte is the file of segments.
#include "entrain/core/cost/cost_table.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t end = std::min(text.find('\0'), size);
  const std::string_view segments = end < size ? text.substr(end + 1) : std::string_view();
  fuzz::expect_result_or_refusal(
      [&] { parse_cost_table(text.substr(0, end), "costs.csv", segments, "segments.csv"); });
  return 0;
}
