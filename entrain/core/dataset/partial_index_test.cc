#include "entrain/core/dataset/partial_index.h"

#include <gtest/gtest.h>

#include "entrain/core/base/files.h"

#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::TemporaryFolder;

MeasuredSample sample_with_all() {
  MeasuredSample sample;
  sample.sizes.id = "s/a";
  sample.sizes.images = {{3, 4}, {5, 6}};
  sample.sizes.audio_seconds = {0.1, 2};
  sample.sizes.videos = {{1.5, 3, ImageSize{7, 8}}, {2.5, std::nullopt, std::nullopt}};
  sample.sizes.prompt_chars = 9;
  sample.sizes.response_chars = 10;
  sample.sizes.prompt_tokens_estimate = 11;
  sample.sizes.response_tokens_estimate = 12;
  sample.sizes.prompt_tokens = 13;
  sample.sizes.response_tokens = 14;
  sample.sizes.location = SampleLocation{"", 15, 16};
  sample.where = "there";
  sample.json = "{}";
  sample.ignored = {".cls", ".x"};
  sample.scattered = true;
  return sample;
}

TokenResult tokens_with_all() {
  TokenResult tokens;
  tokens.tokens.ids = {1, 70'000, 2};
  tokens.tokens.targets = {{1, 2}, {2, 3}};
  tokens.tokens.slots = {{0, 1}, {2, 0}};
  tokens.prompt_chars = 4;
  tokens.response_chars = 5;
  return tokens;
}

class PartialIndices : public testing::Test {
 protected:
  PartialIndices() : partial_(folder_.path() / "out.csv") {
    file_.path = folder_.write("data.tar", "content");
    facts_.num_samples = 2;
    facts_.bytes_of_a_row = 7;
    facts_.skipped = {{"hidden", 3}};
    facts_.notes = {"a note"};
  }

  void keep() {
    const auto writer = partial_.write(file_, "settings", facts_);
    const TokenResult tokens = tokens_with_all();
    writer->add(to_bytes(sample_with_all(), true), &tokens);
    MeasuredSample damaged;
    damaged.sizes.id = "s/b";
    damaged.damage = "it is cut";
    writer->add(to_bytes(damaged, true), nullptr);
    writer->finish();
  }

  // The only file that is kept.
  [[nodiscard]] std::filesystem::path kept() const {
    return std::filesystem::directory_iterator(partial_.folder())->path();
  }

  TemporaryFolder folder_;
  PartialIndex partial_;
  FileToMeasure file_;
  MeasuredFile facts_;
};

TEST_F(PartialIndices, GiveBackWhatWasKept) {
  EXPECT_EQ(partial_.read(file_, "settings"), nullptr);
  EXPECT_FALSE(partial_.holds_files());
  keep();
  EXPECT_TRUE(partial_.holds_files());
  const auto found = partial_.read(file_, "settings");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->file().num_samples, 2);
  EXPECT_EQ(found->file().bytes_of_a_row, 7);
  EXPECT_EQ(found->file().skipped, facts_.skipped);
  EXPECT_EQ(found->file().notes, facts_.notes);
  const KeptFile::Sample first = found->next();
  const MeasuredSample expected = sample_with_all();
  EXPECT_EQ(first.measured.sizes, expected.sizes);
  EXPECT_EQ(first.measured.where, expected.where);
  EXPECT_EQ(first.measured.json, expected.json);
  EXPECT_EQ(first.measured.ignored, expected.ignored);
  EXPECT_TRUE(first.measured.scattered);
  ASSERT_TRUE(first.tokens.has_value());
  EXPECT_EQ(first.tokens->tokens.ids, tokens_with_all().tokens.ids);
  EXPECT_EQ(first.tokens->tokens.targets, tokens_with_all().tokens.targets);
  EXPECT_EQ(first.tokens->tokens.slots.at(1).position, 2);
  EXPECT_EQ(first.tokens->response_chars, 5);
  const KeptFile::Sample second = found->next();
  EXPECT_EQ(second.measured.damage, "it is cut");
  EXPECT_FALSE(second.measured.sizes.location.has_value());
  EXPECT_FALSE(second.tokens.has_value());
}

TEST_F(PartialIndices, AreOfOneFileAndOfOneCommand) {
  keep();
  EXPECT_EQ(partial_.read(file_, "other settings"), nullptr);
  FileToMeasure renamed = file_;
  renamed.columns = ColumnMap("answer=label");
  EXPECT_EQ(partial_.read(renamed, "settings"), nullptr);
  folder_.write("data.tar", "more content");
  EXPECT_EQ(partial_.read(file_, "settings"), nullptr);
}

TEST_F(PartialIndices, DoNotCountWhereDamagedOrUnfinished) {
  keep();
  const std::string whole = read_file(kept());
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file(kept(), damaged);
    EXPECT_EQ(partial_.read(file_, "settings"), nullptr) << at;
    write_file(kept(), std::string_view(whole).substr(0, at));
    EXPECT_EQ(partial_.read(file_, "settings"), nullptr) << at;
  }
  write_file(kept(), whole);
  EXPECT_NE(partial_.read(file_, "settings"), nullptr);
  partial_.remove();
  EXPECT_FALSE(std::filesystem::exists(partial_.folder()));
  partial_.write(file_, "settings", facts_)->add(to_bytes(sample_with_all(), true), nullptr);
  EXPECT_EQ(partial_.read(file_, "settings"), nullptr);
  EXPECT_FALSE(partial_.holds_files());
}

TEST_F(PartialIndices, BeganWhenTheFirstRunBegan) {
  const std::int64_t begun = partial_.begun();
  EXPECT_GT(begun, 1'700'000'000);
  write_file(partial_.folder() / "begun", "1234567890");
  EXPECT_EQ(PartialIndex(folder_.path() / "out.csv").begun(), 1'234'567'890);
  folder_.write("out.csv.partial/mine.txt", "stays");
  partial_.remove();
  EXPECT_FALSE(std::filesystem::exists(partial_.folder() / "begun"));
  EXPECT_TRUE(std::filesystem::exists(partial_.folder() / "mine.txt"));
}

}  // namespace
}  // namespace entrain
