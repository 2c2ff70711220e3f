// Plans for a small model.
#include <nlohmann/json.hpp>

#include "tests/fuzz/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  static const ModelSpec model = fuzz::tiny_model();
  fuzz::expect_result_or_refusal([&] {
    const Plan plan =
        plan_from_json(parse_json(fuzz::text_of(data, size), "plan.json"), model, "plan.json");
    const Plan again = plan_from_json(to_json(plan), model, "again.json");
    fuzz::expect(to_json(again).dump() == to_json(plan).dump(), "a plan reads back unchanged");
  });
  return 0;
}
