// Texts of samples, and what the tokenizer makes of them.
#include "entrain/core/dataset/text.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace entrain;
  fuzz::expect_result_or_refusal([&] {
    const SampleText text = sample_text(fuzz::text_of(data, size), "sample");
    count_characters(text.prompt);
    const std::int64_t prompt = prompt_tokens(text, 2);
    const std::int64_t response = response_tokens(text);
    const TokenizedSample tokens = tokenize(text, {3, 5});
    fuzz::expect(static_cast<std::int64_t>(tokens.ids.size()) == prompt + response + 8,
                 "as many tokens as were counted");
    detokenize(tokens.ids);
    const std::int64_t limit = static_cast<std::int64_t>(size % 64);
    if (const auto cut = fit_prompt(text, 2, limit)) {
      fuzz::expect(prompt_tokens(*cut, 2) <= limit, "a cut prompt fits");
      const SampleText again = cut_prompt(text, 2, prompt_tokens(*cut, 2), "sample");
      fuzz::expect(again.prompt == cut->prompt, "the cut repeats from its length alone");
    }
  });
  fuzz::expect_result_or_refusal([&] {
    const SampleText text{std::string(fuzz::text_of(data, size)), "yes"};
    cut_prompt(text, 1, static_cast<std::int64_t>(size / 2), "sample");
    detokenize(tokenize(text, {1}).ids);
  });
  return 0;
}
