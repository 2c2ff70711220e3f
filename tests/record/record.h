// The record: what assignments, programs, replays and plans of many cases come out as, one line a
// case, so that a change which should change no result can prove it.
//
// Read first: Case, compute(), compare(). The cases are in *_cases.cc; the program is main.cc.
// A line is the case's name and its fields, `name field=value …`. All of it follows from integer
// costs: equal on every machine and for any number of threads. tests/golden/record.txt holds it;
// `make compare-record` compares, `make record` writes it anew where a difference is meant, which
// the commit then lists.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace entrain::record {

struct Case {
  std::string name;                  // unique, without blanks
  std::function<std::string()> run;  // "field=value field=value", values without blanks
};

// Random tiny instances: every policy × every schedule, with and without frozen modules, chunks and
// memory limits; the policy `entrain` without each of its parts.
std::vector<Case> tiny_cases();
// Random assignments, wilder than any policy's, under every schedule: simulated under all kinds of
// options.
std::vector<Case> replay_cases();
// Global batches of the shared manifests under several layouts of lanes. Empty without manifests.
std::vector<Case> manifest_cases();
// The search for a cluster's plan, of tiny clusters and, where there are manifests, of real ones.
std::vector<Case> tiny_plan_cases();
std::vector<Case> manifest_plan_cases();
// Studies: policies × schedules under a memory rule, and the plans of others.
std::vector<Case> study_cases();

// [name] the rest of the line. Where a case is refused, the error's type and the numbers of its
// message: "refused=NothingFits:2,14".
using Record = std::map<std::string, std::string>;

// Runs all cases on so many threads.
// Throws  what a case throws that is neither InvalidInput nor NothingFits.
Record compute(const std::vector<Case>& cases, int threads);

std::string to_text(const Record& record);
// Throws  InvalidInput for a line without fields.
Record record_from_text(std::string_view text);

struct Comparison {
  std::string text;  // case by case and field by field, old and new; then a summary
  bool equal = true;
};
Comparison compare(const Record& before, const Record& after);

}  // namespace entrain::record
