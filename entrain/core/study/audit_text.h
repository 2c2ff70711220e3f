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

// A table: the header, then its rows.
using AuditCells = std::vector<std::vector<std::string>>;

AuditCells audit_policy_cells(const AuditReport& report);
AuditCells audit_sample_cells(const AuditReport& report);  // of the heaviest
AuditCells audit_cap_cells(const AuditReport& report);

// Everything but histograms and timelines. Times in seconds.
Json audit_json(const AuditReport& report);

// The findings, one sentence each: samples that no assignment can train; what imbalance costs, what
// would win how much and how sure that is, what the largest sample forbids, memory and media.
std::vector<std::string> audit_findings(const AuditReport& report);

// An audit as one HTML file without scripts or anything from elsewhere: what was looked at, the
// findings, the policies, the sampler's call, a step before and after, the distribution of work,
// caps, the heaviest samples. For light and dark, from 390 pixels of width on. made_by: program and
// date.
std::string audit_page(const AuditReport& report, const std::string& made_by);

}  // namespace entrain
