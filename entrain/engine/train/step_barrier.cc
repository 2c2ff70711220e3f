#include "entrain/engine/train/step_barrier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <type_traits>

#include <unistd.h>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/train/prepared_step.h"

namespace entrain::engine {
namespace {

using std::chrono::nanoseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::int64_t kEventFields = 6;

nanoseconds since_epoch(SteadyTime time) {
  return time.time_since_epoch();
}

at::Tensor to_tensor(const std::vector<TimelineEvent>& events) {
  at::Tensor table = at::empty({std::ssize(events), kEventFields}, at::kLong);
  auto* row = table.data_ptr<std::int64_t>();
  for (const TimelineEvent& event : events) {
    *row++ = event.replica;
    *row++ = event.lane;
    *row++ = event.operation;
    *row++ = static_cast<std::int64_t>(event.category);
    *row++ = event.start.count();
    *row++ = event.finish.count();
  }
  return table;
}

void append_events(const at::Tensor& table,
                   nanoseconds offset,
                   std::vector<TimelineEvent>& events) {
  const auto* row = table.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < table.size(0); ++i, row += kEventFields) {
    events.push_back({static_cast<int>(row[0]),
                      static_cast<int>(row[1]),
                      static_cast<int>(row[2]),
                      static_cast<EventCategory>(row[3]),
                      nanoseconds(row[4]) + offset,
                      nanoseconds(row[5]) + offset});
  }
}

}  // namespace

// Sent as raw memory, between equal programs on machines of the same kind.
struct StepBarrier::Report {
  std::int64_t step = -1;
  double loss_sum = 0;
  double gradient_norm = 0;
  std::uint64_t host = 0;
  nanoseconds start{0};
  nanoseconds end{0};
  nanoseconds busy{0};
  nanoseconds finish{0};
  nanoseconds processor{0};
  DataTimes data;
  std::int64_t decode_threads = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t num_events = 0;
  std::int64_t stop = 0;
  std::int64_t save = 0;
  std::array<char, 32> next{};  // digest; zeros if there is no next step

  [[nodiscard]] std::string next_text() const {
    return next[0] == '\0' ? "no step" : std::string(next.begin(), next.end());
  }
  void set_next(const PreparedStep* prepared) {
    if (prepared != nullptr) {
      const std::string& text = prepared->digest;
      ENTRAIN_INVARIANT(text.size() == next.size(), concat("digest '", text, "'"));
      std::copy(text.begin(), text.end(), next.begin());
    }
  }
};

std::uint64_t host_id(std::string_view name, std::string_view boot_id) {
  return hash_of(concat(name, " ", boot_id));
}

std::uint64_t this_host() {
  static const std::uint64_t host = [] {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    std::string boot_id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
    return host_id(name.data(), boot_id);
  }();
  return host;
}

StepBarrier::StepBarrier(Comm& comm, const RankPlaces& places, std::uint64_t host)
    : comm_(comm), places_(places), host_(host), all_(places.all()) {}

std::vector<StepBarrier::Report> StepBarrier::exchange(const Report& own) {
  static_assert(std::is_trivially_copyable_v<Report> && sizeof(Report) % 8 == 0);
  at::Tensor words = at::empty({sizeof(Report) / 8}, at::kLong);
  std::memcpy(words.data_ptr(), &own, sizeof(Report));
  const at::Tensor joined = comm_.all_gather(words, all_);
  std::vector<Report> reports(all_.size());
  std::memcpy(reports.data(), joined.data_ptr(), all_.size() * sizeof(Report));
  return reports;
}

void StepBarrier::compare(const std::vector<Report>& reports, const PreparedStep* next) const {
  const Report& first = reports.front();
  for (std::size_t rank = 1; rank < reports.size(); ++rank) {
    if (reports[rank].next != first.next) {
      throw SystemFailure(concat(
          "ranks would run different steps: rank ",
          rank,
          " has ",
          reports[rank].next_text(),
          ", rank 0 ",
          first.next_text(),
          next != nullptr ? concat(" as digest of step ", next->step) : std::string(),
          ". The step depends on the run's configuration, model, plan, profile and index, which "
          "were equal when the run began, and on the program: are its versions and the "
          "machines' arithmetic equal?"));
    }
  }
}

void StepBarrier::open(const PreparedStep* first) {
  Report own;
  own.set_next(first);
  compare(exchange(own), first);
}

StepVerdict StepBarrier::close(const StepReport& end, const PreparedStep* next) {
  Report own;
  own.step = end.step;
  own.loss_sum = end.outcome.loss_sum;
  own.gradient_norm = end.outcome.gradient_norm;
  own.host = host_;
  own.start = since_epoch(end.start);
  own.end = since_epoch(end.end);
  own.busy = end.outcome.usage.busy;
  own.finish = end.outcome.usage.finish;
  own.processor = end.outcome.processor;
  own.data = end.data;
  own.decode_threads = end.decode_threads;
  own.peak_bytes = end.outcome.usage.peak_bytes;
  own.num_events = end.with_events ? std::ssize(end.outcome.events) : 0;
  own.stop = end.stop ? 1 : 0;
  own.save = end.save ? 1 : 0;
  own.set_next(next);
  const std::vector<Report> reports = exchange(own);

  std::map<std::uint64_t, nanoseconds> origins;  // by host: start of its first rank
  for (const Report& report : reports) {
    const auto [place, first] = origins.try_emplace(report.host, report.start);
    place->second = std::min(place->second, report.start);
  }
  StepVerdict verdict;
  verdict.save = reports.front().save != 0;
  StepRecord record;
  record.step = end.step;
  record.gradient_norm = reports.front().gradient_norm;
  const auto num_lanes = static_cast<std::size_t>(places_.num_lanes());
  const auto replicas = static_cast<std::size_t>(places_.num_ranks() / places_.ranks_per_replica());
  record.measured.lanes.assign(replicas, std::vector<LaneUsage>(num_lanes));
  record.processor_s.assign(replicas, std::vector<double>(num_lanes, 0.0));
  std::vector<nanoseconds> offsets;  // [rank]
  const Report* decoder = nullptr;   // for the rank: itself, or the one before it that shares
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const Report& report = reports[rank];
    const RankPlace place = places_.place_of(static_cast<int>(rank));
    const auto replica = static_cast<std::size_t>(place.replica);
    const auto lane = static_cast<std::size_t>(place.lane);
    const nanoseconds origin = origins.at(report.host);
    offsets.push_back(report.start - origin);
    verdict.stop = verdict.stop || report.stop != 0;
    record.loss += report.loss_sum;
    record.measured.makespan = std::max(record.measured.makespan, report.end - origin);
    LaneUsage& usage = record.measured.lanes[replica][lane];
    usage.busy = std::max(usage.busy, report.busy);
    usage.finish = std::max(usage.finish, report.finish + offsets.back());
    usage.peak_bytes = std::max(usage.peak_bytes, report.peak_bytes);
    record.decoded.add(report.data, static_cast<int>(report.decode_threads));
    decoder = report.data.shared == 0 ? &report : decoder;
    if (report.data.waited > record.data.waited) {
      record.data = report.data;
      record.data.decoding = decoder->data.decoding;
      record.decode_threads = static_cast<int>(decoder->decode_threads);
    }
    double& processor = record.processor_s[replica][lane];
    processor = std::max(processor, std::chrono::duration<double>(report.processor).count());
  }
  record.step_s = std::chrono::duration<double>(record.measured.makespan).count();
  const nanoseconds begun = origins.at(own.host);
  if (previous_end_.has_value()) {
    record.gap_s = std::chrono::duration<double>(begun - *previous_end_).count();
  }
  previous_end_ = begun + record.measured.makespan;
  if (end.with_events) {
    gather_events(end, reports, offsets, record);
  }
  if (!verdict.stop) {
    compare(reports, next);
  }
  if (comm_.rank() == 0) {
    verdict.record = std::move(record);
  }
  return verdict;
}

// The reports contain the number of events of each rank.
void StepBarrier::gather_events(const StepReport& end,
                                const std::vector<Report>& reports,
                                const std::vector<nanoseconds>& offsets,
                                StepRecord& record) {
  const auto tag = static_cast<std::uint64_t>(end.step);
  if (comm_.rank() != 0) {
    comm_.send({comm_.rank(), 0, kReportChannel}, tag, to_tensor(end.outcome.events));
    return;
  }
  append_events(to_tensor(end.outcome.events), offsets[0], record.measured.events);
  for (int rank = 1; rank < comm_.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    const at::Tensor table = comm_
                                 .post_receive({rank, 0, kReportChannel},
                                               tag,
                                               {reports[index].num_events, kEventFields},
                                               at::kLong)
                                 ->wait();
    append_events(table, offsets[index], record.measured.events);
  }
}

}  // namespace entrain::engine
