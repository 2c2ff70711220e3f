// An audit for people and programs.
#pragma once

#include <string>

#include "entrain/core/base/json.h"
#include "entrain/core/study/audit.h"

namespace entrain {

// What the audit found in sentences, and its tables.
std::string audit_text(const AuditReport& report);

// Layout, ranks, steps, and the limits that were set, in one line.
std::string audit_settings(const AuditReport& report);

// The table of policies: header, then a row for each.
std::vector<std::vector<std::string>> audit_policy_cells(const AuditReport& report);

// Everything but histograms and timelines. Times in seconds.
Json audit_json(const AuditReport& report);

// The findings, one sentence each: samples that no assignment can train; what imbalance costs, what
// would win how much and how sure that is, what the largest sample forbids, memory and media.
std::vector<std::string> audit_findings(const AuditReport& report);

}  // namespace entrain
