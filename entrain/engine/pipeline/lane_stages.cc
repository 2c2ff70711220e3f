#include "entrain/engine/pipeline/lane_stages.h"

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

constexpr const char* kProjectorPart = ".merger.";  // part of the names of an encoder's projector

}  // namespace

LaneStages::LaneStages(const ModelSpec& model,
                       const Plan& plan,
                       int lane,
                       const StageOptions& options) {
  const auto add = [&](const std::vector<NamedParameter>& more, const std::string& module) {
    for (const NamedParameter& parameter : more) {
      const bool projector = parameter.name.find(kProjectorPart) != std::string::npos;
      parameters_.push_back(parameter);
      parts_.push_back(projector ? "projector" : module);
    }
  };
  for (const StageRef& ref : plan.lanes.at(static_cast<std::size_t>(lane))) {
    const ModulePlan& module = plan.modules.at(static_cast<std::size_t>(ref.module));
    const LayerRange layers = module.stages.at(static_cast<std::size_t>(ref.stage));
    const int recompute = module.recomputed(ref.stage);
    stage_begins_.push_back(parameters_.size());
    if (ref.module == model.llm_module()) {
      LlmStage& stage =
          llms_.emplace(ref.stage, LlmStage(model.llm, layers, options, recompute)).first->second;
      add(stage.parameters(), module.name);
    } else {
      const EncoderSpec& encoder = model.encoders.at(static_cast<std::size_t>(ref.module));
      add(encoders_
              .emplace(std::pair(ref.module, ref.stage),
                       EncoderStage(encoder, model.llm.hidden, layers, options, recompute))
              .first->second.parameters(),
          module.name);
    }
  }
  const auto last = llms_.find(static_cast<int>(std::ssize(plan.modules.back().stages)) - 1);
  if (model.llm.tie_word_embeddings && last != llms_.end() && last->first > 0 &&
      llms_.contains(0)) {
    last->second.use_table(llms_.at(0).table());
  }
}

const EncoderStage& LaneStages::encoder(int module, int stage) const {
  const auto found = encoders_.find({module, stage});
  ENTRAIN_INVARIANT(found != encoders_.end(),
                    concat("the lane does not host stage ", stage, " of module ", module));
  return found->second;
}

bool LaneStages::is_table(const at::Tensor& parameter) const {
  const auto first = llms_.find(0);
  return first != llms_.end() && parameter.is_same(first->second.table());
}

const LlmStage& LaneStages::llm(int stage) const {
  const auto found = llms_.find(stage);
  ENTRAIN_INVARIANT(found != llms_.end(), concat("the lane does not host LLM stage ", stage));
  return found->second;
}

}  // namespace entrain::engine
