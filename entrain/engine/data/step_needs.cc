#include "entrain/engine/data/step_needs.h"

#include <map>
#include <set>
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/workload.h"

namespace entrain::engine {

StepNeeds needs_of(
    const Program& program, int replica, int lane, std::vector<int> batch, bool text_positions) {
  StepNeeds needs;
  needs.batch = std::move(batch);
  needs.replica = replica;
  needs.lane = lane;
  const ReplicaProgram& part = program.replicas.at(static_cast<std::size_t>(replica));
  const int llm = program.llm_module();
  const int last_llm_stage = program.num_stages.at(static_cast<std::size_t>(llm)) - 1;
  std::set<int> seen;  // samples of texts
  for (const Operation& operation : part.lanes.at(static_cast<std::size_t>(lane))) {
    const UnitKey& unit = operation.unit;
    if (operation.kind != OperationKind::kForward) {
      continue;
    }
    if (unit.module != llm && unit.stage == 0) {
      for (const WorkItem& item : group_of(part, unit).items) {
        needs.segments.push_back({unit.module, item.sample, item.segment});
      }
    }
    if (unit.module == llm && (text_positions || unit.stage == 0 || unit.stage == last_llm_stage)) {
      for (const WorkItem& item : group_of(part, unit).items) {
        if (seen.insert(item.sample).second) {
          needs.texts.push_back(item.sample);
        }
      }
    }
  }
  return needs;
}

std::vector<std::int64_t> segment_bytes(const StepNeeds& needs,
                                        const Index& index,
                                        const ModelSpec& model) {
  std::map<int, SampleWork> works;  // by index sample
  std::vector<std::int64_t> bytes;
  for (const SegmentNeed& need : needs.segments) {
    ENTRAIN_INVARIANT(
        need.sample >= 0 && need.sample < std::ssize(needs.batch),
        concat("a need for sample ", need.sample, " of a global batch of ", needs.batch.size()));
    const int sample = needs.batch.at(static_cast<std::size_t>(need.sample));
    const auto [work, fresh] = works.try_emplace(sample);
    if (fresh) {
      work->second = sample_work(model, index.samples.at(static_cast<std::size_t>(sample)));
    }
    const EncoderSpec& encoder = model.encoders.at(static_cast<std::size_t>(need.module));
    const std::int64_t tokens = work->second.segments[static_cast<std::size_t>(need.module)]
                                    .at(static_cast<std::size_t>(need.segment))
                                    .tokens;
    const std::int64_t values_per_token = encoder.modality == Modality::kVision
                                              ? patch_values(encoder)
                                              : std::int64_t{2} * encoder.mel_bands;
    bytes.push_back(tokens * values_per_token * static_cast<std::int64_t>(sizeof(float)));
  }
  return bytes;
}

}  // namespace entrain::engine
