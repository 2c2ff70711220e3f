#include "entrain/core/report/doctor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/table.h"

namespace entrain {
namespace {

constexpr std::array<std::string_view, 7> kVerdictNames = {
    "none", "failed", "mismatch", "died", "stuck", "left", "cycle"};

// The dumps by rank; null where a rank left none.
using Ranks = std::vector<const RankDump*>;

// The call of the communicator that the rank had begun and not finished.
const LoggedCall* open_call(const RankDump& dump) {
  for (auto call = dump.calls.rbegin(); call != dump.calls.rend(); ++call) {
    if (call->communication && !call->finished()) {
      return &*call;
    }
    if (!call->communication) {
      return nullptr;  // calls of an operation come after it
    }
  }
  return nullptr;
}

const LoggedCall* last_operation(const RankDump& dump) {
  for (auto call = dump.calls.rbegin(); call != dump.calls.rend(); ++call) {
    if (!call->communication) {
      return &*call;
    }
  }
  return nullptr;
}

// Whether the rank has reached the collective: it is in it, or after it.
bool has_come(const RankDump& dump, const LoggedCall& collective) {
  return std::any_of(dump.calls.begin(), dump.calls.end(), [&](const LoggedCall& call) {
    return call.group == collective.group && call.number >= collective.number;
  });
}

// Ranks that `dump`'s rank waits for.
std::vector<int> waits_for(const RankDump& dump, const Ranks& ranks) {
  const LoggedCall* call = open_call(dump);
  if (call == nullptr) {
    return {};
  }
  if (call->group.empty()) {
    return {call->peer};
  }
  std::vector<int> missing;
  for (const int rank : call->group) {
    const bool known = rank >= 0 && at(rank) < ranks.size();
    if (rank != dump.rank &&
        (!known || ranks[at(rank)] == nullptr || !has_come(*ranks[at(rank)], *call))) {
      missing.push_back(rank);
    }
  }
  return missing;
}

std::string to_text(const LoggedCall& call) {
  std::string text = call.what;
  if (call.communication && call.group.empty()) {
    text += fmt::format(" of message {} on channel {}, rank {}, tag {}",
                        call.number,
                        call.channel,
                        call.peer,
                        call.tag);
  } else if (call.communication) {
    text += fmt::format(" {} over ranks {}", call.number, fmt::join(call.group, ", "));
  }
  return text;
}

RankFinding finding_of(const RankDump& dump, const Ranks& ranks) {
  RankFinding finding;
  finding.rank = dump.rank;
  finding.has_dump = true;
  finding.state = dump.state;
  finding.place = dump.place;
  finding.failure = dump.failure;
  finding.waits_for = waits_for(dump, ranks);
  const LoggedCall* operation = last_operation(dump);
  const LoggedCall* call = open_call(dump);
  const LoggedCall* latest = call != nullptr ? call : operation;
  if (latest != nullptr) {
    const LoggedCall& at = operation != nullptr ? *operation : *latest;
    finding.doing = fmt::format("step {}, {}{}",
                                at.step,
                                at.finished() && at.communication == false ? "behind " : "",
                                to_text(at));
    if (call != nullptr && call != &at) {
      finding.doing += ": " + to_text(*call);
    }
    const double until = dump.failed_s >= 0 ? dump.failed_s : dump.taken_s;
    finding.since_s =
        std::max(0.0, until - (latest->finished() ? latest->finish_s : latest->start_s));
  }
  return finding;
}

std::string name(const RankFinding& finding) {
  return finding.place.empty() ? fmt::format("rank {}", finding.rank)
                               : fmt::format("rank {} ({})", finding.rank, finding.place);
}

// The rank that failed first of those in `state`, by the hosts' clocks.
const RankDump* first_in(RankState state, const Ranks& ranks) {
  const RankDump* first = nullptr;
  for (const RankDump* dump : ranks) {
    if (dump != nullptr && dump->state == state &&
        (first == nullptr ||
         dump->origin_unix_s + dump->failed_s < first->origin_unix_s + first->failed_s)) {
      first = dump;
    }
  }
  return first;
}

void blame_failure(const RankDump& dump, Diagnosis& diagnosis) {
  const RankFinding& finding = diagnosis.ranks[at(dump.rank)];
  diagnosis.verdict = Verdict::kFailed;
  diagnosis.culprits = {dump.rank};
  diagnosis.summary =
      fmt::format("{} failed first, in {}: {}", name(finding), finding.doing, finding.failure);
}

// For a message the sender is the culprit; for a collective it is unknown, so the detecting rank is
// named.
void blame_mismatch(const RankDump& dump, Diagnosis& diagnosis) {
  const LoggedCall* call = open_call(dump);
  const bool message = call != nullptr && call->group.empty();
  const int culprit = message ? call->peer : dump.rank;
  diagnosis.verdict = Verdict::kMismatch;
  diagnosis.culprits = {culprit};
  diagnosis.summary = message ? fmt::format("rank {} sent {} a message other than planned: {}",
                                            culprit,
                                            name(diagnosis.ranks[at(dump.rank)]),
                                            dump.failure)
                              : fmt::format("{} joined a collective other than planned: {}",
                                            name(diagnosis.ranks[at(dump.rank)]),
                                            dump.failure);
}

// A cycle of waiting ranks, if there is one; else empty.
std::vector<int> find_cycle(const Diagnosis& diagnosis) {
  const std::size_t count = diagnosis.ranks.size();
  std::vector<char> colour(count, 0);  // 1: on the path, 2: done
  std::vector<int> path;
  std::vector<int> cycle;
  const auto visit = [&](const auto& self, int rank) -> bool {
    colour[at(rank)] = 1;
    path.push_back(rank);
    for (const int next : diagnosis.ranks[at(rank)].waits_for) {
      if (next < 0 || at(next) >= count || colour[at(next)] == 2) {
        continue;
      }
      if (colour[at(next)] == 1) {
        cycle.assign(std::find(path.begin(), path.end(), next), path.end());
        return true;
      }
      if (self(self, next)) {
        return true;
      }
    }
    path.pop_back();
    colour[at(rank)] = 2;
    return false;
  };
  for (std::size_t rank = 0; rank < count; ++rank) {
    if (colour[rank] == 0 && visit(visit, static_cast<int>(rank))) {
      break;
    }
  }
  std::sort(cycle.begin(), cycle.end());
  return cycle;
}

// Ranks that others wait for and that do not wait: the ends of chains of waits. Those that
// have not ended come first.
std::vector<int> ends_of_waiting(const Diagnosis& diagnosis) {
  std::set<int> awaited;
  for (const RankFinding& finding : diagnosis.ranks) {
    awaited.insert(finding.waits_for.begin(), finding.waits_for.end());
  }
  std::vector<int> ends;
  for (const RankFinding& finding : diagnosis.ranks) {
    if (finding.has_dump && awaited.contains(finding.rank) && finding.waits_for.empty()) {
      ends.push_back(finding.rank);
    }
  }
  std::stable_partition(ends.begin(), ends.end(), [&](int rank) {
    return diagnosis.ranks[at(rank)].state != RankState::kFinished;
  });
  return ends;
}

// For a running run: there are always some waits.
void describe_waiting(const std::vector<int>& ends, Diagnosis& diagnosis) {
  if (!ends.empty()) {
    const RankFinding& end = diagnosis.ranks[at(ends[0])];
    diagnosis.summary =
        fmt::format("no rank has failed; others wait for {}, which has been {:.1f} s in {}",
                    name(end),
                    end.since_s,
                    end.doing);
  }
}

// Whether what the others said when they failed shows that the ranks without a dump had ended: one
// lost a connection, which a process that only hangs keeps. Ranks that are threads share a process,
// so that one which hangs leaves a dump.
bool shows_an_end(const std::vector<int>& silent, const Ranks& ranks) {
  std::set<std::int64_t> processes;
  std::size_t dumps = 0;
  bool timed_out = false;
  for (const RankDump* dump : ranks) {
    if (dump == nullptr) {
      continue;
    }
    ++dumps;
    processes.insert(dump->process);
    timed_out = timed_out || dump->failure.find(" within ") != std::string::npos;
    for (const int rank : silent) {
      if (dump->failure.find(fmt::format("lost rank {} ", rank)) != std::string::npos) {
        return true;
      }
    }
  }
  return !timed_out || (dumps > 1 && processes.size() == 1);
}

void blame_silent(const std::vector<int>& silent, const Ranks& ranks, Diagnosis& diagnosis) {
  const bool died = shows_an_end(silent, ranks);
  diagnosis.verdict = died ? Verdict::kDied : Verdict::kStuck;
  diagnosis.culprits = silent;
  diagnosis.summary = fmt::format(
      "{} {} left no dump, {}",
      silent.size() == 1 ? "rank" : "ranks",
      fmt::join(silent, ", "),
      died ? "like a killed process, while the others waited"
           : "and the others waited for it until their deadline with its connections open: like a "
             "process "
             "that was stopped (SIGSTOP), hangs, or lost its network, not a killed one");
}

void blame_end(int rank, Diagnosis& diagnosis) {
  const RankFinding& end = diagnosis.ranks[at(rank)];
  diagnosis.culprits = {rank};
  if (end.state == RankState::kFinished) {
    diagnosis.verdict = Verdict::kLeft;
    diagnosis.summary = fmt::format("{} had ended while others waited for it", name(end));
    return;
  }
  diagnosis.verdict = Verdict::kStuck;
  diagnosis.summary =
      fmt::format("{} made no progress for {:.1f} s in {}, while others waited for it",
                  name(end),
                  end.since_s,
                  end.doing);
}

// Ranks of the cycle that began to wait only when one that waited for them had given up: they stood
// still before.
std::vector<int> late_in(const std::vector<int>& cycle,
                         const Ranks& ranks,
                         const Diagnosis& diagnosis) {
  std::vector<int> late;
  for (const int rank : cycle) {
    const RankDump& dump = *ranks[at(rank)];
    const double began_s = dump.origin_unix_s + open_call(dump)->start_s;
    if (std::any_of(cycle.begin(), cycle.end(), [&](int other) {
          const RankDump& waiting = *ranks[at(other)];
          const std::vector<int>& awaited = diagnosis.ranks[at(other)].waits_for;
          return std::find(awaited.begin(), awaited.end(), rank) != awaited.end() &&
                 waiting.failed_s >= 0 && waiting.origin_unix_s + waiting.failed_s < began_s;
        })) {
      late.push_back(rank);
    }
  }
  return late;
}

void blame_cycle(const std::vector<int>& cycle, const Ranks& ranks, Diagnosis& diagnosis) {
  const std::vector<int> late = late_in(cycle, ranks, diagnosis);
  if (late.size() == 1) {
    const RankFinding& finding = diagnosis.ranks[at(late[0])];
    diagnosis.verdict = Verdict::kStuck;
    diagnosis.culprits = late;
    diagnosis.summary =
        fmt::format("{} reached {} only after a rank that waited for it had given up",
                    name(finding),
                    finding.doing);
  } else if (!cycle.empty()) {
    diagnosis.verdict = Verdict::kCycle;
    diagnosis.culprits = cycle;
    diagnosis.summary = fmt::format("ranks {} wait for each other", fmt::join(cycle, ", "));
  }
}

// Where no rank failed by itself.
void blame_waiting(const Ranks& ranks, Diagnosis& diagnosis) {
  std::vector<int> died;
  bool failed = false;
  for (const RankFinding& finding : diagnosis.ranks) {
    if (!finding.has_dump) {
      died.push_back(finding.rank);
    }
    failed = failed || finding.state == RankState::kLost || finding.state == RankState::kStopped;
  }
  const std::vector<int> ends = ends_of_waiting(diagnosis);
  if (!died.empty()) {
    blame_silent(died, ranks, diagnosis);
  } else if (!failed) {
    describe_waiting(ends, diagnosis);
  } else if (!ends.empty()) {
    blame_end(ends[0], diagnosis);
  } else {
    blame_cycle(find_cycle(diagnosis), ranks, diagnosis);
  }
}

std::string table_text(const Diagnosis& diagnosis) {
  Table table({"rank", "place", "state", "waits for", "since", "doing"});
  for (const RankFinding& finding : diagnosis.ranks) {
    if (!finding.has_dump) {
      table.add_row({std::to_string(finding.rank), "-", "no dump", "-", "-", "-"});
      continue;
    }
    table.add_row(
        {std::to_string(finding.rank),
         finding.place,
         std::string(name_of(finding.state)),
         finding.waits_for.empty() ? "-" : fmt::format("{}", fmt::join(finding.waits_for, ", ")),
         fmt::format("{:.2f} s", finding.since_s),
         finding.doing});
  }
  return table.to_text();
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  return kVerdictNames.at(static_cast<std::size_t>(verdict));
}

Diagnosis diagnose(const std::vector<RankDump>& dumps) {
  ENTRAIN_INVARIANT(!dumps.empty(), "no dumps to diagnose");
  Ranks ranks(at(dumps.front().num_ranks), nullptr);
  for (const RankDump& dump : dumps) {
    ranks.at(at(dump.rank)) = &dump;
  }
  Diagnosis diagnosis;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    RankFinding absent;
    absent.rank = static_cast<int>(rank);
    diagnosis.ranks.push_back(ranks[rank] == nullptr ? absent : finding_of(*ranks[rank], ranks));
  }
  if (const RankDump* failed = first_in(RankState::kFailed, ranks)) {
    blame_failure(*failed, diagnosis);
  } else if (const RankDump* mismatch = first_in(RankState::kMismatch, ranks)) {
    blame_mismatch(*mismatch, diagnosis);
  } else {
    blame_waiting(ranks, diagnosis);
  }
  if (diagnosis.verdict == Verdict::kNone && diagnosis.summary.empty()) {
    diagnosis.summary = "no rank failed, and none waits for a rank without progress";
  }
  return diagnosis;
}

namespace {

std::vector<std::filesystem::path> dump_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with("rank-") && file.ends_with(".json")) {
      files.push_back(entry.path());
    }
  }
  return files;
}

constexpr std::string_view kFailurePrefix = "failure-";

}  // namespace

std::filesystem::path failure_path(const std::filesystem::path& run_folder, std::int64_t number) {
  return dump_path(run_folder, 0).parent_path() / fmt::format("{}{}", kFailurePrefix, number);
}

std::vector<std::int64_t> failures_in(const std::filesystem::path& run_folder) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  const std::filesystem::path folder = dump_path(run_folder, 0).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::int64_t number = 0;
    if (name.starts_with(kFailurePrefix)) {
      std::from_chars(name.data() + kFailurePrefix.size(), name.data() + name.size(), number);
    }
    if (number > 0) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::filesystem::path find_dumps(const std::filesystem::path& path) {
  for (const std::filesystem::path& folder : {path, dump_path(path, 0).parent_path()}) {
    if (!dump_files(folder).empty()) {
      return folder;
    }
  }
  const std::vector<std::int64_t> failures = failures_in(path);
  if (failures.empty()) {
    throw InvalidInput(
        fmt::format("'{}' holds no dumps (dumps/rank-N.json); a run writes them when a rank fails",
                    path.string()));
  }
  return failure_path(path, failures.back());
}

std::vector<RankDump> read_dumps(const std::filesystem::path& folder) {
  const std::vector<std::filesystem::path> files = dump_files(folder);
  std::vector<RankDump> dumps;
  for (const std::filesystem::path& file : files) {
    dumps.push_back(rank_dump_from_json(read_json_file(file), file.string()));
    if (dumps.back().num_ranks != dumps.front().num_ranks ||
        file.filename() != dump_path("", dumps.back().rank).filename()) {
      throw InvalidInput(fmt::format("{}: rank {} of {}; the other dumps are of {} ranks",
                                     file.string(),
                                     dumps.back().rank,
                                     dumps.back().num_ranks,
                                     dumps.front().num_ranks));
    }
  }
  std::sort(dumps.begin(), dumps.end(), [](const RankDump& a, const RankDump& b) {
    return a.rank < b.rank;
  });
  return dumps;
}

std::string to_text(const Diagnosis& diagnosis) {
  return fmt::format(
      "{}: {}\n\n{}", name_of(diagnosis.verdict), diagnosis.summary, table_text(diagnosis));
}

Json to_json(const Diagnosis& diagnosis) {
  Json ranks = Json::array();
  for (const RankFinding& finding : diagnosis.ranks) {
    Json json = {{"rank", finding.rank}, {"dump", finding.has_dump}};
    if (finding.has_dump) {
      json["state"] = name_of(finding.state);
      json["place"] = finding.place;
      json["doing"] = finding.doing;
      json["since_s"] = finding.since_s;
      json["waits_for"] = finding.waits_for;
      json["failure"] = finding.failure;
    }
    ranks.push_back(std::move(json));
  }
  return {{"verdict", name_of(diagnosis.verdict)},
          {"culprits", diagnosis.culprits},
          {"summary", diagnosis.summary},
          {"ranks", ranks}};
}

}  // namespace entrain
