// The stages of one lane, with their parameters.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

#include "entrain/engine/models/stages.h"

namespace entrain::engine {

class LaneStages {
 public:
  LaneStages() = default;  // no stages: a paced lane needs no parameters
  LaneStages(const ModelSpec& model, const Plan& plan, int lane, const StageOptions& options);

  [[nodiscard]] const EncoderStage& encoder(int module, int stage) const;
  [[nodiscard]] const LlmStage& llm(int stage) const;

  // In the order of the lane's stages, frozen ones included. A tied head on another lane than the
  // embedding has a copy of its table, which is excluded (tied_table.h).
  [[nodiscard]] const std::vector<NamedParameter>& parameters() const { return parameters_; }
  // Whether it is the token embedding's table.
  [[nodiscard]] bool is_table(const at::Tensor& parameter) const;
  // Index of the first of parameters() of every stage. Shapes  [stage of the lane].
  [[nodiscard]] const std::vector<std::size_t>& stage_begins() const { return stage_begins_; }
  // The part of each of parameters(), as named in a run's `freeze`: its module, or "projector"
  // for the projector of any encoder. Shapes  [parameter].
  [[nodiscard]] const std::vector<std::string>& parts() const { return parts_; }

 private:
  std::map<std::pair<int, int>, EncoderStage> encoders_;  // (module, stage)
  std::map<int, LlmStage> llms_;                          // stage
  std::vector<NamedParameter> parameters_;
  std::vector<std::size_t> stage_begins_;
  std::vector<std::string> parts_;
};

}  // namespace entrain::engine
