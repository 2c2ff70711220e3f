// An audit as a page to look at.
#pragma once

#include <string>

#include "entrain/core/study/audit.h"

namespace entrain {

// One HTML file without scripts or anything from elsewhere: what was looked at, the findings, the
// policies, the sampler's call, a step before and after, the distribution of work, caps, the
// heaviest samples. For light and dark, from 390 pixels of width on. made_by: program and date.
std::string audit_page(const AuditReport& report, const std::string& made_by);

}  // namespace entrain
