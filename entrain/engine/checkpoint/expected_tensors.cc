#include "entrain/engine/checkpoint/expected_tensors.h"

#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/manifest.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

void add_expected(const std::vector<NamedParameter>& parameters, std::vector<TensorInfo>& all) {
  for (const NamedParameter& parameter : parameters) {
    all.push_back(info_of(parameter));
    if (!parameter.tensor.requires_grad()) {
      continue;
    }
    for (const std::string_view suffix : kMomentSuffixes) {
      all.push_back(info_of({concat(parameter.name, suffix), parameter.tensor}));
    }
  }
}

}  // namespace

std::vector<TensorInfo> expected_tensors(const ModelSpec& model) {
  StageOptions options;
  options.device = at::kMeta;
  std::vector<TensorInfo> all;
  for (std::size_t m = 0; m < model.encoders.size(); ++m) {
    const LayerRange layers{0, num_layers(model, static_cast<int>(m))};
    add_expected(EncoderStage(model.encoders[m], model.llm.hidden, layers, options).parameters(),
                 all);
  }
  const LayerRange layers{0, num_layers(model, model.llm_module())};
  add_expected(LlmStage(model.llm, layers, options).parameters(), all);
  return all;
}

}  // namespace entrain::engine
