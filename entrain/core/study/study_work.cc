#include "entrain/core/study/study_work.h"

#include <numeric>
#include <utility>

#include "entrain/core/base/progress.h"

namespace entrain {

WorkTimes study_work(const Study& study) {
  const std::vector<int> one_stage(static_cast<std::size_t>(study.model.num_modules()), 1);
  const Plan plan = even_plan(study.model, one_stage, 1, 1);
  const auto samples = static_cast<int>(study.ids.size());
  Progress progress("work of samples", samples);
  return work_times(samples, [&](int begin, int end) {
    std::vector<int> rows(static_cast<std::size_t>(end - begin));
    std::iota(rows.begin(), rows.end(), begin);
    StepCosts costs = batch_costs(study, plan, batch_of(study, std::move(rows)));
    progress.advance(end - begin);
    return costs;
  });
}

StableBatchResult find_study_batch(StableBatchRequest request) {
  Progress progress("drawing batches", Progress::kShareTotal, ProgressUnit::kShare);
  request.progress = [&progress](double share) { progress.reach_share(share); };
  return find_stable_batch(request);
}

}  // namespace entrain
