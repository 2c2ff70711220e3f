#include "entrain/core/dataset/token_cache.h"

#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

template <class Call>
void expect_words(const Call& call, const std::vector<std::string>& words) {
  const std::string message = error_of<InvalidInput>(call);
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

// A question, two tiles of an image, an answer, a clip between two words of it.
TextTokens example() {
  return {{1, 5, 6, 7, 8, 2}, {{2, 4}, {4, 6}}, {{1, 0}, {1, 1}, {4, 2}}};
}

class TokenCacheFile : public testing::Test {
 protected:
  void SetUp() override {
    TokenCacheWriter writer;
    writer.add("split/a", example());
    writer.add("split/b", {{1, 3}, {{1, 2}}, {}});
    writer.add("split/empty", {});
    digest_ = writer.write(path_, facts(), table());
    bytes_ = read_file(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static TokenFacts facts() {
    return {.vocabulary = 9,
            .image_token = 7,
            .audio_token = 8,
            .stop = {2},
            .strip = 1,
            .tokenizer = "t",
            .chat_template = "c",
            .loss = "answers"};
  }
  static std::vector<std::string> table() {
    return {"", "", "", " a", "\xC3", "\xA9", " ", "", "b"};
  }

  // Opening the bytes as if the index named them.
  void expect_refused(const std::string& bytes, const std::string& words) const {
    write_file(path_, bytes);
    const std::string digest = "tokens-" + digest_of(bytes);
    expect_words(
        [&] {
          const TokenCache cache(path_, digest);
          for (const char* id : {"split/a", "split/b", "split/empty"}) {
            (void)cache.sample(id);
          }
          (void)cache.decode({0, 1, 2, 3, 4, 5, 6, 7, 8});
        },
        {path_.string(), words});
  }

  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / "token_cache_test.tokens";
  std::string digest_;
  std::string bytes_;
};

TEST_F(TokenCacheFile, BringsBackWhatWasWritten) {
  const TokenCache cache(path_, digest_);
  EXPECT_EQ(cache.sample("split/a"), example());
  EXPECT_EQ(cache.sample("split/b"), (TextTokens{{1, 3}, {{1, 2}}, {}}));
  EXPECT_EQ(cache.sample("split/empty"), TextTokens());
  EXPECT_EQ(cache.facts().stop, std::vector<std::int64_t>{2});
  EXPECT_EQ(cache.facts().image_token, 7);
  EXPECT_EQ(cache.facts().loss, "answers");
}

TEST_F(TokenCacheFile, DecodesBytesWithoutSpecialTokens) {
  const TokenCache cache(path_, digest_);
  EXPECT_EQ(cache.decode({3, 4, 5, 2}), "a\xC3\xA9");  // one space is stripped
  EXPECT_EQ(cache.decode({6, 3, 8}), " ab");
  EXPECT_EQ(cache.decode({100, -1, 8}), "b");  // a model may have rows that no token has
}

TEST_F(TokenCacheFile, RefusesASampleThatItDoesNotHave) {
  const TokenCache cache(path_, digest_);
  expect_words([&] { (void)cache.sample("split/c"); }, {"no sample 'split/c'"});
}

TEST_F(TokenCacheFile, RefusesAnotherDigestAndAMissingFile) {
  expect_words([&] { const TokenCache cache(path_, "tokens-00"); }, {"of another index", digest_});
  std::filesystem::remove(path_);
  expect_words([&] { const TokenCache cache(path_, digest_); }, {"there is no such file"});
}

// Every length that it may be cut to, and every byte of it changed: refused by the digest. With a
// digest that fits the change, nothing is read beyond the end, and what makes no sense is refused.
TEST_F(TokenCacheFile, RefusesEveryTruncationAndEveryChangedByte) {
  for (std::size_t size = 0; size < bytes_.size(); ++size) {
    write_file(path_, bytes_.substr(0, size));
    EXPECT_THROW(TokenCache(path_, digest_), InvalidInput) << size;
    expect_refused(bytes_.substr(0, size), "make the index again");
  }
  int accepted = 0;
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    std::string changed = bytes_;
    changed[i] = static_cast<char>(changed[i] ^ 0x81);
    write_file(path_, changed);
    EXPECT_THROW(TokenCache(path_, digest_), InvalidInput) << i;
    try {
      const TokenCache cache(path_, "tokens-" + digest_of(changed));
      (void)cache.sample("split/a");
      (void)cache.decode({3, 4, 5, 6});
      ++accepted;  // bytes of other samples, of the table and of names
    } catch (const InvalidInput&) {
    }
  }
  EXPECT_LT(accepted, static_cast<int>(bytes_.size()) / 2);
}

TEST(Validate, RefusesTokensThatMakeNoSense) {
  const auto refused = [](const std::function<void(TextTokens&)>& change, const char* words) {
    TextTokens tokens = example();
    change(tokens);
    expect_words([&] { validate(tokens, 9, "here"); }, {"here", words});
  };
  EXPECT_NO_THROW(validate(example(), 9, "here"));
  refused([](TextTokens& t) { t.ids[0] = 9; }, "vocabulary");
  refused([](TextTokens& t) { t.targets[1].end = 7; }, "targets that do not rise");
  refused([](TextTokens& t) { t.targets[1].begin = 3; }, "targets that do not rise");
  refused([](TextTokens& t) { t.targets[0].end = 2; }, "targets that do not rise");
  refused([](TextTokens& t) { t.slots[2].position = 0; }, "features that do not rise");
  refused([](TextTokens& t) { t.slots[2].position = 7; }, "features that do not rise");
  refused([](TextTokens& t) { t.slots[2].number = 1; }, "numbered once");
  refused([](TextTokens& t) { t.slots[2].number = 3; }, "numbered once");
  refused([](TextTokens& t) { t.slots[2].position = 3; }, "within a range");
  refused(
      [](TextTokens& t) {
        t.slots.clear();
        t.targets[0] = {0, 4};
      },
      "nothing precedes");
}

TEST(WithFeatures, PutsFeaturesBetweenTheTokens) {
  const TokenizedSample sample = with_features(example(), {2, 0, 1}, {70, 71, 80});
  EXPECT_EQ(sample.ids, (std::vector<std::int64_t>{1, 70, 70, 5, 6, 7, 80, 8, 2}));
  EXPECT_EQ(sample.feature_begin, (std::vector<std::int64_t>{1, 3, 6}));
  EXPECT_EQ(sample.targets, (std::vector<TokenRange>{{4, 6}, {7, 9}}));
  EXPECT_EQ(sample.num_targets(), 4);
}

TEST(TokenCachePath, IsBesideTheIndex) {
  EXPECT_EQ(token_cache_path("data/train.csv"), "data/train.tokens");
  EXPECT_EQ(token_cache_path("data/train.v2.csv.gz"), "data/train.v2.tokens");
}

}  // namespace
}  // namespace entrain
