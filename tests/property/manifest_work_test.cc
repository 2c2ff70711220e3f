// The rules from sizes to tokens on every real manifest, against totals of an independent
// implementation (Python, sizes in decimal arithmetic, the published smart_resize).
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/dataset/index.h"
#include "entrain/core/spec/workload.h"

#include "tests/oracle/manifests.h"

namespace entrain {
namespace {

struct ManifestTotals {
  std::string name;
  std::int64_t samples, segments, tokens, attention_pairs, llm_tokens, llm_attention_pairs;
};

// A vision and an audio encoder with their default rules.
const std::vector<ManifestTotals> kManifests = {
    {"audio_small.csv", 1620, 1620, 36435, 912939, 19442, 127964},
    {"coco_val2017_captions.csv", 25014, 25014, 34849932, 50455588592, 9007016, 1681135762},
    {"condensed_movies_video.csv",
     34024,
     4573019,
     5469330724,
     6541319545904,
     1367949362,
     29668750097328},
    {"earnings22_turns.csv", 3500, 9887, 11416126, 16055461928, 6438015, 38749901038},
    {"earnings_calls.csv", 169, 19062, 28468498, 42643721896, 16055247, 862135173270},
    {"librispeech_multiclip.csv", 10646, 26705, 9721700, 5137825180, 5441440, 1704535716},
    {"librispeech_utterances.csv", 5323, 5341, 1944340, 1027565036, 1088288, 161613704},
    {"mathvision_qa.csv", 3040, 3040, 5009180, 15310433296, 1686910, 739443144},
    {"mtg_jamendo_music.csv", 50000, 431396, 609747220, 896097408000, 305771480, 1313508530262},
    {"opencqa_charts.csv", 7724, 7724, 8854252, 18204899664, 2778198, 758973510},
    {"openstax_chem_pages.csv", 176, 1338, 2419368, 7460080576, 1331415, 7694529970},
    {"openstax_chem_sections.csv", 851, 1338, 2419368, 7460080576, 1331383, 2505214230},
    {"qmsum_longtext.csv", 1810, 0, 0, 0, 24939087, 214389750284},
    {"vlm_small.csv", 3667, 3667, 851396, 551800208, 327347, 35563476},
};

TEST(ManifestWork, AgreesWithAnIndependentImplementation) {
  const std::filesystem::path folder = oracle::manifests();
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "no shared data; set ENTRAIN_SHARED to its folder";
  }
  ModelSpec model;
  model.encoders.resize(2);
  model.encoders[0].name = "vision";
  model.encoders[1].name = "audio";
  model.encoders[1].modality = Modality::kAudio;
  for (const ManifestTotals& expected : kManifests) {
    ManifestTotals totals{expected.name, 0, 0, 0, 0, 0, 0};
    for (const SampleSizes& sizes : read_index(folder / expected.name).samples) {
      const SampleWork work = sample_work(model, sizes);
      totals.samples += 1;
      totals.llm_tokens += work.llm_tokens;
      totals.llm_attention_pairs += work.llm_attention_pairs;
      for (const std::vector<SegmentWork>& segments : work.segments) {
        for (const SegmentWork& segment : segments) {
          totals.segments += 1;
          totals.tokens += segment.tokens;
          totals.attention_pairs += segment.attention_pairs;
        }
      }
    }
    EXPECT_EQ(totals.samples, expected.samples) << expected.name;
    EXPECT_EQ(totals.segments, expected.segments) << expected.name;
    EXPECT_EQ(totals.tokens, expected.tokens) << expected.name;
    EXPECT_EQ(totals.attention_pairs, expected.attention_pairs) << expected.name;
    EXPECT_EQ(totals.llm_tokens, expected.llm_tokens) << expected.name;
    EXPECT_EQ(totals.llm_attention_pairs, expected.llm_attention_pairs) << expected.name;
  }
}

}  // namespace
}  // namespace entrain
