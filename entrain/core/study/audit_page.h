// An audit as a page to look at.
#pragma once

#include <string>

#include "entrain/core/study/audit.h"

namespace entrain {

// One HTML file without scripts or anything from elsewhere: the findings, the policies as bars, a
// step before and after, the distribution of work, caps, the heaviest samples. For light and dark,
// from 390 pixels of width on.
std::string audit_page(const AuditReport& report);

}  // namespace entrain
