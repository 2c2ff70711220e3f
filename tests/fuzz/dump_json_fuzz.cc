// Dumps of ranks, and what the doctor makes of one; several stand one after another, divided by
// zero bytes.
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/report/doctor.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  std::vector<RankDump> dumps;
  for (const std::string_view text : split(fuzz::text_of(data, size), '\0')) {
    fuzz::expect_result_or_refusal([&] {
      RankDump dump = rank_dump_from_json(parse_json(text, "rank.json"), "rank.json");
      if (dumps.empty() || dump.num_ranks == dumps.front().num_ranks) {
        dumps.push_back(std::move(dump));
      }
    });
  }
  if (!dumps.empty()) {
    const Diagnosis diagnosis = diagnose(dumps);
    to_text(diagnosis);
    to_json(diagnosis).dump();
  }
  return 0;
}
