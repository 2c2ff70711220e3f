// Profiles of layer costs.
#include <nlohmann/json.hpp>

#include "entrain/core/spec/profile.h"

#include "tests/fuzz/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::expect_result_or_refusal([&] {
    const Profile profile =
        profile_from_json(parse_json(fuzz::text_of(data, size), "profile.json"), "profile.json");
    to_json(profile).dump();
  });
  return 0;
}
