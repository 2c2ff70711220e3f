#include "entrain/engine/pipeline/shapes.h"

#include "entrain/core/base/at.h"

namespace entrain::engine {
namespace {

const SegmentWork& segment_of(const StepCosts& costs, int module, const WorkItem& item) {
  return costs.work.at(at(item.sample)).segments.at(at(module)).at(at(item.segment));
}

}  // namespace

bool is_last_llm_stage(const Program& program, const UnitKey& unit) {
  return unit.module == program.llm_module() && unit.stage + 1 == program.num_stages.back();
}

std::int64_t item_rows(const StepSizes& sizes, int module, const WorkItem& item) {
  if (item.is_chunk()) {
    return item.token_end - item.token_begin;
  }
  return module == sizes.program.llm_module() ? sizes.costs.work.at(at(item.sample)).llm_tokens
                                              : segment_of(sizes.costs, module, item).tokens;
}

std::int64_t feature_rows(const StepSizes& sizes, int module, const WorkItem& item) {
  return segment_of(sizes.costs, module, item).llm_tokens;
}

std::vector<std::int64_t> output_shape(const StepSizes& sizes,
                                       const UnitKey& unit,
                                       const Group& group) {
  const bool encoder = unit.module != sizes.program.llm_module();
  const bool features = encoder && unit.stage + 1 == sizes.program.num_stages.at(at(unit.module));
  std::int64_t rows = 0;
  for (const WorkItem& item : group.items) {
    rows += features ? feature_rows(sizes, unit.module, item) : item_rows(sizes, unit.module, item);
  }
  return {rows, sizes.costs.modules.at(at(unit.module)).stages.at(at(unit.stage)).output_width};
}

}  // namespace entrain::engine
