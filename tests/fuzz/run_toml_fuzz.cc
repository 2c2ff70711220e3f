// Run files; every text that follows a zero byte is a --set.
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"

#include "entrain/engine/train/run_config.h"

#include "tests/fuzz/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::vector<std::string_view> parts = split(fuzz::text_of(data, size), '\0');
  fuzz::expect_result_or_refusal([&] {
    Json document = parse_toml(parts.empty() ? "" : parts[0], "run.toml");
    for (std::size_t i = 1; i < parts.size(); ++i) {
      set_by_path(document, parts[i]);
    }
    const engine::RunConfig config = engine::run_config_from_json(document, "run.toml");
    const Json saved = to_json(config);
    const engine::RunConfig again = engine::run_config_from_json(saved, "config.json");
    fuzz::expect(to_json(again).dump() == saved.dump(), "a configuration reads back unchanged");
  });
  return 0;
}
