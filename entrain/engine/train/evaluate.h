// Evaluates trained weights on unseen samples: loss, greedy answers, accuracy. One process, one
// thread per rank.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

struct EvaluateOptions {
  int samples = 0;             // from the head of the index; 0 = all
  int batch = 16;              // samples packed together, >= 1
  int max_answer_tokens = 32;  // greedy decoding stops here or at end-of-sequence
  bool blank = false;          // white pixels and silence: what the model knows without input
  std::string device = "cpu";  // as device_of() takes it
};

struct Answer {
  std::string id;
  std::string kind;  // the sample's "kind" or "source", empty without one
  std::string expected;
  std::string given;
  [[nodiscard]] bool correct() const { return given == expected; }
};

struct EvaluateResult {
  double loss = 0;  // cross-entropy per target token
  std::vector<Answer> answers;
  [[nodiscard]] double accuracy() const;  // share of exact answers, in [0, 1]
};

// `weights`: a file of ours, or a Hugging Face folder.
//
// Throws  InvalidInput if the weights do not match the model (name and shape) or are not finite,
//         or a sample is damaged; SystemFailure if the loss is not finite all the same, or memory
//         runs out; what device_of() throws.
EvaluateResult evaluate(const ModelSpec& model,
                        const std::filesystem::path& weights,
                        const DataSet& data,
                        const EvaluateOptions& options);

}  // namespace entrain::engine
