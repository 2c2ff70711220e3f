// The policy `llm-lpt`: samples by falling LLM work to the replica, then to the slot with the least
// of it. Encoder work is not looked at.
#include "entrain/core/assigner/lpt.h"
#include "entrain/core/assigner/module_work.h"
#include "entrain/core/assigner/policies.h"

namespace entrain {

Placement llm_lpt_policy(const AssignRequest& request) {
  return lpt_placement(request, module_work(*request.costs).llm);
}

}  // namespace entrain
