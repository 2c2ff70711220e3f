#include "entrain/core/spec/assignment.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/spec/workload.h"

namespace entrain {
namespace {

constexpr int kAssignmentVersion = 1;

// Finds samples by id, with their numbers of segments and tokens.
class BatchIndex {
 public:
  explicit BatchIndex(const BatchNames& batch) : batch_(batch) {
    ENTRAIN_INVARIANT(batch.samples.size() == batch.work.size(),
                      "a batch with other numbers of ids and works");
    for (std::size_t i = 0; i < batch.samples.size(); ++i) {
      if (!index_of_.emplace(batch.samples[i], static_cast<int>(i)).second) {
        throw InvalidInput(
            fmt::format("sample '{}' occurs twice in the global batch", batch.samples[i]));
      }
    }
  }

  [[nodiscard]] int num_modules() const { return static_cast<int>(batch_.modules.size()); }
  [[nodiscard]] int llm_module() const { return num_modules() - 1; }
  [[nodiscard]] const std::string& module(int index) const { return batch_.modules[at(index)]; }
  [[nodiscard]] int size() const { return static_cast<int>(batch_.samples.size()); }
  [[nodiscard]] const std::string& id(int sample) const { return batch_.samples[at(sample)]; }
  [[nodiscard]] int num_segments(int sample, int encoder) const {
    return static_cast<int>(batch_.work[at(sample)].segments[at(encoder)].size());
  }
  [[nodiscard]] std::int64_t llm_tokens(int sample) const {
    return batch_.work[at(sample)].llm_tokens;
  }

  [[nodiscard]] int find(const std::string& id, const std::string& where) const {
    const auto entry = index_of_.find(id);
    if (entry == index_of_.end()) {
      throw InvalidInput(fmt::format(
          "{}: sample '{}' is not among the {} samples of the global batch", where, id, size()));
    }
    return entry->second;
  }

 private:
  const BatchNames& batch_;
  std::unordered_map<std::string, int> index_of_;
};

// One JSON entry a run of neighbouring segments of one sample, so that reading restores the packing
// order.
Json encoder_slot_json(const Slot& slot, int encoder, const BatchIndex& batch) {
  Json entries = Json::array();
  for (std::size_t begin = 0; begin < slot.size();) {
    const int sample = slot[begin].sample;
    std::vector<int> segments;
    std::size_t end = begin;
    for (; end < slot.size() && slot[end].sample == sample; ++end) {
      segments.push_back(slot[end].segment);
    }
    std::vector<int> whole(at(batch.num_segments(sample, encoder)));
    std::iota(whole.begin(), whole.end(), 0);
    if (segments == whole) {
      entries.push_back(batch.id(sample));
    } else {
      entries.push_back({{"sample", batch.id(sample)}, {"segments", segments}});
    }
    begin = end;
  }
  return entries;
}

Json llm_slot_json(const Slot& slot, const BatchIndex& batch) {
  Json entries = Json::array();
  for (const WorkItem& item : slot) {
    if (item.is_chunk()) {
      entries.push_back(
          {{"sample", batch.id(item.sample)}, {"tokens", {item.token_begin, item.token_end}}});
    } else {
      entries.push_back(batch.id(item.sample));
    }
  }
  return entries;
}

Json replica_json(const ReplicaAssignment& replica, const BatchIndex& batch) {
  Json modules = Json::object();
  for (int module = 0; module < batch.num_modules(); ++module) {
    Json slots = Json::array();
    for (const Slot& slot : replica.modules[at(module)]) {
      slots.push_back(module == batch.llm_module() ? llm_slot_json(slot, batch)
                                                   : encoder_slot_json(slot, module, batch));
    }
    modules[batch.module(module)] = std::move(slots);
  }
  Json deferred = Json::array();
  for (const Deferral& deferral : deferrals(replica)) {
    deferred.push_back({{"sample", batch.id(deferral.sample)},
                        {"module", batch.module(deferral.module)},
                        {"from_slot", deferral.from_slot},
                        {"to_slot", deferral.to_slot}});
  }
  return {{"num_slots", replica.num_slots}, {"modules", modules}, {"deferred", deferred}};
}

Json balance_json(const SlotBalance& balance) {
  return {{"mean_s", balance.mean_s},
          {"std_s", balance.std_s},
          {"cv", balance.cv},
          {"max_over_mean", balance.max_over_mean},
          {"floor_cv", balance.floor_cv}};
}

void read_balance(ObjectReader& reader, SlotBalance& balance) {
  balance.mean_s = reader.optional("mean_s", 0.0);
  balance.std_s = reader.optional("std_s", 0.0);
  balance.cv = reader.optional("cv", 0.0);
  balance.max_over_mean = reader.optional("max_over_mean", 0.0);
  balance.floor_cv = reader.optional("floor_cv", 0.0);
}

Json stats_json(const AssignmentStats& stats) {
  Json document = Json::object();
  for (const auto& [name, balance] : stats.modules) {
    document[name] = balance_json(balance);
    for (const ReplicaBalance& replica : balance.replicas) {
      document[name]["replicas"].push_back(balance_json(replica));
      document[name]["replicas"].back()["num_slots"] = replica.num_slots;
    }
  }
  document["makespan_s"] = stats.makespan_s;
  document["lower_bound_s"] = stats.lower_bound_s;
  document["gap"] = stats.gap;
  document["assign_ms"] = stats.assign_ms;
  return document;
}

AssignmentStats read_stats(ObjectReader reader, const BatchIndex& batch) {
  AssignmentStats stats;
  for (int module = 0; module < batch.num_modules(); ++module) {
    const std::string name = batch.module(module);
    if (!reader.has(name)) {
      continue;
    }
    ObjectReader entry = reader.object(name);
    ModuleBalance& balance = stats.modules[name];
    read_balance(entry, balance);
    for (const auto& [value, where] : entry.array("replicas")) {
      ObjectReader replica(*value, where);
      read_balance(replica, balance.replicas.emplace_back());
      balance.replicas.back().num_slots = replica.optional("num_slots", 0);
      replica.finish();
    }
    entry.finish();
  }
  stats.makespan_s = reader.optional("makespan_s", 0.0);
  stats.lower_bound_s = reader.optional("lower_bound_s", 0.0);
  stats.gap = reader.optional("gap", 0.0);
  stats.assign_ms = reader.optional("assign_ms", 0.0);
  reader.finish();
  return stats;
}

// Reads slots and refuses work that is placed twice anywhere in the step.
class PlacementReader {
 public:
  explicit PlacementReader(const BatchIndex& batch) : batch_(batch), ranges_(at(batch.size())) {
    for (int encoder = 0; encoder < batch.llm_module(); ++encoder) {
      placed_.emplace_back(at(batch.size()));
      for (int sample = 0; sample < batch.size(); ++sample) {
        placed_.back()[at(sample)].resize(at(batch.num_segments(sample, encoder)));
      }
    }
  }

  Slot read_slot(const Json& list, int module, const std::string& where) {
    Slot slot;
    for (const auto& [entry, entry_where] : elements_of(list, where)) {
      if (module == batch_.llm_module()) {
        slot.push_back(read_llm_entry(*entry, entry_where));
      } else {
        read_encoder_entry(*entry, module, entry_where, slot);
      }
    }
    return slot;
  }

 private:
  void read_encoder_entry(const Json& entry, int encoder, const std::string& where, Slot& slot) {
    std::vector<std::pair<int, std::string>> segments;
    int sample = 0;
    if (entry.is_string()) {
      sample = batch_.find(entry.get<std::string>(), where);
      for (int segment = 0; segment < batch_.num_segments(sample, encoder); ++segment) {
        segments.emplace_back(segment, where);
      }
    } else {
      ObjectReader reader(entry, where);
      sample = batch_.find(reader.required<std::string>("sample"), reader.where("sample"));
      reader.at("segments");
      for (const auto& [value, value_where] : reader.array("segments")) {
        segments.emplace_back(value_as<int>(*value, value_where), value_where);
      }
      reader.finish();
    }
    const int num_segments = batch_.num_segments(sample, encoder);
    if (segments.empty()) {
      throw InvalidInput(fmt::format("{}: sample '{}' has no segment in module '{}' here",
                                     where,
                                     batch_.id(sample),
                                     batch_.module(encoder)));
    }
    for (const auto& [segment, segment_where] : segments) {
      if (segment < 0 || segment >= num_segments) {
        throw InvalidInput(
            fmt::format("{}: segment {} of sample '{}' does not exist; it has {} in module '{}'",
                        segment_where,
                        segment,
                        batch_.id(sample),
                        num_segments,
                        batch_.module(encoder)));
      }
      char& placed = placed_[at(encoder)][at(sample)][at(segment)];
      if (placed != 0) {
        throw InvalidInput(fmt::format("{}: segment {} of sample '{}' is placed twice",
                                       segment_where,
                                       segment,
                                       batch_.id(sample)));
      }
      placed = 1;
      slot.push_back({.sample = sample, .segment = segment});
    }
  }

  WorkItem read_llm_entry(const Json& entry, const std::string& where) {
    WorkItem item;
    if (entry.is_string()) {
      item.sample = batch_.find(entry.get<std::string>(), where);
    } else {
      ObjectReader reader(entry, where);
      item.sample = batch_.find(reader.required<std::string>("sample"), reader.where("sample"));
      reader.at("tokens");
      const auto range = reader.array("tokens");
      if (range.size() != 2) {
        reader.fail("tokens", "two numbers are needed, [from, to]");
      }
      item.token_begin = value_as<std::int64_t>(*range[0].first, range[0].second);
      item.token_end = value_as<std::int64_t>(*range[1].first, range[1].second);
      const std::int64_t tokens = batch_.llm_tokens(item.sample);
      if (item.token_begin < 0 || item.token_begin >= item.token_end || item.token_end > tokens) {
        reader.fail("tokens",
                    fmt::format("[{}, {}] is not a range within the {} tokens of sample '{}'",
                                item.token_begin,
                                item.token_end,
                                tokens,
                                batch_.id(item.sample)));
      }
      reader.finish();
    }
    claim_tokens(item, where);
    return item;
  }

  void claim_tokens(const WorkItem& item, const std::string& where) {
    const std::int64_t end =
        item.is_chunk() ? item.token_end : std::numeric_limits<std::int64_t>::max();
    for (const auto& [other_begin, other_end] : ranges_[at(item.sample)]) {
      if (item.token_begin < other_end && other_begin < end) {
        throw InvalidInput(fmt::format(
            "{}: sample '{}' is placed twice in the LLM", where, batch_.id(item.sample)));
      }
    }
    ranges_[at(item.sample)].emplace_back(item.token_begin, end);
  }

  const BatchIndex& batch_;
  std::vector<std::vector<std::vector<char>>> placed_;  // [encoder][sample][segment]
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> ranges_;  // [sample]
};

// `deferred` repeats information of the slots, so it must match them.
void check_deferred(ObjectReader& reader,
                    const ReplicaAssignment& replica,
                    const BatchIndex& batch) {
  if (!reader.has("deferred")) {
    return;
  }
  using Entry = std::tuple<int, int, int, int>;
  std::vector<Entry> given;
  for (const auto& [value, where] : reader.array("deferred")) {
    ObjectReader entry(*value, where);
    const int sample = batch.find(entry.required<std::string>("sample"), entry.where("sample"));
    const auto name = entry.required<std::string>("module");
    int module = 0;
    while (module < batch.llm_module() && batch.module(module) != name) {
      ++module;
    }
    if (module == batch.llm_module()) {
      entry.fail("module", fmt::format("'{}' is not an encoder of the model", name));
    }
    given.emplace_back(
        module, entry.required<int>("from_slot"), sample, entry.required<int>("to_slot"));
    entry.finish();
  }
  std::vector<Entry> placed;
  for (const Deferral& deferral : deferrals(replica)) {
    placed.emplace_back(deferral.module, deferral.from_slot, deferral.sample, deferral.to_slot);
  }
  std::sort(given.begin(), given.end());
  std::sort(placed.begin(), placed.end());
  if (given != placed) {
    reader.fail("deferred",
                fmt::format("does not match the slots: {} entries given, {} samples deferred "
                            "by the slots",
                            given.size(),
                            placed.size()));
  }
}

ReplicaAssignment read_replica(const Json& document,
                               const std::string& where,
                               const BatchIndex& batch,
                               PlacementReader& placement) {
  ObjectReader reader(document, where);
  ReplicaAssignment replica;
  replica.num_slots = reader.required<int>("num_slots");
  if (replica.num_slots < 1) {
    reader.fail("num_slots", fmt::format("{} given; at least 1 is needed", replica.num_slots));
  }
  ObjectReader modules = reader.object("modules");
  for (int module = 0; module < batch.num_modules(); ++module) {
    const std::string name = batch.module(module);
    modules.at(name);
    ModuleSlots slots;
    for (const auto& [list, list_where] : modules.array(name)) {
      slots.push_back(placement.read_slot(*list, module, list_where));
    }
    if (slots.size() != at(replica.num_slots)) {
      modules.fail(name,
                   fmt::format("{} slots given, but num_slots is {}; empty slots are written []",
                               slots.size(),
                               replica.num_slots));
    }
    replica.modules.push_back(std::move(slots));
  }
  modules.finish();
  check_deferred(reader, replica, batch);
  reader.finish();
  return replica;
}

}  // namespace

std::vector<Deferral> deferrals(const ReplicaAssignment& replica) {
  std::vector<Deferral> result;
  if (replica.modules.empty()) {
    return result;
  }
  std::unordered_map<int, int> llm_slot;  // first slot of each sample
  const ModuleSlots& llm = replica.modules.back();
  for (std::size_t slot = 0; slot < llm.size(); ++slot) {
    for (const WorkItem& item : llm[slot]) {
      llm_slot.emplace(item.sample, static_cast<int>(slot));
    }
  }
  for (std::size_t module = 0; module + 1 < replica.modules.size(); ++module) {
    const ModuleSlots& slots = replica.modules[module];
    std::unordered_map<int, std::size_t> last_seen;  // slot of the latest entry of each sample
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      for (const WorkItem& item : slots[slot]) {
        const auto target = llm_slot.find(item.sample);
        const auto seen = last_seen.find(item.sample);
        if (target == llm_slot.end() || target->second <= static_cast<int>(slot) ||
            (seen != last_seen.end() && seen->second == slot)) {
          continue;
        }
        last_seen[item.sample] = slot;
        result.push_back(
            {item.sample, static_cast<int>(module), static_cast<int>(slot), target->second});
      }
    }
  }
  return result;
}

std::int64_t num_chunks(const ReplicaAssignment& replica) {
  std::int64_t chunks = 0;
  for (const Slot& slot : replica.modules.back()) {
    chunks += std::ranges::count_if(slot, &WorkItem::is_chunk);
  }
  return chunks;
}

BatchNames batch_names(const ModelSpec& model, std::span<const SampleSizes> batch) {
  BatchNames names;
  names.modules = module_names(model);
  for (const SampleSizes& sample : batch) {
    names.samples.push_back(sample.id);
    names.work.push_back(sample_work(model, sample));
  }
  return names;
}

Json to_json(const StepAssignment& assignment, const BatchNames& batch) {
  const BatchIndex index(batch);
  Json replicas = Json::array();
  for (const ReplicaAssignment& replica : assignment.replicas) {
    ENTRAIN_INVARIANT(replica.modules.size() == batch.modules.size(),
                      "an assignment holds every module of its batch");
    replicas.push_back(replica_json(replica, index));
  }
  return {{"version", kAssignmentVersion},
          {"policy", assignment.policy},
          {"step", assignment.step},
          {"seed", assignment.seed},
          {"replicas", replicas},
          {"stats", stats_json(assignment.stats)}};
}

StepAssignment assignment_from_json(const Json& document,
                                    const BatchNames& batch,
                                    const std::string& where) {
  const BatchIndex index(batch);
  PlacementReader placement(index);
  ObjectReader reader(document, where);
  reader.check_version(kAssignmentVersion);
  StepAssignment assignment;
  assignment.policy = reader.optional("policy", std::string());
  assignment.step = reader.optional("step", std::int64_t{0});
  assignment.seed = reader.optional("seed", std::uint64_t{0});
  reader.at("replicas");
  for (const auto& [replica, replica_where] : reader.array("replicas")) {
    assignment.replicas.push_back(read_replica(*replica, replica_where, index, placement));
  }
  if (assignment.replicas.empty()) {
    reader.fail("replicas", "the list is empty; at least one replica is needed");
  }
  assignment.stats = read_stats(reader.optional_object("stats"), index);
  reader.finish();
  return assignment;
}

std::string digest(const StepAssignment& assignment) {
  std::string text;
  for (const ReplicaAssignment& replica : assignment.replicas) {
    text += fmt::format("replica {}\n", replica.num_slots);
    for (const ModuleSlots& slots : replica.modules) {
      text += "module\n";
      for (const Slot& slot : slots) {
        for (const WorkItem& item : slot) {
          text += fmt::format(
              "{} {} {} {};", item.sample, item.segment, item.token_begin, item.token_end);
        }
        text += '\n';
      }
    }
  }
  return digest_of(text);
}

}  // namespace entrain
