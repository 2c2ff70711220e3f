// Mixtures of data sets: their tables, and the first steps' draws.
#include <nlohmann/json.hpp>

#include "entrain/core/base/json.h"
#include "entrain/core/dataset/mixture.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::expect_result_or_refusal([&] {
    const Json table = parse_toml(fuzz::text_of(data, size), "mixture.toml");
    const std::vector<MixturePart> parts = read_mixture(table, "mixture.toml");
    fuzz::expect(read_mixture(to_json(parts), "again") == parts, "a mixture reads back unchanged");
    const std::vector<std::string> ids = {"a/0", "a/1", "b/0", "c/0", "c/1", "c/2"};
    Mixture mixture(parts, ids, 4, 1);
    for (const std::int64_t step : {0, 1, 1000}) {
      for (const int row : mixture.rows(step)) {
        fuzz::expect(row >= 0 && row < std::ssize(ids), "a draw is a sample");
      }
    }
  });
  return 0;
}
