// Manifests of checkpoints. A digest guards them against damage, not against malice, so the target
// puts the right one in.
#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"

#include "entrain/engine/checkpoint/manifest.h"

#include "tests/fuzz/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string text(fuzz::text_of(data, size));
  fuzz::expect_result_or_refusal([&] { engine::decode_manifest(text, "manifest.json"); });
  fuzz::expect_result_or_refusal([&] {
    Json document = parse_json(text, "manifest.json");
    if (document.is_object()) {
      document.erase("digest");
      document["digest"] = digest_of(document.dump(1));
      engine::decode_manifest(document.dump(1) + "\n", "manifest.json");
    }
  });
  return 0;
}
