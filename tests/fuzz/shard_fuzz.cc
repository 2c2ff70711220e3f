// WebDataset shards, sample by sample, and the reading of one at its offset.
#include "entrain/core/dataset/sample_source.h"
#include "entrain/core/dataset/shard.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::expect_result_or_refusal([&] {
    ShardReader reader(file.path());
    for (std::int64_t i = 0; i < reader.num_samples(); ++i) {
      const FoundSample sample = reader.next();
      const RawSample raw = read_sample({file.path(), sample.offset, sample.size}, sample.id);
      fuzz::expect(
          raw.images.size() == sample.images.size() && raw.videos.size() == sample.videos.size(),
          "a sample reads as it was indexed");
    }
  });
  return 0;
}
