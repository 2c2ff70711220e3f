// Cluster files.
#include "entrain/core/spec/cluster.h"

#include "tests/fuzz/documents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::expect_result_or_refusal([&] {
    cluster_from_json(parse_toml(fuzz::text_of(data, size), "cluster.toml"), "cluster.toml");
  });
  return 0;
}
