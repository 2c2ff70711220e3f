#include "entrain/core/baselines/module_work.h"

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

void add_work(const ModuleCosts& module, std::vector<std::int64_t>& of_samples) {
  for (const StageCosts& stage : module.stages) {
    for (std::size_t sample = 0; sample < of_samples.size(); ++sample) {
      for (int unit = module.first_unit[sample]; unit < module.first_unit[sample + 1]; ++unit) {
        const OperationTimes& time = stage.units[at(unit)].time;
        of_samples[sample] += (time.forward + time.backward()).count();
      }
    }
  }
}

}  // namespace

ModuleWork module_work(const StepCosts& costs) {
  ModuleWork result;
  result.encoder.assign(at(costs.num_samples), 0);
  result.llm.assign(at(costs.num_samples), 0);
  for (int module = 0; module <= costs.llm_module(); ++module) {
    add_work(costs.modules[at(module)], module == costs.llm_module() ? result.llm : result.encoder);
  }
  return result;
}

std::vector<std::int64_t> forward_times(const StepCosts& costs, int module) {
  std::vector<std::int64_t> result(at(costs.num_units(module)), 0);
  for (const StageCosts& stage : costs.modules[at(module)].stages) {
    for (std::size_t unit = 0; unit < result.size(); ++unit) {
      result[unit] += stage.units[unit].time.forward.count();
    }
  }
  return result;
}

}  // namespace entrain
