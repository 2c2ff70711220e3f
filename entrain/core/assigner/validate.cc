// The independent validator: it reads the assignment and the plan, and shares no code with
// policies.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// LLM work of one sample: its slots by rising first token, one entry for a whole sample.
struct LlmPart {
  int replica = 0;
  int slot = 0;
  std::int64_t token_begin = 0;
  std::int64_t token_end = -1;
};

class Validator {
 public:
  Validator(const StepAssignment& assignment, const Plan& plan, const StepCosts& costs)
      : assignment_(assignment),
        plan_(plan),
        costs_(costs),
        llm_(costs.llm_module()),
        parts_(at(costs.num_samples)) {}

  void run() {
    check_shape();
    for (int replica = 0; replica < plan_.replicas; ++replica) {
      read_llm(replica);
    }
    check_llm();
    for (int module = 0; module < llm_; ++module) {
      check_encoder(module);
    }
  }

 private:
  [[nodiscard]] std::string where(int replica, int module, int slot) const {
    return fmt::format(
        "assignment: replica {}, {}, slot {}", replica, plan_.modules[at(module)].name, slot);
  }

  [[nodiscard]] const ModuleSlots& slots(int replica, int module) const {
    return assignment_.replicas[at(replica)].modules[at(module)];
  }

  void check_shape() const {
    if (assignment_.replicas.size() != at(plan_.replicas)) {
      throw InvalidInput(fmt::format("assignment: {} replicas under a plan of {}",
                                     assignment_.replicas.size(),
                                     plan_.replicas));
    }
    for (int r = 0; r < plan_.replicas; ++r) {
      const ReplicaAssignment& replica = assignment_.replicas[at(r)];
      if (replica.num_slots < 1) {
        throw InvalidInput(fmt::format(
            "assignment: replica {} has num_slots {}, allowed: >= 1", r, replica.num_slots));
      }
      if (replica.modules.size() != costs_.modules.size()) {
        throw InvalidInput(fmt::format("assignment: replica {} has {} modules, the batch has {}",
                                       r,
                                       replica.modules.size(),
                                       costs_.modules.size()));
      }
      for (std::size_t m = 0; m < replica.modules.size(); ++m) {
        if (replica.modules[m].size() != at(replica.num_slots)) {
          throw InvalidInput(
              fmt::format("assignment: replica {}, {}: {} slots, but num_slots is {}",
                          r,
                          plan_.modules[m].name,
                          replica.modules[m].size(),
                          replica.num_slots));
        }
      }
    }
  }

  void check_sample(const WorkItem& item, int replica, int module, int slot) const {
    if (item.sample < 0 || item.sample >= costs_.num_samples) {
      throw InvalidInput(fmt::format("{}: sample {} is not among the {} of the global batch",
                                     where(replica, module, slot),
                                     item.sample,
                                     costs_.num_samples));
    }
  }

  void read_llm(int replica) {
    for (int slot = 0; slot < assignment_.replicas[at(replica)].num_slots; ++slot) {
      for (const WorkItem& item : slots(replica, llm_)[at(slot)]) {
        check_sample(item, replica, llm_, slot);
        if (item.segment != -1) {
          throw InvalidInput(fmt::format("{}: sample {} comes with segment {}; LLM work has none",
                                         where(replica, llm_, slot),
                                         item.sample,
                                         item.segment));
        }
        if (item.is_chunk() && !plan_.limits.chunks) {
          throw InvalidInput(
              fmt::format("{}: sample {} is cut into chunks, which the plan's limits "
                          "do not allow",
                          where(replica, llm_, slot),
                          item.sample));
        }
        parts_[at(item.sample)].push_back({replica, slot, item.token_begin, item.token_end});
      }
    }
  }

  void check_llm() {
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      std::vector<LlmPart>& parts = parts_[at(sample)];
      if (parts.empty()) {
        throw InvalidInput(
            fmt::format("assignment: sample {} is in no slot of the LLM in any replica", sample));
      }
      const bool whole = parts.front().token_end < 0;
      for (const LlmPart& part : parts) {
        if ((whole && parts.size() > 1) || (part.token_end < 0) != whole) {
          throw InvalidInput(
              fmt::format("{}: sample {} is in the LLM twice (also in replica {}, slot {})",
                          where(parts.back().replica, llm_, parts.back().slot),
                          sample,
                          parts.front().replica,
                          parts.front().slot));
        }
      }
      if (!whole) {
        check_chunks(sample, parts);
      }
    }
  }

  void check_chunks(int sample, std::vector<LlmPart>& parts) const {
    std::sort(parts.begin(), parts.end(), [](const LlmPart& a, const LlmPart& b) {
      return a.token_begin < b.token_begin;
    });
    std::int64_t expected = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const LlmPart& part = parts[i];
      const std::string place = where(part.replica, llm_, part.slot);
      if (part.token_begin != expected || part.token_end <= part.token_begin) {
        throw InvalidInput(
            fmt::format("{}: sample {} has a chunk of tokens [{}, {}), expected one from {} on",
                        place,
                        sample,
                        part.token_begin,
                        part.token_end,
                        expected));
      }
      expected = part.token_end;
      if (i > 0 && (part.replica != parts[i - 1].replica || part.slot <= parts[i - 1].slot)) {
        throw InvalidInput(
            fmt::format("{}: sample {}: the chunk from token {} on is not in a later slot of the "
                        "same replica than the one before it",
                        place,
                        sample,
                        part.token_begin));
      }
    }
    if (expected != costs_.work[at(sample)].llm_tokens) {
      throw InvalidInput(fmt::format("{}: the chunks of sample {} end at token {} of {}",
                                     where(parts.back().replica, llm_, parts.back().slot),
                                     sample,
                                     expected,
                                     costs_.work[at(sample)].llm_tokens));
    }
  }

  [[nodiscard]] int num_segments(int module, int sample) const {
    const std::vector<int>& first = costs_.modules[at(module)].first_unit;
    return first[at(sample + 1)] - first[at(sample)];
  }

  // Features of the encoder's earlier segments, of a video's those of videos alone: no segment's
  // features can be nearer the sequence's front.
  [[nodiscard]] std::int64_t tokens_before(int sample, int module, int segment) const {
    const SampleWork& work = costs_.work[at(sample)];
    std::int64_t of_images = num_segments(module, sample);
    if (at(module) < work.videos.size()) {
      for (const VideoWork& video : work.videos[at(module)]) {
        of_images -= video.patches();
      }
    }
    std::int64_t result = 0;
    for (std::int64_t s = segment - 1; s >= (segment >= of_images ? of_images : 0); --s) {
      result += work.segments[at(module)][at(s)].llm_tokens;
    }
    return result;
  }

  [[nodiscard]] int llm_slot(int sample, int module, int segment) const {
    const std::vector<LlmPart>& parts = parts_[at(sample)];
    int slot = parts.front().slot;
    const std::int64_t first = parts.size() > 1 ? tokens_before(sample, module, segment) : 0;
    for (const LlmPart& part : parts) {
      slot = part.token_begin <= first ? part.slot : slot;
    }
    return slot;
  }

  void check_encoder(int module) const {
    std::vector<std::vector<char>> seen;
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      seen.emplace_back(at(num_segments(module, sample)), 0);
    }
    for (int replica = 0; replica < plan_.replicas; ++replica) {
      for (int slot = 0; slot < assignment_.replicas[at(replica)].num_slots; ++slot) {
        for (const WorkItem& item : slots(replica, module)[at(slot)]) {
          check_sample(item, replica, module, slot);
          check_segment(item, replica, module, slot, seen[at(item.sample)]);
        }
      }
    }
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      const std::vector<char>& of_sample = seen[at(sample)];
      const auto missing = std::find(of_sample.begin(), of_sample.end(), 0);
      if (missing != of_sample.end()) {
        throw InvalidInput(fmt::format("assignment: {}: segment {} of sample {} is in no slot",
                                       plan_.modules[at(module)].name,
                                       missing - of_sample.begin(),
                                       sample));
      }
    }
  }

  void check_segment(
      const WorkItem& item, int replica, int module, int slot, std::vector<char>& seen) const {
    const std::string place = where(replica, module, slot);
    if (seen.empty()) {
      throw InvalidInput(
          fmt::format("{}: sample {} has no work in this encoder", place, item.sample));
    }
    if (item.segment < 0 || at(item.segment) >= seen.size() || item.is_chunk()) {
      throw InvalidInput(fmt::format("{}: sample {} has segments 0 to {}, given {}{}",
                                     place,
                                     item.sample,
                                     seen.size() - 1,
                                     item.segment,
                                     item.is_chunk() ? " with a token range" : ""));
    }
    if (seen[at(item.segment)] != 0) {
      throw InvalidInput(fmt::format(
          "{}: segment {} of sample {} is here twice", place, item.segment, item.sample));
    }
    seen[at(item.segment)] = 1;
    const int home = parts_[at(item.sample)].front().replica;
    if (home != replica) {
      throw InvalidInput(fmt::format("{}: segment {} of sample {}, whose LLM work is in replica {}",
                                     place,
                                     item.segment,
                                     item.sample,
                                     home));
    }
    const int distance = llm_slot(item.sample, module, item.segment) - slot;
    if (distance < 0) {
      throw InvalidInput(fmt::format("{}: segment {} of sample {} comes after its LLM slot {}",
                                     place,
                                     item.segment,
                                     item.sample,
                                     slot + distance));
    }
    if (plan_.limits.max_deferral >= 0 && distance > plan_.limits.max_deferral) {
      throw InvalidInput(
          fmt::format("{}: sample {} waits {} slots for its LLM slot {}, allowed: {}",
                      place,
                      item.sample,
                      distance,
                      slot + distance,
                      plan_.limits.max_deferral));
    }
  }

  const StepAssignment& assignment_;
  const Plan& plan_;
  const StepCosts& costs_;
  int llm_;
  std::vector<std::vector<LlmPart>> parts_;  // [sample]
};

}  // namespace

void validate_assignment(const StepAssignment& assignment,
                         const Plan& plan,
                         const StepCosts& costs) {
  if (plan.modules.size() != costs.modules.size()) {
    throw InvalidInput(fmt::format("assignment: the plan has {} modules, the batch's costs have {}",
                                   plan.modules.size(),
                                   costs.modules.size()));
  }
  Validator(assignment, plan, costs).run();
}

}  // namespace entrain
