// Tar archives: whole ones as files, runs of members as bytes.
#include "entrain/core/dataset/tar.h"

#include "tests/fuzz/fuzz.h"

namespace {

void walk(entrain::TarReader& reader, std::size_t size) {
  while (const auto member = reader.next()) {
    // A copy, which reads every byte.
    const std::string content(reader.content_at(*member, 0, member->size));
    entrain::fuzz::expect(content.size() <= size, "content lies inside the archive");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::expect_result_or_refusal([&] {
    TarReader reader(std::string(bytes), "members", 0);
    walk(reader, size);
  });
  const fuzz::MemoryFile file(bytes);
  fuzz::expect_result_or_refusal([&] {
    TarReader reader(file.path());
    walk(reader, size);
  });
  return 0;
}

// Checksums are mended after every mutation, or hardly an input would pass them.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                               std::size_t size,
                                               std::size_t max_size,
                                               unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 == 0) {
    return size;
  }
  for (std::size_t begin = 0; begin + 512 <= size; begin += 512) {
    std::uint8_t* header = data + begin;
    if (header[257] != 'u') {
      continue;
    }
    unsigned sum = 8 * ' ';
    for (std::size_t i = 0; i < 512; ++i) {
      sum += i >= 148 && i < 156 ? 0U : header[i];
    }
    std::snprintf(reinterpret_cast<char*>(header + 148), 8, "%06o", sum);
    header[155] = ' ';
  }
  return size;
}
