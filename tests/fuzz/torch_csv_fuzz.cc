// torch's compute-order tables, for a plan of two lanes.
#include "entrain/core/schedule/torch_csv.h"

#include "tests/fuzz/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  static const Plan plan = fuzz::tiny_plan();
  fuzz::expect_result_or_refusal([&] { orders_from_torch_csv(fuzz::text_of(data, size), plan); });
  return 0;
}
