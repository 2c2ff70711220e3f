#include "entrain/engine/data/read_ahead.h"

#include <future>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/dataset/shard.h"
#include "entrain/core/spec/workload.h"

#include "tests/oracle/engine/small_samples.h"
#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using oracle::small_images_archive;
using oracle::small_images_model;
using oracle::SmallSamplesTest;
using oracle::TarWriter;
using oracle::TemporaryFolder;

class ReadAheadTest : public SmallSamplesTest {};

TEST_F(ReadAheadTest, GivesEverySegmentAndTextWithItsPlannedLength) {
  ReadAhead reader(index_, model_, {});
  const auto data = reader.queue(all_needs());
  std::int64_t patches = 0;
  for (const SegmentNeed& need : all_needs().segments) {
    const SegmentData segment = data->segment(need.module, need.sample, need.segment);
    EXPECT_NEAR(red_of(segment), expected_red(need.sample, need.segment), 1e-5F);
    patches += segment.rows * segment.columns;
  }
  for (int sample = 0; sample < 6; ++sample) {
    const TokenizedSample& text = data->text(sample);
    const SampleWork work = sample_work(model_, index_.samples[static_cast<std::size_t>(sample)]);
    EXPECT_EQ(std::ssize(text.ids), work.llm_tokens);
    EXPECT_EQ(text.num_targets(), work.target_tokens);
    EXPECT_EQ(text.feature_begin.size(), work.segments[0].size());
    EXPECT_EQ(data->kind(sample), "small");
    EXPECT_EQ(detokenize({text.ids.begin() + text.targets.front().begin, text.ids.end()}),
              "number " + std::to_string(sample));
  }
  EXPECT_EQ(data->times().images, std::ssize(all_needs().segments));
  EXPECT_EQ(data->times().patches, patches);
}

TEST_F(ReadAheadTest, MapsTheBatchToTheIndex) {
  ReadAhead reader(index_, model_, {});
  const auto data = reader.queue({{4, 2}, {{0, 1, 0}, {0, 0, 0}}, {1}});
  EXPECT_NEAR(red_of(data->segment(0, 0, 0)), expected_red(4, 0), 1e-5F);
  EXPECT_NEAR(red_of(data->segment(0, 1, 0)), expected_red(2, 0), 1e-5F);
  EXPECT_EQ(data->text(1).feature_begin.size(), 1U);
}

TEST_F(ReadAheadTest, NeverLocksUpWhateverTheOrderOfUseAndTheMemory) {
  ReadAheadOptions options;
  options.memory_bytes = 1;
  ReadAhead reader(index_, model_, options);
  const auto first = reader.queue(all_needs());
  const auto second = reader.queue(all_needs());
  const auto needs = all_needs();
  for (auto need = needs.segments.rbegin(); need != needs.segments.rend(); ++need) {
    EXPECT_NEAR(red_of(second->segment(0, need->sample, need->segment)),
                expected_red(need->sample, need->segment),
                1e-5F);
    EXPECT_NEAR(red_of(first->segment(0, need->sample, need->segment)),
                expected_red(need->sample, need->segment),
                1e-5F);
  }
  EXPECT_EQ(first->text(5).feature_begin.size(), 0U);
}

TEST_F(ReadAheadTest, ChecksWholeStepsWhateverTheMemory) {
  ReadAheadOptions options;
  options.check_steps = true;
  for (const std::int64_t memory : {std::int64_t{1}, std::int64_t{1} << 30}) {
    options.memory_bytes = memory;
    ReadAhead reader(index_, model_, options);
    const auto first = reader.queue(all_needs());
    const auto second = reader.queue(all_needs());
    EXPECT_EQ(second->problem(), std::nullopt);
    EXPECT_EQ(first->problem(), std::nullopt);
    for (const auto& data : {second, first}) {  // what was dropped is decoded again
      for (const SegmentNeed& need : all_needs().segments) {
        EXPECT_NEAR(red_of(data->segment(need.module, need.sample, need.segment)),
                    expected_red(need.sample, need.segment),
                    1e-5F);
      }
    }
    EXPECT_LE(reader.ready_bytes(), memory);
  }
}

// Whatever the number of threads and the memory, in any order of use, with steps dropped midway.
TEST_F(ReadAheadTest, ManyThreadsDecodeWhatOneDoes) {
  Rng rng(3);
  for (const int threads : {1, 2, 3, 8}) {
    for (int turn = 0; turn < 40; ++turn) {
      ReadAheadOptions options;
      options.threads = threads;
      options.check_steps = turn % 2 == 1;
      options.memory_bytes = turn % 4 < 2 ? 1 : bytes_of(all_needs(), 4);
      ReadAhead reader(index_, model_, options);
      std::vector<std::shared_ptr<StepData>> steps;
      for (int step = 0; step < 3; ++step) {
        steps.push_back(reader.queue(all_needs()));
      }
      for (const auto& data : steps) {
        std::vector<SegmentNeed> order = all_needs().segments;
        rng.shuffle(std::span(order));
        order.resize(turn % 5 == 0 ? 3 : order.size());  // the rest is dropped
        if (options.check_steps) {
          EXPECT_EQ(data->problem(), std::nullopt);
        }
        for (const SegmentNeed& need : order) {
          ASSERT_NEAR(red_of(data->segment(need.module, need.sample, need.segment)),
                      expected_red(need.sample, need.segment),
                      1e-5F);
        }
        EXPECT_EQ(data->kind(static_cast<int>(rng.below(6))), "small");
        EXPECT_GT(data->times().decoding.count(), 0);
      }
      steps.clear();
      EXPECT_LE(reader.ready_bytes(), bytes_of(all_needs(), 7));
    }
  }
}

TEST_F(ReadAheadTest, NamesTheFirstPieceThatCannotBeRead) {
  const SampleLocation& third = *index_.samples[3].location;
  overwrite(third.offset + 512 + 45, "not pixels");
  ReadAheadOptions options;
  options.check_steps = true;
  options.memory_bytes = 1;
  ReadAhead reader(index_, model_, options);
  const auto data = reader.queue(all_needs());
  const std::optional<std::string> problem = data->problem();
  ASSERT_TRUE(problem.has_value());
  EXPECT_NE(problem->find("'train/s3' in '"), std::string::npos) << *problem;
  EXPECT_EQ(reader.queue({{0, 1}, {{0, 1, 0}}, {0}})->problem(), std::nullopt);
}

TEST_F(ReadAheadTest, DecodesAheadUntilItsMemoryIsFull) {
  ReadAheadOptions options;
  options.memory_bytes = bytes_of(all_needs(), 3);
  ReadAhead reader(index_, model_, options);
  const auto data = reader.queue(all_needs());
  wait_until_ready(reader, options.memory_bytes);
  std::filesystem::remove(shard_);
  for (std::size_t i = 0; i < 3; ++i) {
    const SegmentNeed need = all_needs().segments[i];
    EXPECT_NO_THROW(data->segment(0, need.sample, need.segment));
  }
  error_of<InvalidInput>([&] { data->segment(0, 4, 0); });
}

TEST_F(ReadAheadTest, DecodesTheNextStepBeforeItIsAskedFor) {
  ReadAhead reader(index_, model_, {});
  const auto first = reader.queue(all_needs());
  const auto second = reader.queue(all_needs());
  wait_until_ready(reader, 2 * bytes_of(all_needs(), 7));
  std::filesystem::remove(shard_);
  EXPECT_NO_THROW(second->segment(0, 4, 0));
  EXPECT_NO_THROW(second->text(5));
}

TEST_F(ReadAheadTest, BlankImagesAreWhiteAndKeepTheirSizes) {
  ReadAheadOptions options;
  options.blank = true;
  ReadAhead reader(index_, model_, options);
  const auto data = reader.queue(all_needs());
  const SegmentData segment = data->segment(0, 3, 1);
  const SegmentWork work = sample_work(model_, index_.samples[3]).segments[0][1];
  EXPECT_EQ(segment.input.size(0), work.tokens);
  EXPECT_EQ(segment.rows, work.rows);
  EXPECT_TRUE(at::equal(segment.input, at::ones_like(segment.input)));
}

TEST_F(ReadAheadTest, NamesSampleShardAndOffsetOfWhatCannotBeDecoded) {
  const SampleLocation& place = *index_.samples[2].location;
  overwrite(place.offset + 512 + 60, "garbage in the pixels");
  ReadAhead reader(index_, model_, {});
  const auto data = reader.queue(all_needs());
  const std::string message = error_of<InvalidInput>([&] { data->segment(0, 2, 0); });
  EXPECT_NE(message.find("sample 'train/s2'"), std::string::npos) << message;
  EXPECT_NE(message.find("train-000000.tar"), std::string::npos) << message;
  EXPECT_NE(message.find("offset " + std::to_string(place.offset)), std::string::npos) << message;
  EXPECT_NO_THROW(data->segment(0, 3, 0));  // others are not harmed
}

TEST_F(ReadAheadTest, NoticesAShardThatChangedSinceItWasIndexed) {
  std::string archive = small_images_archive();
  const SampleLocation& place = *index_.samples[1].location;
  const std::size_t answer = archive.find("number 1", static_cast<std::size_t>(place.offset));
  archive.replace(answer, 9, "num 1\"   ");  // a shorter answer in as many bytes
  folder_.write("train-000000.tar", archive);
  Index other = index_;
  other.samples[2].images[0] = {25, 16};
  other.samples[3].id = "train/other";
  ReadAhead reader(other, model_, {});
  const auto data = reader.queue(all_needs());
  EXPECT_NE(error_of<InvalidInput>([&] { data->text(1); }).find("response"), std::string::npos);
  EXPECT_NE(error_of<InvalidInput>([&] { data->segment(0, 2, 0); }).find("32x16"),
            std::string::npos);
  EXPECT_NE(error_of<InvalidInput>([&] { data->text(3); }).find("'train/s3' stands there"),
            std::string::npos);
}

TEST_F(ReadAheadTest, CutsPromptsAsTheIndexSays) {
  IndexOptions options;
  options.model = model_;
  options.too_long = BadSampleRule::kTruncate;
  options.max_tokens = 30;
  make_index(small_images_archive(), options);
  ReadAhead reader(index_, model_, {});
  const auto data = reader.queue({{0}, {}, {0}});
  EXPECT_EQ(data->text(0).ids.size(), 30U);
  const TokenizedSample& text = data->text(0);
  const std::string words = detokenize(text.ids);
  EXPECT_TRUE(words.ends_with("these?number 0")) << words;
}

TEST_F(ReadAheadTest, RefusesVideoForAnEncoderAndClipsThatAreNotThere) {
  index_.samples[0].videos = {{2.0, std::nullopt, ImageSize{16, 16}}};
  index_.samples[2].audio_seconds = {1.0};
  EncoderSpec audio = model_.encoders[0];
  audio.name = "audio";
  audio.modality = Modality::kAudio;
  model_.encoders.push_back(audio);
  ReadAhead reader(index_, model_, {});
  const auto data = reader.queue({{0, 2}, {{0, 0, 1}, {1, 1, 0}}, {0}});
  EXPECT_NE(error_of<InvalidInput>([&] { data->segment(0, 0, 1); }).find("video"),
            std::string::npos);
  EXPECT_NE(error_of<InvalidInput>([&] { data->segment(1, 1, 0); }).find("have 0 clips"),
            std::string::npos);
  EXPECT_NE(error_of<InvalidInput>([&] { data->text(0); }).find("video"), std::string::npos);
}

TEST_F(ReadAheadTest, RefusesIndicesWithoutShardsOrWithOtherLengths) {
  Index sizes_only = index_;
  sizes_only.samples[0].location.reset();
  sizes_only.samples[1].prompt_tokens.reset();
  ReadAhead reader(sizes_only, model_, {});
  const auto data = reader.queue(all_needs());
  error_of<InvalidInput>([&] { data->segment(0, 0, 0); });
  error_of<InvalidInput>([&] { data->text(1); });
  Index other = index_;
  other.text_digest = "another";
  error_of<InvalidInput>([&] { ReadAhead(other, model_, {}); });
  ReadAheadOptions options;
  options.memory_bytes = 0;
  error_of<InvalidInput>([&] { ReadAhead(index_, model_, options); });
}

TEST_F(ReadAheadTest, RefusesWhatWasNotQueuedOrWasTaken) {
  ReadAhead reader(index_, model_, {});
  const auto data = reader.queue({{0, 1}, {{0, 0, 0}}, {}});
  data->segment(0, 0, 0);
  error_of<InternalError>([&] { data->segment(0, 0, 0); });
  error_of<InternalError>([&] { data->segment(0, 1, 0); });
  error_of<InternalError>([&] { data->text(0); });
  error_of<InternalError>([&] { reader.queue({{0}, {{0, 0, 0}, {0, 0, 0}}, {}}); });
  error_of<InternalError>([&] { reader.queue({{0}, {{0, 1, 0}}, {}}); });
}

TEST_F(ReadAheadTest, SeveralEncodersPlaceTheirFeaturesSideBySide) {
  EncoderSpec second = model_.encoders[0];
  second.name = "detail";
  second.merge_size = 1;
  model_.encoders.push_back(second);
  ReadAhead reader(index_, model_, {});
  const auto data = reader.queue({{1}, {}, {0}});
  const TokenizedSample& text = data->text(0);
  const auto& segments = sample_work(model_, index_.samples[1]).segments;
  ASSERT_EQ(text.feature_begin.size(), 4U);
  EXPECT_EQ(text.feature_begin[2], text.feature_begin[0] + segments[0][0].llm_tokens);
  EXPECT_EQ(text.feature_begin[1],
            text.feature_begin[2] + segments[1][0].llm_tokens + 2);  // end and start marks
  EXPECT_EQ(text.feature_begin[3], text.feature_begin[1] + segments[0][1].llm_tokens);
}

TEST_F(ReadAheadTest, StopsWhileDecoding) {
  for (int round = 0; round < 50; ++round) {
    ReadAheadOptions options;
    options.memory_bytes = round % 2 == 0 ? 1 : 1 << 20;
    auto reader = std::make_unique<ReadAhead>(index_, model_, options);
    auto kept = reader->queue(all_needs());
    reader->queue(all_needs());  // dropped at once
    if (round % 3 == 0) {
      kept->segment(0, 3, 1);
    }
    reader.reset();
  }
}

TEST_F(ReadAheadTest, DroppedStepsGiveTheirMemoryBack) {
  ReadAheadOptions options;
  options.memory_bytes = bytes_of(all_needs(), 7);
  ReadAhead reader(index_, model_, options);
  for (int round = 0; round < 50; ++round) {
    reader.queue(all_needs());
  }
  const auto data = reader.queue(all_needs());
  wait_until_ready(reader, options.memory_bytes);
  EXPECT_NO_THROW(data->segment(0, 0, 0));
}

TEST_F(ReadAheadTest, ConsumersOfAStoppedReaderGetAnError) {
  // Taking a step's segment after the reader has gone: either it was decoded, or this is said.
  auto reader = std::make_unique<ReadAhead>(index_, model_, ReadAheadOptions{});
  const auto data = reader->queue(all_needs());
  reader.reset();
  try {
    data->segment(0, 4, 0);
  } catch (const SystemFailure& error) {
    EXPECT_NE(std::string(error.what()).find("stopped"), std::string::npos);
  }
}

TEST_F(ReadAheadTest, ServesSeveralThreads) {
  ReadAhead reader(index_, model_, {});
  std::vector<std::future<float>> results;
  std::vector<std::shared_ptr<StepData>> steps;
  for (int i = 0; i < 4; ++i) {
    steps.push_back(reader.queue(all_needs()));
    results.push_back(std::async(std::launch::async, [this, data = steps.back()] {
      float sum = 0;
      for (const SegmentNeed& need : all_needs().segments) {
        sum += red_of(data->segment(0, need.sample, need.segment));
      }
      return sum;
    }));
  }
  const float first = results[0].get();
  for (std::size_t i = 1; i < results.size(); ++i) {
    EXPECT_EQ(results[i].get(), first);
  }
}

TEST(NeedsOf, ListsSegmentsInForwardOrderAndTextsOfBothEndsOfTheLlm) {
  const auto forward = [](int module, int stage, int slot) {
    Operation operation;
    operation.kind = OperationKind::kForward;
    operation.unit.module = module;
    operation.unit.stage = stage;
    operation.unit.slot = slot;
    operation.unit.group = 0;
    return operation;
  };
  const auto group = [](std::vector<WorkItem> items) {
    Group result;
    result.items = std::move(items);
    return std::vector<Group>{result};
  };
  Program program;
  program.num_stages = {1, 3};
  ReplicaProgram& replica = program.replicas.emplace_back();
  replica.groups = {{group({{1, 0}, {0, 1}}), group({{0, 0}})},
                    {group({{0, -1}, {1, -1}}), group({{2, -1}})}};
  replica.lanes = {{forward(0, 0, 1), forward(0, 0, 0)},
                   {forward(1, 0, 1), forward(1, 0, 0)},
                   {forward(1, 1, 0), forward(1, 1, 1)},
                   {forward(1, 2, 0), forward(1, 2, 1)}};
  const StepNeeds encoder = needs_of(program, 0, 0, {7, 8, 9});
  ASSERT_EQ(encoder.segments.size(), 3U);
  EXPECT_EQ(encoder.segments[0].sample, 0);
  EXPECT_EQ(encoder.segments[0].segment, 0);
  EXPECT_EQ(encoder.segments[1].sample, 1);
  EXPECT_EQ(encoder.segments[2].segment, 1);
  EXPECT_TRUE(encoder.texts.empty());
  EXPECT_EQ(encoder.batch, (std::vector<int>{7, 8, 9}));
  EXPECT_EQ(needs_of(program, 0, 1, {}).texts, (std::vector<int>{2, 0, 1}));
  EXPECT_TRUE(needs_of(program, 0, 2, {}).texts.empty());
  EXPECT_EQ(needs_of(program, 0, 3, {}).texts, (std::vector<int>{0, 1, 2}));
}

TEST(ReadAhead, ReadsTheSharedImages) {
  if (oracle::shared_folder().empty()) {
    GTEST_SKIP() << "the shared data folder is absent";
  }
  const TemporaryFolder folder;
  ModelSpec model = small_images_model();
  model.encoders[0].patch_size = 14;
  model.encoders[0].min_pixels = 56 * 56;
  model.encoders[0].max_pixels = 224 * 224;
  const Index index =
      build_index({oracle::shared_folder() / "data" / "vlm-small" / "val-000000.tar"},
                  folder.path() / "index.csv",
                  {})
          .index;
  ASSERT_EQ(index.samples.size(), 170U);
  StepNeeds needs;
  for (int i = 0; i < 170; ++i) {
    needs.batch.push_back(i);
    needs.texts.push_back(i);
    needs.segments.push_back({0, i, 0});
  }
  ReadAheadOptions options;
  options.memory_bytes = 1 << 20;
  ReadAhead reader(index, model, options);
  const auto data = reader.queue(needs);
  for (int i = 0; i < 170; ++i) {
    const SegmentData segment = data->segment(0, i, 0);
    EXPECT_LE(segment.input.abs().max().item<float>(), 1.0F + 1e-6F);
    EXPECT_GT(data->text(i).targets.front().begin, 0);
  }
}

}  // namespace
}  // namespace entrain::engine
