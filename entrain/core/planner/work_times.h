// How much work every sample brings to every module: what shares of devices are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

// [module][sample] nanoseconds of forward and backward, launch constants left out.
using WorkTimes = std::vector<std::vector<std::int64_t>>;

// Work of a batch's samples, summed over their units and all stages.
//
// Cost  O(units × stages).
WorkTimes work_times(const StepCosts& costs);

// Work of samples 0 … num_samples - 1, a few at a time: the costs of a whole data set need not fit
// into memory. costs_of gives the costs of the samples of [begin, end).
WorkTimes work_times(int num_samples, const std::function<StepCosts(int begin, int end)>& costs_of);

// The same under a model's profile, at tensor parallelism 1.
//
// Throws  InvalidInput as step_costs() does.
WorkTimes work_times(const ModelSpec& model,
                     const Profile& profile,
                     std::span<const SampleWork> work);

// [sample] What a sample weighs where oversized ones are held across steps (Hold): its work in all
// modules, in nanoseconds of an analytic A40 whatever profile a run has. So the order of a run's
// samples depends on the model and their sizes alone, and stays the same if devices are profiled
// again or the plan changes.
//
// Throws  InvalidInput as step_costs() does.
std::vector<std::int64_t> hold_weights(const ModelSpec& model, std::span<const SampleWork> work);

// [module] sums over samples; ratios of these sums are what decides, never means of ratios.
std::vector<std::int64_t> total_work(const WorkTimes& work_ns);
// The same over some rows, which may repeat.
std::vector<std::int64_t> total_work(const WorkTimes& work_ns, std::span<const int> rows);

}  // namespace entrain
