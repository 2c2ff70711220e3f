#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/sample_source.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/spec/workload.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::error_of;
using oracle::flat_png;
using oracle::TarWriter;
using oracle::TemporaryFolder;

std::string question(const std::string& prompt, const std::string& response) {
  return R"({"question": ")" + prompt + R"(", "answer": ")" + response + R"("})";
}

ModelSpec small_model() {
  ModelSpec model;
  EncoderSpec vision;
  vision.name = "vision";
  vision.patch_size = 4;
  vision.min_pixels = 64;
  vision.max_pixels = 4096;
  model.encoders = {vision};
  model.llm.max_tokens = 40;
  return model;
}

class BuildIndex : public ::testing::Test {
 protected:
  std::filesystem::path shard(const std::string& name, const TarWriter& writer) {
    return folder_.write("shards/" + name, writer.archive());
  }
  IndexResult build(const std::vector<std::filesystem::path>& data,
                    const IndexOptions& options = {}) {
    return build_index(data, output_, options);
  }
  std::string refused(const std::vector<std::filesystem::path>& data,
                      const IndexOptions& options = {}) {
    const std::string message = error_of<InvalidInput>([&] { build(data, options); });
    EXPECT_FALSE(std::filesystem::exists(output_));
    return message;
  }

  TemporaryFolder folder_;
  std::filesystem::path output_ = folder_.path() / "out" / "index.csv";
};

TEST_F(BuildIndex, MeasuresClipsFromTheirHeaders) {
  const std::string wav = oracle::make_wav(std::vector<double>(40'000), {.sample_rate = 8'000});
  const auto path = shard("train-0.tar",
                          TarWriter()
                              .add("a.json", R"({"text": "seven"})")
                              .add("a.0.wav", wav)  // longer than what is read of a header
                              .add("a.1.flac", oracle::make_flac({0, 0.5, 0}))
                              .add("a.png", flat_png(20, 30, 0, 0, 0)));
  IndexOptions options;
  for (const bool verify : {false, true}) {
    options.verify = verify;
    const IndexResult result = build({path}, options);
    const SampleSizes sample = read_index(output_).samples.at(0);
    EXPECT_EQ(sample.audio_seconds, (std::vector<double>{5.0, 3 / 16e3}));
    EXPECT_EQ(sample.prompt_tokens, prompt_tokens({"", ""}, 3));
    EXPECT_EQ(sample.response_tokens, 6);
    EXPECT_EQ(result.summary.audio_milliseconds.count, 2);
    EXPECT_EQ(result.summary.audio_milliseconds.max, 5'000);
  }
  // An index is verified against its shards too.
  const auto index = output_;
  output_ = folder_.path() / "again.csv";
  EXPECT_NO_THROW(build({index}, options));
}

TEST_F(BuildIndex, MeasuresVideosFromTheirFrames) {
  TarWriter writer;
  writer.add("a.json", R"({"text": "seven", "fps": [2.5, 30]})");
  for (const char* frame : {"a.0.0.png", "a.0.1.png", "a.0.2.png", "a.1.0.png"}) {
    writer.add(frame, flat_png(20, 30, 0, 0, 0));
  }
  const auto path = shard("train-0.tar", writer);
  IndexOptions options;
  for (const bool verify : {false, true}) {
    options.verify = verify;
    build({path}, options);
    const SampleSizes sample = read_index(output_).samples.at(0);
    EXPECT_EQ(
        sample.videos,
        (std::vector<VideoSize>{{1.2, 3, ImageSize{20, 30}}, {1 / 30.0, 1, ImageSize{20, 30}}}));
    EXPECT_EQ(sample.prompt_tokens, prompt_tokens({"", ""}, 2));
  }
  const auto index = output_;
  output_ = folder_.path() / "again.csv";
  EXPECT_NO_THROW(build({index}, options));
  Index changed = read_index(index);
  changed.samples[0].videos[0].frames = 4;
  write_index(changed, index);
  std::filesystem::remove(output_);
  EXPECT_NE(refused({index}, options).find("not of the sizes"), std::string::npos);
}

TEST_F(BuildIndex, RefusesVideosWithoutARateOrOfTwoSizes) {
  const auto message = [&](const char* json, int width) {
    return refused({shard("train-0.tar",
                          TarWriter()
                              .add("a.json", json)
                              .add("a.0.0.png", flat_png(20, 30, 0, 0, 0))
                              .add("a.0.1.png", flat_png(width, 30, 0, 0, 0)))});
  };
  EXPECT_NE(message(R"({"text": "t"})", 20).find("no 'fps'"), std::string::npos);
  EXPECT_NE(message(R"({"text": "t", "fps": 0})", 20).find("fps: 0 given; allowed: above 0"),
            std::string::npos);
  EXPECT_NE(message(R"({"text": "t", "fps": "fast"})", 20).find("fps: \"fast\" given"),
            std::string::npos);
  EXPECT_NE(message(R"({"text": "t", "fps": [1, 2]})", 20).find("2 numbers given for 1 videos"),
            std::string::npos);
  EXPECT_NE(message(R"({"text": "t", "fps": 1})", 21)
                .find("a frame of 21x30 pixels, those before it have 20x30"),
            std::string::npos);
}

TEST_F(BuildIndex, RefusesDamagedClips) {
  const std::string wav = oracle::make_wav(std::vector<double>(40'000));
  const auto path = shard("train-0.tar",
                          TarWriter()
                              .add("a.json", R"({"text": "seven"})")
                              .add("a.wav", wav.substr(0, wav.size() - 2)));
  const std::string message = refused({path});
  EXPECT_NE(message.find("member 'a.wav'"), std::string::npos) << message;
  EXPECT_NE(message.find("claims 80000 bytes of data, 79998 are there"), std::string::npos)
      << message;
}

TEST_F(BuildIndex, MeasuresSamplesOfAFolderOfShards) {
  shard("train-000001.tar",
        TarWriter().add("b.json", R"({"caption": "d\u00e9j\u00e0"})").add("b.cls", "7"));
  shard("train-000000.tar",
        TarWriter()
            .add("a.json", question("what?", "no"))
            .add("a.1.png", flat_png(5, 6, 0, 0, 0))
            .add("a.0.png", flat_png(20, 30, 0, 0, 0)));
  const IndexResult result = build({folder_.path() / "shards"});
  const Index index = read_index(output_);
  EXPECT_EQ(index.samples, result.index.samples);
  EXPECT_EQ(index.text_digest, text_digest());
  ASSERT_EQ(index.samples.size(), 2U);
  const SampleSizes& first = index.samples[0];
  EXPECT_EQ(first.id, "train/a");
  EXPECT_EQ(first.images, (std::vector<ImageSize>{{20, 30}, {5, 6}}));
  EXPECT_EQ(first.prompt_chars, 5);
  EXPECT_EQ(first.prompt_tokens, prompt_tokens({"what?", ""}, 2));
  EXPECT_EQ(first.response_tokens, 3);
  EXPECT_EQ(first.location->shard, "../shards/train-000000.tar");
  const SampleSizes& second = index.samples[1];
  EXPECT_EQ(second.response_chars, 4);
  EXPECT_EQ(second.response_tokens, 7);
  const RawSample raw = read_sample(located(index, *first.location), first.id);
  EXPECT_EQ(raw.images[1], flat_png(5, 6, 0, 0, 0));
  EXPECT_EQ(result.summary.rows, 2);
  EXPECT_EQ(result.summary.images.total, 2);
  EXPECT_EQ(result.summary.pixels.max, 600);
  EXPECT_EQ(result.summary.ignored_members.at(".cls"), 1);
  EXPECT_NE(to_string(result.summary).find("2 samples"), std::string::npos);
}

TEST_F(BuildIndex, RefusesDuplicatesWithinAndAcrossShards) {
  const auto first = shard("train-000000.tar", TarWriter().add("a.json", question("q", "r")));
  const auto second = shard("train-000001.tar", TarWriter().add("a.json", question("q", "r")));
  const auto other = shard("val-000000.tar", TarWriter().add("a.json", question("q", "r")));
  const auto apart = shard("x-0.tar",
                           TarWriter()
                               .add("a.json", question("q", "r"))
                               .add("b.json", question("q", "r"))
                               .add("a.png", "x"));
  const std::string message = refused({first, second});
  EXPECT_NE(message.find("'train/a' stands twice"), std::string::npos) << message;
  EXPECT_NE(message.find("train-000001.tar, offset 0"), std::string::npos) << message;
  refused({first, first});
  refused({apart});
  EXPECT_EQ(build({first, other}).summary.rows, 2);
}

TEST_F(BuildIndex, FollowsTheRuleForEmptyResponses) {
  const auto path = shard(
      "t-0.tar", TarWriter().add("a.json", question("q", "")).add("b.json", question("q", "r")));
  const std::string message = refused({path});
  EXPECT_NE(message.find("response is empty (1): 't/a'"), std::string::npos) << message;
  IndexOptions options;
  options.empty_response = BadSampleRule::kTruncate;
  refused({path}, options);
  options.empty_response = BadSampleRule::kLeaveOut;
  const IndexResult result = build({path}, options);
  EXPECT_EQ(result.summary.rows, 1);
  EXPECT_EQ(result.summary.left_out.size(), 1U);
  EXPECT_EQ(result.summary.reasons.at("left out: response is empty"), 1);
  const auto all_empty = shard("u-0.tar", TarWriter().add("a.json", question("q", "")));
  EXPECT_NE(error_of<InvalidInput>([&] { build({all_empty}, options); }).find("no samples"),
            std::string::npos);
}

TEST_F(BuildIndex, FollowsTheRuleForTooLongSamples) {
  // 16x16 pixels are 16 patches and 4 features; marks and template take 5 tokens.
  const auto path =
      shard("t-0.tar",
            TarWriter()
                .add("fits.json", question("short", "r"))
                .add("long.json",
                     question(std::string(50, 'x') + "\xC3\xA9" + std::string(20, 'y'), "rr"))
                .add("long.png", flat_png(16, 16, 1, 1, 1))
                .add("never.json", question("q", std::string(60, 'r'))));
  IndexOptions options;
  options.model = small_model();
  const std::string message = refused({path}, options);
  EXPECT_NE(message.find("limit 40 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("(2): 't/long', 't/never'"), std::string::npos) << message;

  options.too_long = BadSampleRule::kLeaveOut;
  EXPECT_EQ(build({path}, options).summary.left_out.size(), 2U);

  options.too_long = BadSampleRule::kTruncate;
  options.max_tokens = 33;  // 4 features, 5 marks, 3 of the response: 21 bytes of prompt, which
                            // would begin inside a character
  const IndexResult result = build({path}, options);
  EXPECT_EQ(result.summary.truncated, 1);
  EXPECT_EQ(result.summary.left_out.size(), 1U);
  ASSERT_EQ(result.summary.rows, 2);
  const SampleSizes& cut = result.index.samples[1];
  EXPECT_EQ(cut.id, "t/long");
  EXPECT_EQ(cut.prompt_chars, 20);
  EXPECT_EQ(cut.prompt_tokens, 25);
  EXPECT_EQ(sample_work(*options.model, cut).llm_tokens, 32);
  EXPECT_EQ(result.summary.llm_tokens->max, 32);

  // An index of the truncated samples, cut once more from the same shard.
  options.max_tokens = 22;
  const auto first = output_.parent_path() / "first.csv";
  std::filesystem::rename(output_, first);
  const IndexResult again = build({first}, options);
  EXPECT_EQ(again.index.samples[1].prompt_tokens, 15);
  EXPECT_EQ(again.index.samples[1].prompt_chars, 10);
}

TEST_F(BuildIndex, NeedsAModelForALimit) {
  const auto path = shard("t-0.tar", TarWriter().add("a.json", question("q", "r")));
  IndexOptions options;
  options.max_tokens = 10;
  EXPECT_NE(refused({path}, options).find("needs a model"), std::string::npos);
}

TEST_F(BuildIndex, VerifyFindsDamageBehindAGoodHeader) {
  std::string damaged = flat_png(16, 16, 1, 2, 3);
  damaged[45] = static_cast<char>(damaged[45] ^ 1);
  const auto path = shard("t-0.tar",
                          TarWriter()
                              .add("a.json", question("q", "r"))
                              .add("b.json", question("q", "r"))
                              .add("b.png", damaged));
  EXPECT_EQ(build({path}).summary.rows, 2);
  const auto index = output_.parent_path() / "copy.csv";
  std::filesystem::rename(output_, index);
  IndexOptions options;
  options.verify = true;
  for (const auto& data : {path, index}) {
    const std::string message = refused({data}, options);
    EXPECT_NE(message.find("t-0.tar"), std::string::npos) << message;
    EXPECT_NE(message.find("damaged PNG"), std::string::npos) << message;
  }
}

TEST_F(BuildIndex, RefusesHalfFilesWithoutVerify) {
  const std::string png = flat_png(40, 40, 1, 2, 3);
  const std::string jpeg = oracle::make_jpeg(80, 80, std::string(6'400, 'x'), {.components = 1});
  const std::string wav = oracle::make_wav(std::vector<double>(400));
  const std::string flac = oracle::make_flac(std::vector<double>(40'000));
  const std::vector<std::pair<std::string, std::string>> files = {
      {"flac", flac.substr(0, flac.size() - 20)},
      {"png", png.substr(0, png.size() / 2)},
      {"jpg", jpeg.substr(0, jpeg.size() - 40)},
      {"wav", wav.substr(0, wav.size() / 2)},
      {"wav", wav + std::string(40, 'x')}};
  for (const auto& [extension, bytes] : files) {
    const auto path = shard(
        "t-0.tar", TarWriter().add("a.json", question("q", "r")).add("a." + extension, bytes));
    const std::string message = refused({path});
    EXPECT_NE(message.find("member 'a." + extension + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("--damaged leave-out"), std::string::npos) << message;
  }
}

TEST_F(BuildIndex, LeavesOutWhatIsDamagedAndListsIt) {
  const std::string png = flat_png(40, 40, 1, 2, 3);
  TarWriter writer;
  writer.add("a.json", question("q", "r")).add("a.png", png.substr(0, 60));
  writer.add("b.json", question("q", "r")).add("b.png", png);
  writer.add("c.png", png);
  writer.add("d.json", R"({"question": "q", "answer": null})");
  writer.add("e.json", question("q", ""));
  const auto path = shard("t-0.tar", writer);
  const std::string whole = TarWriter().add("x.json", question("q", "r")).archive();
  const auto cut = folder_.write("shards/u-0.tar", whole.substr(0, whole.size() - 700));
  IndexOptions options;
  options.damaged = BadSampleRule::kLeaveOut;
  options.empty_response = BadSampleRule::kLeaveOut;
  const IndexResult result = build({path, cut}, options);
  EXPECT_EQ(result.summary.rows, 1);
  EXPECT_EQ(result.index.samples[0].id, "t/b");
  const std::vector<LeftOut>& left_out = result.summary.left_out;
  ASSERT_EQ(left_out.size(), 5U);
  EXPECT_EQ(left_out[0].id, "t/a");
  EXPECT_NE(left_out[0].reason.find("damaged PNG"), std::string::npos);
  EXPECT_EQ(left_out[1].id, "t/c");
  EXPECT_NE(left_out[1].reason.find("no 'c.json'"), std::string::npos);
  EXPECT_EQ(left_out[2].id, "t/d");
  EXPECT_EQ(left_out[3].id, "t/e");
  EXPECT_EQ(left_out[4].id, cut.string());
  EXPECT_EQ(result.summary.reasons.at("left out: cannot be read"), 3);
  EXPECT_EQ(result.summary.reasons.at("left out: a file that is damaged as a whole"), 1);
  const std::string text = to_string(result.summary);
  EXPECT_NE(text.find("'t/a': "), std::string::npos) << text;
  std::filesystem::remove(output_);
  // Nothing but damage: the reason is said.
  const std::string message = refused({cut}, options);
  EXPECT_NE(message.find("no samples that may stay; left out are 1"), std::string::npos) << message;
  options.damaged = BadSampleRule::kTruncate;
  refused({path}, options);
}

TEST_F(BuildIndex, ShowsTenOfWhatIsLeftOut) {
  TarWriter writer;
  writer.add("keep.json", question("q", "r"));
  for (int i = 10; i < 25; ++i) {
    writer.add("s" + std::to_string(i) + ".json", "{}");
  }
  IndexOptions options;
  options.damaged = BadSampleRule::kLeaveOut;
  const IndexSummary summary = build({shard("t-0.tar", writer)}, options).summary;
  EXPECT_EQ(summary.left_out.size(), 15U);
  const std::string text = to_string(summary);
  EXPECT_NE(text.find("'t/s19'"), std::string::npos) << text;
  EXPECT_EQ(text.find("'t/s20'"), std::string::npos) << text;
  EXPECT_NE(text.find("and 5 more"), std::string::npos) << text;
}

TEST_F(BuildIndex, RefusesMediaWithoutAnEncoder) {
  const auto path = shard("t-0.tar",
                          TarWriter()
                              .add("a.json", question("q", "r"))
                              .add("b.json", question("q", "r"))
                              .add("b.wav", oracle::make_wav({0, 0.5, 0})));
  IndexOptions options;
  options.model = small_model();
  const std::string message = refused({path}, options);
  EXPECT_NE(message.find("1 of 2 samples has audio clips ('t/b')"), std::string::npos) << message;
  options.ignore_modality = {"audio"};
  const IndexResult result = build({path}, options);
  ASSERT_EQ(result.summary.notes.size(), 1U);
  EXPECT_NE(result.summary.notes[0].find("1 audio clip of 1 of 2 samples is ignored"),
            std::string::npos);
  EXPECT_EQ(result.index.samples[1].audio_seconds.size(), 1U);  // the index still holds its size
  std::filesystem::remove(output_);
  options.model.reset();
  EXPECT_NE(refused({path}, options).find("need a model"), std::string::npos);
}

TEST_F(BuildIndex, CountsScatteredSamplesAndSkippedMembers) {
  const IndexResult result = build({shard("t-0.tar",
                                          TarWriter()
                                              .add("./b.png", flat_png(8, 8, 0, 0, 0))
                                              .add("./a.json", question("q", "r"))
                                              .add("./b.json", question("q", "r"))
                                              .add("./README", "x"))});
  EXPECT_EQ(result.summary.scattered, 1);
  EXPECT_EQ(result.summary.ignored_members.at("no extension"), 1);
  EXPECT_EQ(result.index.samples[0].id, "t/b");
  EXPECT_EQ(result.index.samples[0].images.size(), 1U);
}

TEST_F(BuildIndex, VerifyComparesTheImagesWithTheirIndex) {
  const auto path =
      shard("t-0.tar",
            TarWriter().add("a.json", question("q", "r")).add("a.png", flat_png(16, 16, 1, 2, 3)));
  Index index = build({path}).index;
  index.samples[0].images[0] = {16, 17};
  const auto changed = output_.parent_path() / "changed.csv";
  write_index(index, changed);
  std::filesystem::remove(output_);
  IndexOptions options;
  options.verify = true;
  EXPECT_NE(refused({changed}, options).find("not of the sizes"), std::string::npos);
}

TEST_F(BuildIndex, NamesShardMemberAndOffsetOfDamage) {
  const auto image =
      shard("t-0.tar", TarWriter().add("a.json", question("q", "r")).add("a.png", "\x89PNG"));
  const std::string message = refused({image});
  EXPECT_NE(message.find("t-0.tar, offset 1024, member 'a.png'"), std::string::npos) << message;
  EXPECT_EQ(message.find("sample 't/a': "), 0U) << message;
  const auto text = shard("u-0.tar", TarWriter().add("a.json", "{\"question\": 1}"));
  EXPECT_NE(refused({text}).find("u-0.tar, offset 0, member 'a.json'"), std::string::npos);
  const std::string whole = TarWriter().add("a.json", question("q", "r")).archive();
  const auto cut = folder_.write("v-0.tar", whole.substr(0, whole.size() - 700));
  EXPECT_NE(refused({cut}).find("truncated"), std::string::npos);
}

TEST_F(BuildIndex, ReadsImagesWithLongMetadata) {
  std::string jpeg = oracle::make_jpeg(33, 9, std::string(297, 'x'), {.components = 1});
  std::string segment("\xFF\xE1\xFF\xFF", 4);
  segment += std::string(65'533, 'm');
  jpeg.insert(2, segment + segment);
  const auto path =
      shard("t-0.tar", TarWriter().add("a.json", question("q", "r")).add("a.jpg", jpeg));
  EXPECT_EQ(build({path}).index.samples[0].images[0], (ImageSize{33, 9}));
}

TEST_F(BuildIndex, MergesIndexFilesAndShards) {
  const auto first =
      folder_.write("first.csv",
                    "sample_id,n_images,image_sizes,prompt_chars,response_chars,"
                    "prompt_tokens_estimate,response_tokens_estimate,source,licence\n"
                    "a,1,3x4,1,2,3,4,web,free\n");
  const auto second = folder_.write("second.csv",
                                    "sample_id,n_images,image_sizes,prompt_chars,response_chars,"
                                    "prompt_tokens_estimate,response_tokens_estimate,note,source\n"
                                    "b,0,,1,2,3,4,\"x,y\",book\n");
  const auto third = shard("t-0.tar", TarWriter().add("c.json", question("q", "r")));
  const Index index = build({first, second, third}).index;
  EXPECT_EQ(index.extra_columns, (std::vector<std::string>{"source", "licence", "note"}));
  EXPECT_EQ(index.extra_values,
            (std::vector<std::vector<std::string>>{
                {"web", "free", ""}, {"book", "", "x,y"}, {"", "", ""}}));
  EXPECT_EQ(read_index(output_).samples, index.samples);
  EXPECT_FALSE(index.samples[0].prompt_tokens.has_value());
  EXPECT_TRUE(index.samples[2].prompt_tokens.has_value());
  std::filesystem::remove(output_);
  EXPECT_NE(refused({first, first}).find("'a' stands twice"), std::string::npos);
}

TEST_F(BuildIndex, RefusesLengthsOfAnotherTokenizer) {
  const auto other =
      folder_.write("other.csv",
                    "sample_id,n_images,image_sizes,prompt_chars,response_chars,"
                    "prompt_tokens,response_tokens,text_digest\na,0,,1,2,3,4,another\n");
  const auto path = shard("t-0.tar", TarWriter().add("c.json", question("q", "r")));
  EXPECT_NE(refused({other, path}).find("another tokenizer"), std::string::npos);
}

TEST_F(BuildIndex, RefusesWhatIsNoData) {
  refused({});
  EXPECT_NE(refused({folder_.path() / "none"}).find("does not exist"), std::string::npos);
  std::filesystem::create_directory(folder_.path() / "empty");
  EXPECT_NE(refused({folder_.path() / "empty"}).find("holds no shards"), std::string::npos);
  EXPECT_NE(refused({folder_.write("x.zip", "")}).find("neither a shard"), std::string::npos);
}

TEST_F(BuildIndex, ReproducesTheSharedManifest) {
  if (oracle::shared_folder().empty()) {
    GTEST_SKIP() << "the shared data folder is absent";
  }
  const std::filesystem::path data = oracle::shared_folder() / "data";
  const Index manifest = read_index(data / "manifests" / "vlm_small.csv");
  std::map<std::string, SampleSizes> expected;
  for (const SampleSizes& sample : manifest.samples) {
    expected[sample.id] = sample;
  }
  const Index index = build({data / "vlm-small"}).index;
  ASSERT_EQ(index.samples.size(), 3'667U);
  for (const SampleSizes& sample : index.samples) {
    const SampleSizes& given = expected.at(sample.id);
    EXPECT_EQ(sample.images, given.images) << sample.id;
    EXPECT_EQ(sample.prompt_chars, given.prompt_chars) << sample.id;
    EXPECT_EQ(sample.response_chars, given.response_chars) << sample.id;
  }
}

TEST_F(BuildIndex, TakesATextFileAsTheCaptionWhereThereIsNoJson) {
  const auto path = shard("train-0.tar",
                          TarWriter()
                              .add("a.png", flat_png(20, 30, 0, 0, 0))
                              .add("a.txt", "a \"red\" h\xC3\xA4t\n")
                              .add("b.txt", "not this")
                              .add("b.json", R"({"text": "seven"})")
                              .add("c.txt", "\xFF"));
  EXPECT_NE(refused({path}).find("not UTF-8"), std::string::npos);
  IndexOptions options;
  options.damaged = BadSampleRule::kLeaveOut;
  const IndexResult result = build({path}, options);
  const Index index = read_index(output_);
  ASSERT_EQ(index.samples.size(), 2U);
  EXPECT_EQ(index.samples[0].response_chars, 11);
  EXPECT_EQ(index.samples[0].prompt_chars, 0);
  EXPECT_EQ(index.samples[1].response_chars, 5);
  EXPECT_EQ(result.summary.ignored_members.at(".txt"), 1);
  const RawSample raw = read_sample(located(index, *index.samples[0].location), "train/a");
  EXPECT_EQ(sample_text(raw.text, "").response, "a \"red\" h\xC3\xA4t");
}

TEST_F(BuildIndex, IsTheSameForAnyNumberOfThreads) {
  std::vector<std::filesystem::path> data;
  for (int number = 0; number < 9; ++number) {
    TarWriter writer;
    const std::string file = std::to_string(number);
    for (int sample = 0; sample < 10 * number; ++sample) {
      const std::string name = file + "-" + std::to_string(sample);
      writer.add(name + ".png", sample == 25 ? "no image" : flat_png(8 + sample, 9, 0, 0, 0));
      writer.add(name + ".json", question("what?", "file " + file));
    }
    data.push_back(shard("train-" + file + ".tar", writer));
  }
  data.insert(data.begin() + 4, folder_.write("shards/broken.tar", "no archive"));
  IndexOptions options;
  const std::string message = refused(data, options);
  std::string expected;
  for (const int threads : {1, 2, 5, 30}) {
    options.threads = threads;
    options.damaged = BadSampleRule::kRefuse;
    EXPECT_EQ(refused(data, options), message);
    options.damaged = BadSampleRule::kLeaveOut;
    const IndexResult result = build(data, options);
    EXPECT_EQ(result.summary.left_out.size(), 7U);
    EXPECT_EQ(result.summary.left_out[0].id, "train/3-25");
    const std::string content = read_file(output_);
    expected = expected.empty() ? content : expected;
    EXPECT_EQ(content, expected);
    std::filesystem::remove(output_);
  }
}

TEST_F(BuildIndex, DropsNoMediumInSilence) {
  folder_.write("data/x.png", flat_png(20, 30, 0, 0, 0));
  const auto refused_record = [&](const std::string& record, const std::string& reason) {
    const std::string message = refused({folder_.write("data/a.jsonl", record)});
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  const std::string turns =
      R"("conversations": [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "a"}])";
  refused_record(R"({"img": "x.png", "text": "a"})", "`img` names a file that nothing reads");
  refused_record(R"({"frames": ["X.JPG"], "text": "a"})", "`frames` names a file");
  refused_record("{" + turns + "}", "1 places for image in the text, and the sample has 0");
  refused_record(R"({"image": ["x.png", "x.png"], )" + turns + "}", "and the sample has 2");
  refused_record(R"({"text": "<audio> hm"})", "1 places for audio");
  refused_record(R"({"messages": [{"role": "user", "content": [{"type": "image"}]},
                                  {"role": "assistant", "content": "a"}]})"
                 "\n",
                 "JSON");
  build({folder_.write("data/a.jsonl", R"({"image": "x.png", "id": "y.png", )" + turns + "}")});
  build({folder_.write("data/a.jsonl", R"({"image": "x.png", "text": "no place"})")});
}

TEST_F(BuildIndex, NamesKeepDataSetsApart) {
  const auto one = folder_.write("one/train.jsonl", R"({"id": 1, "text": "a"})");
  const auto two = folder_.write("two/train.jsonl",
                                 "{\"id\": 1, \"text\": \"bb\"}\n{\"id\": 1, \"text\": \"c\"}");
  EXPECT_NE(refused({one, two}).find("names keep data sets apart: a=PATH"), std::string::npos);
  build({"chart=" + one.string(), "vqa-2.0=" + two.string()});
  const Index index = read_index(output_);
  const std::vector<std::string> ids = {"chart/train/1", "vqa-2.0/train/1", "vqa-2.0/train/1#2"};
  const std::vector<std::string> answers = {"a", "bb", "c"};
  ASSERT_EQ(index.samples.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(index.samples[i].id, ids[i]);
    const RawSample raw = read_sample(located(index, *index.samples[i].location), ids[i]);
    EXPECT_EQ(sample_text(raw.text, "").response, answers[i]);
  }
  EXPECT_THROW(read_sample(located(index, *index.samples[0].location), "chart/train/2"),
               InvalidInput);
  const auto tar = shard("train-0.tar", TarWriter().add("a.json", R"({"text": "t"})"));
  const auto merged = folder_.path() / "merged.csv";
  build_index({"all=" + output_.string(), "t=" + tar.string()}, merged, {});
  const Index both = read_index(merged);
  EXPECT_EQ(both.samples.at(0).id, "all/chart/train/1");
  EXPECT_EQ(both.samples.at(3).id, "t/train/a");
  for (const SampleSizes& sample : both.samples) {
    EXPECT_NO_THROW(read_sample(located(both, *sample.location), sample.id));
  }
}

TEST_F(BuildIndex, ReadsRecordsWhoseMediaLieInAFolder) {
  folder_.write("media/a/x.png", flat_png(20, 30, 0, 0, 0));
  folder_.write("media/y.wav", oracle::make_wav(std::vector<double>(800), {.sample_rate = 8'000}));
  const auto records = folder_.write("data/llava.json", R"([
    {"id": "one", "image": "a/x.png", "audio": ["y.wav"],
     "conversations": [{"from": "human", "value": "<image>\nwhat?"},
                       {"from": "gpt", "value": "this"}]},
    {"id": "one", "messages": [{"role": "user", "content": "hello"},
                               {"role": "assistant", "content": [{"type": "text", "text": "ah"}]}]},
    {"image": "none.png", "text": "nothing there"}])");
  IndexOptions options;
  options.media = folder_.path() / "media";
  EXPECT_NE(refused({records}, options).find("none.png': No such file"), std::string::npos);
  options.damaged = BadSampleRule::kLeaveOut;
  const IndexResult result = build({records}, options);
  EXPECT_EQ(result.summary.left_out.at(0).id, "llava/2");
  const Index index = read_index(output_);
  ASSERT_EQ(index.samples.size(), 2U);
  const SampleSizes& first = index.samples[0];
  EXPECT_EQ(first.id, "llava/one");
  EXPECT_EQ(first.images, (std::vector<ImageSize>{{20, 30}}));
  EXPECT_EQ(first.audio_seconds, (std::vector<double>{0.1}));
  EXPECT_EQ(first.prompt_chars, 5);
  EXPECT_EQ(first.response_chars, 4);
  EXPECT_EQ(index.samples[1].id, "llava/one#2");
  EXPECT_EQ(first.location->media, "../media");
  for (const SampleSizes& sample : index.samples) {
    const RawSample raw = read_sample(located(index, *sample.location), sample.id);
    EXPECT_EQ(raw.images.size(), sample.images.size());
    EXPECT_EQ(raw.audio.size(), sample.audio_seconds.size());
  }
  // The index elsewhere, and merged with others, still finds them.
  std::filesystem::create_directories(folder_.path() / "elsewhere" / "deep");
  copy_index(output_, folder_.path() / "elsewhere" / "deep" / "copy.csv");
  const Index copy = read_index(folder_.path() / "elsewhere" / "deep" / "copy.csv");
  EXPECT_EQ(digest(copy), digest(index));
  EXPECT_EQ(read_sample(located(copy, *copy.samples[0].location), "llava/one").images.at(0),
            flat_png(20, 30, 0, 0, 0));
}

}  // namespace
}  // namespace entrain
