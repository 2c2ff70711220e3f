#include "entrain/engine/pipeline/shapes.h"

#include "entrain/core/base/at.h"

namespace entrain::engine {

bool is_last_stage(const Program& program, const UnitKey& unit) {
  return unit.stage + 1 == program.num_stages.at(at(unit.module));
}

bool is_last_llm_stage(const Program& program, const UnitKey& unit) {
  return unit.module == program.llm_module() && is_last_stage(program, unit);
}

const SegmentWork& segment_of(const StepSizes& sizes, int module, const WorkItem& item) {
  return sizes.costs.work.at(at(item.sample)).segments.at(at(module)).at(at(item.segment));
}

std::int64_t item_rows(const StepSizes& sizes, int module, const WorkItem& item) {
  if (item.is_chunk()) {
    return item.token_end - item.token_begin;
  }
  return module == sizes.program.llm_module() ? sizes.costs.work.at(at(item.sample)).llm_tokens
                                              : segment_of(sizes, module, item).tokens;
}

std::int64_t feature_rows(const StepSizes& sizes, int module, const WorkItem& item) {
  return segment_of(sizes, module, item).llm_tokens;
}

std::vector<std::int64_t> output_shape(const StepSizes& sizes,
                                       const UnitKey& unit,
                                       const Group& group) {
  const bool features =
      unit.module != sizes.program.llm_module() && is_last_stage(sizes.program, unit);
  std::int64_t rows = 0;
  for (const WorkItem& item : group.items) {
    rows += features ? feature_rows(sizes, unit.module, item) : item_rows(sizes, unit.module, item);
  }
  return {rows, sizes.costs.modules.at(at(unit.module)).stages.at(at(unit.stage)).output_width};
}

}  // namespace entrain::engine
