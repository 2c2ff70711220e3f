// Small Hugging Face folders of random values, for tests: configs, and weights that fit them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/families/family.h"

#include "tests/oracle/expect_error.h"

namespace entrain::oracle {

// Qwen2-VL with two layers of vision and two decoders; heads of 8.
Json tiny_qwen2_vl_config();
// Qwen2.5-VL with two layers of vision and two decoders; heads of 8.
Json tiny_qwen_config();
// Qwen3-VL with four layers of vision, of which two are features too, and two decoders.
Json tiny_qwen3_vl_config();
// Qwen2-Audio with one layer of audio, windows of 0.4 s and two decoders.
Json tiny_qwen_audio_config();
// An LLM alone of two layers, with `more` keys.
Json tiny_decoder_config(const std::string& architecture, const Json& more);

// A tensor of a file: bytes of random numbers in (-1, 1).
struct FileTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype = "F32";  // or "BF16"
};
// A safetensors file's bytes.
std::string weight_file(const std::vector<FileTensor>& tensors, std::uint64_t seed = 1);
// What the files of a model hold, in the order of its layers.
std::vector<FileTensor> tensors_of(const HfModel& model, const std::string& dtype = "F32");

// Writes config.json, model.safetensors and two small files.
void write_hf_folder(const std::filesystem::path& folder,
                     const Json& config,
                     const std::string& dtype = "F32");

// The call must throw InvalidInput with all these words in its message.
template <class Call>
void expect_refused(const Call& call, const std::vector<std::string>& words) {
  const std::string message = error_of<InvalidInput>(call);
  for (const std::string& part : words) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

}  // namespace entrain::oracle
