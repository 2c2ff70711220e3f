#include "entrain/core/report/trace.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/json_text.h"
#include "entrain/core/report/critical_path.h"
#include "entrain/core/simulator/simulator.h"

namespace entrain {
namespace {

constexpr int kComputeThread = 0;
constexpr int kSendThread = 1;
constexpr int kReceiveThread = 2;

std::string microseconds(std::chrono::nanoseconds time) {
  return fmt::format("{}.{:03}", time.count() / 1000, time.count() % 1000);
}

std::string_view category_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kForward:
    case OperationKind::kBackward:
    case OperationKind::kBackwardInput:
    case OperationKind::kBackwardWeight:
    case OperationKind::kOptimizerStep:
      return "compute";
    default:
      return "communication";
  }
}

class TraceWriter {
 public:
  TraceWriter(std::ostream& out,
              const Program& program,
              const StepCosts& costs,
              std::span<const std::string> sample_ids)
      : out_(out), program_(program), costs_(costs), sample_ids_(sample_ids) {}

  void write(const Timeline& timeline, const std::string& label) {
    out_ << "{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"label\": " << json_text(label)
         << ", \"schedule\": " << json_text(program_.schedule) << "},\n\"traceEvents\": [";
    for (int replica = 0; replica < static_cast<int>(program_.replicas.size()); ++replica) {
      for (int lane = 0; lane < program_.num_lanes(); ++lane) {
        write_names(replica, lane, label);
      }
    }
    for (const TimelineEvent& event : timeline.events) {
      write_event(event);
    }
    const auto memory = memory_timeline(program_, costs_, timeline);
    for (int replica = 0; replica < static_cast<int>(program_.replicas.size()); ++replica) {
      for (int lane = 0; lane < program_.num_lanes(); ++lane) {
        write_memory(process(replica, lane), memory[at(replica)][at(lane)]);
      }
    }
    out_ << "\n]}\n";
  }

 private:
  [[nodiscard]] int process(int replica, int lane) const {
    return replica * program_.num_lanes() + lane;
  }

  void next() {
    out_ << (first_ ? "\n" : ",\n");
    first_ = false;
  }

  void write_metadata(std::string_view name, int process, int thread, const std::string& args) {
    next();
    out_ << fmt::format(R"({{"name": "{}", "ph": "M", "pid": {}, "tid": {}, "args": {{{}}}}})",
                        name,
                        process,
                        thread,
                        args);
  }

  void write_names(int replica, int lane, const std::string& label) {
    const int pid = process(replica, lane);
    const std::string name =
        fmt::format("replica {} lane {}: {}", replica, lane, stages_of_lane(program_, lane));
    write_metadata("process_name", pid, 0, "\"name\": " + json_text(name));
    write_metadata("process_labels", pid, 0, "\"labels\": " + json_text(label));
    write_metadata("process_sort_index", pid, 0, fmt::format("\"sort_index\": {}", pid));
    write_metadata("thread_name", pid, kComputeThread, R"("name": "compute")");
    write_metadata("thread_name", pid, kSendThread, R"("name": "send")");
    write_metadata("thread_name", pid, kReceiveThread, R"("name": "receive")");
  }

  void write_event(const TimelineEvent& event) {
    ENTRAIN_INVARIANT(event.replica >= 0 && at(event.replica) < program_.replicas.size() &&
                          event.lane >= 0 && event.lane < program_.num_lanes(),
                      "an event on a lane outside its program");
    const ReplicaProgram& replica = program_.replicas[at(event.replica)];
    const std::vector<Operation>& list = replica.lanes[at(event.lane)];
    ENTRAIN_INVARIANT(event.operation >= 0 && at(event.operation) < list.size(),
                      "an event of an operation outside its program");
    const Operation& operation = list[at(event.operation)];
    const bool wait = event.category == EventCategory::kWait;
    int thread = kComputeThread;
    if (event.category == EventCategory::kSend) {
      thread = kSendThread;
    } else if (event.category == EventCategory::kReceive) {
      thread = kReceiveThread;
    }
    next();
    out_ << fmt::format(
        R"({{"name": "{}", "cat": "{}", "ph": "X", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{"replica": {}, "lane": {})",
        wait ? "wait" : name_of(operation.kind),
        wait ? "wait" : category_of(operation.kind),
        process(event.replica, event.lane),
        thread,
        microseconds(event.start),
        microseconds(event.finish - event.start),
        event.replica,
        event.lane);
    if (operation.unit.module >= 0) {
      write_unit(operation.unit, group_of(replica, operation.unit));
    }
    out_ << "}}";
  }

  void write_memory(int process, const std::vector<MemoryStep>& steps) {
    for (const MemoryStep& step : steps) {
      next();
      out_ << fmt::format(
          R"({{"name": "activation bytes", "ph": "C", "pid": {}, "ts": {}, "args": {{"bytes": {}}}}})",
          process,
          microseconds(step.time),
          step.bytes);
    }
  }

  // Ids in packing order, each once.
  void write_unit(const UnitKey& unit, const Group& group) {
    std::int64_t tokens = 0;
    std::vector<int> samples;
    std::string ids;
    for (const WorkItem& item : group.items) {
      tokens += item.is_chunk()
                    ? item.token_end - item.token_begin
                    : costs_.modules[at(unit.module)].tokens[at(costs_.unit_of(unit.module, item))];
      if (std::find(samples.begin(), samples.end(), item.sample) == samples.end()) {
        ids += (samples.empty() ? "" : ", ") + json_text(sample_ids_[at(item.sample)]);
        samples.push_back(item.sample);
      }
    }
    std::vector<int> llm_slots = group.llm_slots;  // rising; once for each group of the slot
    llm_slots.erase(std::unique(llm_slots.begin(), llm_slots.end()), llm_slots.end());
    out_ << fmt::format(
        R"(, "module": {}, "stage": {}, "slot": {}, "part": [{}], "samples": [{}], "tokens": {})",
        json_text(module_name(program_, unit.module)),
        unit.stage,
        unit.slot,
        fmt::join(llm_slots, ", "),
        ids,
        tokens);
  }

  std::ostream& out_;
  const Program& program_;
  const StepCosts& costs_;
  std::span<const std::string> sample_ids_;
  bool first_ = true;
};

}  // namespace

void write_trace(const std::filesystem::path& path,
                 const Program& program,
                 const Timeline& timeline,
                 const StepCosts& costs,
                 std::span<const std::string> sample_ids,
                 const std::string& label) {
  write_file(path, [&](std::ostream& out) {
    write_trace(out, program, timeline, costs, sample_ids, label);
  });
}

void write_trace(std::ostream& out,
                 const Program& program,
                 const Timeline& timeline,
                 const StepCosts& costs,
                 std::span<const std::string> sample_ids,
                 const std::string& label) {
  if (timeline.events.empty()) {
    throw InvalidInput("a trace needs a timeline with events; this one was made without");
  }
  ENTRAIN_INVARIANT(
      sample_ids.size() == at(costs.num_samples),
      fmt::format("{} sample ids for a batch of {} samples", sample_ids.size(), costs.num_samples));
  TraceWriter(out, program, costs, sample_ids).write(timeline, label);
}

}  // namespace entrain
