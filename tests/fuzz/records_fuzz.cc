// JSON files of records: where each record is, and which media it names.
#include <nlohmann/json.hpp>

#include "entrain/core/dataset/media_refs.h"
#include "entrain/core/dataset/records.h"
#include "entrain/core/dataset/text.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  const std::string text(fuzz::text_of(data, size));
  std::int64_t last = 0;
  fuzz::expect_result_or_refusal([&] {
    for (const RecordRange& range : find_records(text, "x")) {
      fuzz::expect(last <= range.begin && range.begin < range.end &&
                       range.end <= static_cast<std::int64_t>(text.size()),
                   "records follow each other inside the text");
      last = range.end;
      const std::string_view record = std::string_view(text).substr(
          static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end - range.begin));
      fuzz::expect_result_or_refusal([&] {
        Json document = parse_json(record, "x");
        if (document.is_object()) {
          const MediaRefs refs = media_of(document, "x");
          refuse_unread(document, "x");
          SampleSizes sizes;
          sizes.images.resize(refs.images.size());
          sample_text(record, "x");
          check_places(record, sizes, "x");
        }
      });
    }
  });
  return 0;
}
