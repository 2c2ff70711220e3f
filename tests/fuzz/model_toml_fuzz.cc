// Model files.
#include <nlohmann/json.hpp>

#include "tests/fuzz/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::expect_result_or_refusal([&] {
    const ModelSpec model =
        model_from_json(parse_toml(fuzz::text_of(data, size), "model.toml"), "model.toml");
    const ModelSpec again = model_from_json(to_json(model), "model.json");
    fuzz::expect(to_json(again).dump() == to_json(model).dump(), "a model reads back unchanged");
  });
  return 0;
}
