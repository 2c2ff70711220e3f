#include "tests/oracle/study_files.h"

#include <cstdlib>
#include <string>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

namespace entrain::oracle {
namespace {

constexpr int kSamples = 40;

std::string costs_text() {
  std::string text =
      "sample_id,vision_tokens,vision_forward_s,vision_backward_s,llm_tokens,llm_forward_s,"
      "llm_backward_s\n";
  for (int i = 0; i < kSamples; ++i) {
    const int vision = i % 4 == 3 ? 0 : 1 + i * 7 % 11;
    const int llm = 2 + i * 5 % 13;
    text += concat("s", i, ",", vision, ",", vision, "e-3,", 2 * vision, "e-3,");
    text += concat(llm, ",", llm, "e-3,", 2 * llm, "e-3\n");
  }
  return text;
}

std::string index_text() {
  std::string text =
      "sample_id,n_images,image_sizes,prompt_chars,response_chars,prompt_tokens_estimate,"
      "response_tokens_estimate\n";
  for (int i = 0; i < kSamples; ++i) {
    const bool image = i % 4 != 3;
    text += concat("s", i, ",", image ? 1 : 0, ",");
    text += image ? concat(32 + i * 7 % 11 * 16, "x64") : std::string();
    text += concat(",8,", 4 + i, ",2,", 1 + i, "\n");
  }
  return text;
}

// The tiny model, with room for these images.
std::string model_text() {
  std::string text = read_file(ENTRAIN_SOURCE_ROOT "/tests/documents/tiny_model.toml");
  const std::string_view small = "max_pixels = 4096";
  return text.replace(text.find(small), small.size(), "max_pixels = 16384");
}

}  // namespace

StudyFiles::StudyFiles() {
  std::string pattern = (std::filesystem::temp_directory_path() / "entrain-study-XXXXXX").string();
  ENTRAIN_INVARIANT(mkdtemp(pattern.data()) != nullptr, "no folder for the study's files");
  folder_ = pattern;
  write_file(folder_ / "costs.csv", costs_text());
  write_file(folder_ / "index.csv", index_text());
  write_file(folder_ / "model.toml", model_text());
}

StudyFiles::~StudyFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

StudyInputs StudyFiles::table_inputs() const {
  StudyInputs inputs;
  inputs.costs = (folder_ / "costs.csv").string();
  inputs.global_batch = 8;
  return inputs;
}

StudyInputs StudyFiles::index_inputs() const {
  StudyInputs inputs;
  inputs.index = (folder_ / "index.csv").string();
  inputs.model = (folder_ / "model.toml").string();
  inputs.profile = "analytic:cpu-2core";
  inputs.global_batch = 8;
  return inputs;
}

}  // namespace entrain::oracle
