#include "entrain/core/study/sample_step.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/global_batch.h"

namespace entrain {

std::int64_t step_of_sample(const Study& study, const std::string& id) {
  const auto found = std::find(study.ids.begin(), study.ids.end(), id);
  if (found == study.ids.end()) {
    const std::string hint = suggestion(id, study.ids);  // of no use where it lists all
    throw InvalidInput(fmt::format("--sample: '{}' is not among the {} samples{}",
                                   id,
                                   study.ids.size(),
                                   hint.starts_with(", did you mean") ? hint : ""));
  }
  const auto row = static_cast<int>(found - study.ids.begin());
  const auto samples = static_cast<int>(study.ids.size());
  const int batch = study.inputs.global_batch;
  constexpr std::int64_t kEpochs = 4;
  const std::int64_t steps = (kEpochs * samples + batch - 1) / batch;
  std::optional<GlobalBatchSampler> sampler;
  if (!study.with_replacement) {
    sampler.emplace(samples, batch, study.inputs.seed);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::vector<int> rows = sampler.has_value()
                                      ? sampler->batch(step)
                                      : draw_study_rows(samples, batch, study.inputs.seed, step);
    if (std::find(rows.begin(), rows.end(), row) != rows.end()) {
      return step;
    }
  }
  throw InvalidInput(
      fmt::format("--sample: '{}' is drawn in none of the steps 0 to {}: every epoch leaves its "
                  "last incomplete "
                  "batch out; give --step to look further",
                  id,
                  steps - 1));
}

}  // namespace entrain
