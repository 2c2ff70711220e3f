// Which rank broke a run: the aligned dumps of all ranks.
//
// Read first: diagnose(). It uses the order of waits, not clocks; times only break ties
// among ranks that failed themselves. docs/faults.md explains each verdict.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/base/call_log.h"

namespace entrain {

enum class Verdict : std::uint8_t {
  kNone,      // nothing failed, or the culprit is unknown
  kFailed,    // the culprit failed itself; the others followed
  kMismatch,  // the culprit's message or collective was not the planned one
  kDied,      // the culprit left no dump, and its connections closed
  kStuck,     // the culprit was in one of its own operations while others waited; or left no
              // dump though its connections stayed open
  kLeft,      // the culprit had ended while others waited for it
  kCycle,     // the culprits wait for each other
};
std::string_view name_of(Verdict verdict);

// The state of one rank.
struct RankFinding {
  int rank = 0;
  bool has_dump = false;
  RankState state = RankState::kRunning;
  std::string place;           // "replica 0 lane 1"
  std::string doing;           // last operation, and the call in it; empty without a dump
  double since_s = 0;          // how long it had been in it when the dump was taken
  std::vector<int> waits_for;  // ranks, rising
  std::string failure;
};

struct Diagnosis {
  Verdict verdict = Verdict::kNone;
  std::vector<int> culprits;       // rising; empty for kNone
  std::string summary;             // one sentence
  std::vector<RankFinding> ranks;  // [rank]
};

// Requires  at least one dump, all of one run (equal num_ranks), none twice.
Diagnosis diagnose(const std::vector<RankDump>& dumps);

// dumps/failure-N in a run's folder: dumps of failures before a restart.
std::filesystem::path failure_path(const std::filesystem::path& run_folder, std::int64_t number);
// Their numbers, rising.
std::vector<std::int64_t> failures_in(const std::filesystem::path& run_folder);

// The folder of `path` that holds dumps: `path` itself, its dumps, or if there are none those of
// its last failure.
// Throws  InvalidInput if there are none.
std::filesystem::path find_dumps(const std::filesystem::path& path);

// All dumps of a folder from find_dumps(), by rank.
// Throws  InvalidInput if one is damaged or of another run than the others.
std::vector<RankDump> read_dumps(const std::filesystem::path& folder);

std::string to_text(const Diagnosis& diagnosis);
Json to_json(const Diagnosis& diagnosis);

}  // namespace entrain
