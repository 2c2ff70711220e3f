#include "entrain/core/dataset/text.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

TEST(SampleText, TakesEveryPairOfKeys) {
  EXPECT_EQ(sample_text(R"({"question": "q", "answer": "a", "width": 3})", "x").prompt, "q");
  EXPECT_EQ(sample_text(R"({"prompt": "p", "response": "r"})", "x").response, "r");
  const SampleText caption = sample_text(R"({"caption": "c"})", "x");
  EXPECT_EQ(caption.prompt, "");
  EXPECT_EQ(caption.response, "c");
}

TEST(SampleText, TakesATranscript) {
  const SampleText text = sample_text(R"({"text": "seven", "label": 7})", "x");
  EXPECT_EQ(text.prompt, "");
  EXPECT_EQ(text.response, "seven");
}

TEST(SampleText, SpellsNumbersAndTruthValuesAsJsonDoes) {
  const SampleText text = sample_text(R"({"question": true, "answer": 3})", "x");
  EXPECT_EQ(text.prompt, "true");
  EXPECT_EQ(text.response, "3");
  EXPECT_EQ(sample_text(R"({"text": -0.5})", "x").response, "-0.5");
  EXPECT_EQ(sample_text(R"({"text": false})", "x").response, "false");
  EXPECT_EQ(sample_text("{\"width\": 8, \"text\"\n : 18446744073709551615}", "x").response,
            "18446744073709551615");
}

TEST(SampleText, PrefersTheQuestionOverACaption) {
  EXPECT_EQ(sample_text(R"({"caption": "c", "question": "q", "answer": "a"})", "x").response, "a");
}

TEST(SampleText, RefusesWhatHoldsNoTextAndNamesThePlace) {
  for (const char* json : {"{}",
                           "[]",
                           "{",
                           R"({"question": "q"})",
                           R"({"answer": "a"})",
                           R"({"prompt": "p", "response": null})",
                           R"({"prompt": "p", "response": [3]})",
                           R"({"prompt": {}, "response": "r"})",
                           R"({"text": 1e3})",
                           R"({"text": 1.50, "other": 1.5})",
                           R"({"text": 123456789012345678901234567890})"}) {
    const std::string message =
        error_of<InvalidInput>([&] { sample_text(json, "train.tar, offset 512"); });
    EXPECT_NE(message.find("train.tar, offset 512"), std::string::npos) << json << ": " << message;
  }
}

TEST(CountCharacters, CountsCodePoints) {
  EXPECT_EQ(count_characters(""), 0);
  EXPECT_EQ(count_characters("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), 4);
}

TEST(Tokenize, MarksClipsBehindImages) {
  const TokenizedSample sample = tokenize({"H", "N"}, {1}, {2, 0});
  const std::vector<std::int64_t> expected = {kBosToken,
                                              kUserToken,
                                              kImageStartToken,
                                              kFeatureToken,
                                              kImageEndToken,
                                              kAudioMarkToken,
                                              kFeatureToken,
                                              kFeatureToken,
                                              kAudioMarkToken,
                                              kAudioMarkToken,
                                              kAudioMarkToken,
                                              'H',
                                              kAssistantToken,
                                              'N',
                                              kEosToken};
  EXPECT_EQ(sample.ids, expected);
  EXPECT_EQ(sample.feature_begin, (std::vector<std::int64_t>{3, 6, 10}));
  EXPECT_EQ(sample.targets.front().begin, 13);
  EXPECT_EQ(prompt_tokens({"H", "N"}, 3) + 3, sample.targets.front().begin);
}

TEST(Tokenize, LaysOutImagesPromptAndResponse) {
  const TokenizedSample sample = tokenize({"Hi", "No"}, {2, 1});
  const std::vector<std::int64_t> expected = {kBosToken,
                                              kUserToken,
                                              kImageStartToken,
                                              kFeatureToken,
                                              kFeatureToken,
                                              kImageEndToken,
                                              kImageStartToken,
                                              kFeatureToken,
                                              kImageEndToken,
                                              'H',
                                              'i',
                                              kAssistantToken,
                                              'N',
                                              'o',
                                              kEosToken};
  EXPECT_EQ(sample.ids, expected);
  EXPECT_EQ(sample.feature_begin, (std::vector<std::int64_t>{3, 7}));
  EXPECT_EQ(sample.targets.front().begin, 12);
}

TEST(Tokenize, HasTheLengthsThatTheIndexStates) {
  const SampleText text{"caf\xC3\xA9?", "oui"};
  const TokenizedSample sample = tokenize(text, {5, 7});
  const auto length = static_cast<std::int64_t>(sample.ids.size());
  EXPECT_EQ(length, prompt_tokens(text, 2) + response_tokens(text) + 5 + 7);
  EXPECT_EQ(sample.num_targets(), response_tokens(text));
  EXPECT_EQ(sample.targets.back().end, length);
}

TEST(Detokenize, BringsBytesBackAndLeavesMarksOut) {
  EXPECT_EQ(detokenize(tokenize({"\xC3\xA9t\xC3\xA9 ", "\xFF!"}, {3}).ids),
            "\xC3\xA9t\xC3\xA9 \xFF!");
}

TEST(FitPrompt, KeepsAPromptThatFits) {
  const SampleText text{"abcdef", "r"};
  const std::int64_t whole = prompt_tokens(text, 1);
  EXPECT_EQ(fit_prompt(text, 1, whole)->prompt, "abcdef");
  EXPECT_EQ(fit_prompt(text, 1, whole - 2)->prompt, "cdef");
  EXPECT_EQ(fit_prompt(text, 1, whole - 6)->prompt, "");
  EXPECT_FALSE(fit_prompt(text, 1, whole - 7).has_value());
}

TEST(FitPrompt, CutsBetweenCharacters) {
  const SampleText text{
      "\xE2\x82\xAC"
      "x",
      "r"};
  const std::int64_t whole = prompt_tokens(text, 0);
  EXPECT_EQ(fit_prompt(text, 0, whole - 1)->prompt, "x");
}

TEST(CutPrompt, RepeatsTheCutFromItsLengthAlone) {
  const SampleText text{"a long \xE2\x82\xAC question", "r"};
  for (std::int64_t limit = prompt_tokens({}, 2); limit <= prompt_tokens(text, 2); ++limit) {
    const SampleText fitted = *fit_prompt(text, 2, limit);
    const SampleText again = cut_prompt(text, 2, prompt_tokens(fitted, 2), "here");
    EXPECT_EQ(again.prompt, fitted.prompt);
    EXPECT_LE(prompt_tokens(fitted, 2), limit);
  }
}

TEST(CutPrompt, RefusesLengthsThatDoNotFitTheText) {
  const SampleText text{"abc", "r"};
  for (const std::int64_t tokens : {prompt_tokens(text, 0) + 1, prompt_tokens({}, 0) - 1}) {
    const std::string message =
        error_of<InvalidInput>([&] { cut_prompt(text, 0, tokens, "sample 'a'"); });
    EXPECT_NE(message.find("sample 'a'"), std::string::npos) << message;
  }
}

TEST(TextDigest, IsThatOfTheTokenizerThatIndicesWereMadeWith) {
  EXPECT_EQ(text_digest(), "85a27f0ecf311b3776ad3fb0a3cb9b90");
}

TEST(SampleText, OfAListOfAnswersIsTheFirst) {
  for (const char* pair : {"question answer", "prompt response"}) {
    const std::string prompt = std::string(pair).substr(0, std::string(pair).find(' '));
    const std::string response = std::string(pair).substr(prompt.size() + 1);
    const auto json = [&](const std::string& value) {
      return "{\"" + prompt + "\": \"q\", \"" + response + "\": " + value + "}";
    };
    EXPECT_EQ(sample_text(json("[\"a\", \"b\"]"), "x").response, "a");
    for (const char* refused : {"[]", "[1]", "[\"a\", 1]", "[[\"a\"]]"}) {
      EXPECT_NE(oracle::error_of<InvalidInput>([&] {
                  sample_text(json(refused), "x");
                }).find("is a list"),
                std::string::npos)
          << refused;
    }
  }
  EXPECT_EQ(sample_text(R"({"caption": ["a", "b"]})", "x").response, "a");
  for (const char* refused : {R"({"text": ["a"]})", R"({"question": ["a"], "answer": "b"})"}) {
    EXPECT_NE(oracle::error_of<InvalidInput>([&] { sample_text(refused, "x"); }).find("is of type"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace entrain
