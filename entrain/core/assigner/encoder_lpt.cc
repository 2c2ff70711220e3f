// The policy `encoder-lpt`: samples by falling encoder work (all encoders together) to the replica,
// then to the slot with the least of it.
//
// LLM work is not looked at. Text-only samples come last and weigh nothing, so that those of a
// replica pile up in the one slot with the least encoder work.
#include "entrain/core/assigner/lpt.h"
#include "entrain/core/assigner/module_work.h"
#include "entrain/core/assigner/policies.h"

namespace entrain {

Placement encoder_lpt_policy(const AssignRequest& request) {
  return lpt_placement(request, module_work(*request.costs).encoder);
}

}  // namespace entrain
