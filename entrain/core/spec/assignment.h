// One step's assignment: which work runs in which slot of which replica.
//
// In memory samples are indices into the step's global batch; ids appear in JSON only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"
#include "entrain/core/spec/workload.h"

namespace entrain {

// The unit that is placed: a segment in an encoder slot, a sample (or a token range of it) in an
// LLM slot.
struct WorkItem {
  int sample = 0;                // index into the global batch
  int segment = -1;              // encoder modules: index of the segment; LLM: -1
  std::int64_t token_begin = 0;  // LLM chunk [token_begin, token_end)
  std::int64_t token_end = -1;   // -1: the whole sample
  [[nodiscard]] bool is_chunk() const { return token_end >= 0; }
  bool operator==(const WorkItem&) const = default;
};

using Slot = std::vector<WorkItem>;     // in packing order
using ModuleSlots = std::vector<Slot>;  // [slot]

struct ReplicaAssignment {
  int num_slots = 0;                 // equal for all modules of the replica
  std::vector<ModuleSlots> modules;  // [module][slot]; encoders first, LLM last
  bool operator==(const ReplicaAssignment&) const = default;
};

// Forward times of slots, in seconds; for people, never for decisions.
struct SlotBalance {
  double mean_s = 0;
  double std_s = 0;
  double cv = 0;  // std / mean
  double max_over_mean = 0;
  double floor_cv = 0;  // proven lower bound of cv for a replica's units in its slots
};

// Of one replica's slots.
struct ReplicaBalance : SlotBalance {
  int num_slots = 0;
};

// Means over the replicas that have work of the module: slots are never pooled over replicas, whose
// numbers of slots differ.
struct ModuleBalance : SlotBalance {
  std::vector<ReplicaBalance> replicas{};  // [replica]; empty: read from a file of pooled figures
};

struct AssignmentStats {
  std::map<std::string, ModuleBalance> modules;
  double makespan_s = 0;
  double lower_bound_s = 0;
  double gap = 0;        // makespan / lower bound - 1
  double assign_ms = 0;  // wall time; not part of the digest
};

struct StepAssignment {
  std::string policy;
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  std::vector<ReplicaAssignment> replicas;
  AssignmentStats stats;
};

// A sample whose segments of one encoder slot have their LLM work in a later slot.
struct Deferral {
  int sample = 0;
  int module = 0;
  int from_slot = 0;
  int to_slot = 0;
  bool operator==(const Deferral&) const = default;
};
std::vector<Deferral> deferrals(const ReplicaAssignment& replica);

// Of all cut samples.
std::int64_t num_chunks(const ReplicaAssignment& replica);

// The description of a batch in JSON, which the assignment in memory does not hold.
struct BatchNames {
  std::vector<std::string> modules;  // [module] encoders first, LLM last
  std::vector<std::string> samples;  // [sample] ids
  std::vector<SampleWork> work;      // [sample] segments per encoder, LLM tokens
};
BatchNames batch_names(const ModelSpec& model, std::span<const SampleSizes> batch);

// JSON format: ids, `{"sample", "segments"}` if a slot holds only some of a sample's
// segments, `{"sample", "tokens": [from, to]}` for chunks, one `deferred` entry per sample, module
// and slot.
//
// Throws  InvalidInput if an id occurs twice in the batch.
Json to_json(const StepAssignment& assignment, const BatchNames& batch);
// Throws  InvalidInput naming the place: an unknown sample, a segment or token placed twice, module
//         or slot counts that do not match.
StepAssignment assignment_from_json(const Json& document,
                                    const BatchNames& batch,
                                    const std::string& where);
// Over the placement only, without stats; equal on every machine.
std::string digest(const StepAssignment& assignment);

}  // namespace entrain
