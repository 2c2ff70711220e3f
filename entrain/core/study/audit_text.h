// An audit for people and programs.
#pragma once

#include <string>

#include "entrain/core/base/json.h"
#include "entrain/core/study/audit.h"

namespace entrain {

// What the audit found in sentences, and its tables.
std::string audit_text(const AuditReport& report);

// Everything but histograms and timelines. Times in seconds.
Json audit_json(const AuditReport& report);

// The findings, one sentence each: what imbalance costs, what would win how much and how sure that
// is, what the largest sample forbids, memory and media.
std::vector<std::string> audit_findings(const AuditReport& report);

}  // namespace entrain
