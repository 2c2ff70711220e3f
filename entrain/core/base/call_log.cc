#include "entrain/core/base/call_log.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "entrain/core/base/text.h"

namespace entrain {
namespace {

constexpr int kVersion = 1;
constexpr std::array<std::string_view, 6> kStateNames = {
    "running", "failed", "lost", "mismatch", "stopped", "finished"};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Json to_json(const LoggedCall& call) {
  Json json = {{"step", call.step}, {"what", call.what}};
  if (call.communication) {
    json["communication"] = true;
    json["number"] = call.number;
    if (!call.group.empty()) {
      json["group"] = call.group;
    } else {
      json["peer"] = call.peer;
      json["channel"] = call.channel;
      json["tag"] = call.tag;
    }
  }
  json["start_s"] = call.start_s;
  if (call.finished()) {
    json["finish_s"] = call.finish_s;
  }
  return json;
}

LoggedCall call_from_json(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  LoggedCall call;
  call.step = reader.required<std::int64_t>("step");
  call.what = reader.required<std::string>("what");
  call.communication = reader.optional("communication", false);
  call.number = reader.optional<std::int64_t>("number", -1);
  call.group = reader.list<int>("group");
  call.peer = reader.optional("peer", -1);
  call.channel = reader.optional("channel", -1);
  call.tag = reader.optional<std::uint64_t>("tag", 0);
  call.start_s = reader.required<double>("start_s");
  call.finish_s = reader.optional<double>("finish_s", -1);
  reader.finish();
  return call;
}

}  // namespace

std::string_view name_of(RankState state) {
  return kStateNames.at(static_cast<std::size_t>(state));
}

Json to_json(const RankDump& dump) {
  Json calls = Json::array();
  for (const LoggedCall& call : dump.calls) {
    calls.push_back(to_json(call));
  }
  return {{"version", kVersion},
          {"rank", dump.rank},
          {"num_ranks", dump.num_ranks},
          {"place", dump.place},
          {"host", dump.host},
          {"process", dump.process},
          {"state", name_of(dump.state)},
          {"failure", dump.failure},
          {"failed_s", dump.failed_s},
          {"taken_s", dump.taken_s},
          {"origin_unix_s", dump.origin_unix_s},
          {"calls", calls}};
}

RankDump rank_dump_from_json(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  reader.check_version(kVersion);
  RankDump dump;
  dump.rank = reader.required<int>("rank");
  dump.num_ranks = reader.required<int>("num_ranks");
  // More ranks than this are a damaged file, not a cluster.
  if (dump.num_ranks < 1 || dump.num_ranks > 65'536 || dump.rank < 0 ||
      dump.rank >= dump.num_ranks) {
    reader.fail("rank", fmt::format("rank {} of {}", dump.rank, dump.num_ranks));
  }
  dump.place = reader.required<std::string>("place");
  dump.host = reader.required<std::string>("host");
  dump.process = reader.required<std::int64_t>("process");
  const auto state = reader.required<std::string>("state");
  const auto found = std::find(kStateNames.begin(), kStateNames.end(), state);
  if (found == kStateNames.end()) {
    reader.fail("state", fmt::format("'{}' is not a rank's state", state));
  }
  dump.state = static_cast<RankState>(found - kStateNames.begin());
  dump.failure = reader.required<std::string>("failure");
  dump.failed_s = reader.required<double>("failed_s");
  dump.taken_s = reader.required<double>("taken_s");
  dump.origin_unix_s = reader.required<double>("origin_unix_s");
  for (const auto& [call, call_where] : reader.array("calls")) {
    dump.calls.push_back(call_from_json(*call, call_where));
  }
  reader.finish();
  return dump;
}

std::filesystem::path dump_path(const std::filesystem::path& run_folder, int rank) {
  return run_folder / "dumps" / fmt::format("rank-{}.json", rank);
}

CallLog::CallLog(int rank, int num_ranks, std::string place, std::size_t capacity)
    : capacity_(capacity), origin_(Clock::now()) {
  ENTRAIN_INVARIANT(capacity >= 1, "a log that keeps nothing");
  dump_.rank = rank;
  dump_.num_ranks = num_ranks;
  dump_.place = std::move(place);
  dump_.host = host_name();
  dump_.process = ::getpid();
  dump_.origin_unix_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double CallLog::now_s() const {
  return std::chrono::duration<double>(Clock::now() - origin_).count();
}

std::uint64_t CallLog::begin(LoggedCall call) {
  const MutexLock lock(mutex_);
  step_ = call.step >= 0 ? call.step : step_;
  call.step = step_;
  call.start_s = now_s();
  calls_.push_back(std::move(call));
  if (calls_.size() > capacity_) {
    calls_.pop_front();
    ++first_;
  }
  return first_ + calls_.size() - 1;
}

void CallLog::finish(std::uint64_t serial) {
  const MutexLock lock(mutex_);
  if (serial >= first_) {
    calls_[serial - first_].finish_s = now_s();
  }
}

void CallLog::set_state(RankState state, const std::string& failure) {
  const MutexLock lock(mutex_);
  if (dump_.state != RankState::kRunning) {
    return;
  }
  dump_.state = state;
  if (state != RankState::kFinished) {
    dump_.failure = failure;
    dump_.failed_s = now_s();
  }
}

bool CallLog::in_communication() const {
  const MutexLock lock(mutex_);
  return !calls_.empty() && calls_.back().communication && !calls_.back().finished();
}

void CallLog::vanish() {
  const MutexLock lock(mutex_);
  vanished_ = true;
}

bool CallLog::vanished() const {
  const MutexLock lock(mutex_);
  return vanished_;
}

std::string CallLog::last_operations(std::size_t count) const {
  const MutexLock lock(mutex_);
  std::vector<std::string> operations;
  for (auto call = calls_.rbegin(); call != calls_.rend() && operations.size() < count; ++call) {
    if (call->finished() && !call->communication) {
      operations.push_back(call->what);
    }
  }
  std::reverse(operations.begin(), operations.end());
  return join(operations, "; ");
}

RankDump CallLog::dump() const {
  const MutexLock lock(mutex_);
  RankDump dump = dump_;
  dump.taken_s = now_s();
  dump.calls.assign(calls_.begin(), calls_.end());
  return dump;
}

}  // namespace entrain
