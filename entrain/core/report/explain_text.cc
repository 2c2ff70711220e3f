// Explanations as text and as JSON.
#include <algorithm>
#include <chrono>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"
#include "entrain/core/report/explain.h"
#include "entrain/core/report/table.h"
#include "entrain/core/schedule/schedule.h"

namespace entrain {
namespace {

using std::chrono::nanoseconds;

std::string duration(std::int64_t time_ns) {
  return format_duration(nanoseconds{time_ns});
}

std::string signed_duration(std::int64_t time_ns) {
  return time_ns == 0 ? "no change" : (time_ns > 0 ? "+" : "-") + duration(std::abs(time_ns));
}

std::string share_of(std::int64_t part, std::int64_t whole) {
  return format_fixed(100 * static_cast<double>(part) /
                          static_cast<double>(std::max<std::int64_t>(1, whole)),
                      1) +
         " %";
}

std::string lane_name(const ExplainRequest& request, int lane) {
  return fmt::format("lane {} ({})", lane, stages_of_lane(request.step->program, lane));
}

// One cause of the step's time; the causes sum to it.
struct Cause {
  std::string name;
  std::int64_t time_ns = 0;
};

std::vector<Cause> causes_of(const Explanation& explanation) {
  const LaneAccount& lane = explanation.busiest;
  return {{"work on this lane, mean over replicas", explanation.shared_ns},
          {lane.busy().count() < explanation.shared_ns ? "less work here than in the mean replica"
                                                       : "more work here than in the mean replica",
           lane.busy().count() - explanation.shared_ns},
          {"fill: before its first operation", lane.fill.count()},
          {"waits for features of an encoder", lane.features.count()},
          {"waits for the previous stage", lane.activation.count()},
          {"waits for gradients", lane.gradient.count()},
          {"drain: other lanes and replicas finish", lane.drain.count()},
          {"reduction of gradients", lane.reduction.count()},
          {"optimizer", lane.optimizer.count()}};
}

std::string certificate_text(const Explanation& explanation, const ExplainRequest& request) {
  std::string text = fmt::format(
      "Step time {} by '{}' with '{}'. No assignment and order on these lanes {} can be faster "
      "than {}: gap {} %.\n",
      duration(explanation.step_ns),
      request.step->assignment.policy,
      request.plan->schedule,
      splits_backward(request.plan->schedule) ? "(backwards split or whole)"
                                              : "with whole backwards",
      duration(explanation.bound_ns),
      format_fixed(100 * explanation.gap(), 1));
  const std::vector<Cause> causes = causes_of(explanation);
  if (explanation.step_ns > explanation.bound_ns) {
    const nanoseconds bound{explanation.bound_ns};
    text += fmt::format(
        "As shares of that bound, on {} of replica {}: {}; the bound includes {} of these.\n",
        lane_name(request, explanation.causes.lane),
        explanation.causes.replica,
        to_string(explanation.causes, bound),
        share_of(explanation.causes.in_bound.count(), explanation.bound_ns));
  }
  text += fmt::format("\nThe busiest lane of replica {} is {}. Its step:\n",
                      explanation.replica,
                      lane_name(request, explanation.busiest.lane));
  Table table({"  cause", "time", "share"});
  for (const Cause& cause : causes) {
    if (cause.time_ns != 0) {
      table.add_row({"  " + cause.name,
                     duration(cause.time_ns),
                     share_of(cause.time_ns, explanation.step_ns)});
    }
  }
  text += table.to_text();
  if (explanation.busiest.transfer.count() > 0) {
    text += fmt::format("  (for {} of fill and waits the message was in flight)\n",
                        duration(explanation.busiest.transfer.count()));
  }
  return text;
}

// Where the plan limits memory: what that costs, and what is over a limit.
std::string limit_text(const Explanation& explanation, const ExplainRequest& request) {
  std::string text;
  if (request.step->excess) {
    text += fmt::format("It exceeds a memory limit: {}.\n",
                        to_string(request.step->program, *request.step->excess));
  }
  if (request.unlimited_ns > 0) {
    text +=
        fmt::format("Without memory limits '{}' takes {}: limits cost {}. The bound knows none.\n",
                    request.step->assignment.policy,
                    duration(request.unlimited_ns),
                    share_of(explanation.step_ns - request.unlimited_ns, request.unlimited_ns));
  }
  return text;
}

std::string path_text(const Explanation& explanation, const ExplainRequest& request) {
  std::string text = "\nThe critical path, without slack from start to end:\n";
  Table table({"  what", "where", "time", "share"});
  constexpr std::size_t kMostRows = 12;
  std::int64_t rest = 0;
  for (std::size_t i = 0; i < explanation.path.size(); ++i) {
    const PathShare& share = explanation.path[i];
    if (i >= kMostRows) {
      rest += share.time_ns;
      continue;
    }
    table.add_row({"  " + share.what,
                   fmt::format("replica {} {}", share.replica, lane_name(request, share.lane)),
                   duration(share.time_ns),
                   share_of(share.time_ns, explanation.step_ns)});
  }
  if (rest > 0) {
    table.add_row({"  the rest", "", duration(rest), share_of(rest, explanation.step_ns)});
  }
  return text + table.to_text();
}

std::string lanes_text(const Explanation& explanation, const ExplainRequest& request) {
  std::string text = fmt::format("\nLanes of replica {}:\n", explanation.replica);
  Table table({"  lane",
               "forward",
               "backward",
               "fill",
               "wait: features",
               "activations",
               "gradients",
               "drain",
               "peak memory"});
  for (std::size_t i = 0; i < explanation.lanes.size(); ++i) {
    const LaneAccount& lane = explanation.lanes[i];
    std::vector<std::string> cells = {"  " + lane_name(request, lane.lane)};
    for (const nanoseconds time : {lane.forward,
                                   lane.backward,
                                   lane.fill,
                                   lane.features,
                                   lane.activation,
                                   lane.gradient,
                                   lane.drain}) {
      cells.push_back(time.count() == 0 ? "-" : format_duration(time));
    }
    cells.push_back(format_bytes(explanation.peak_bytes[i]));
    table.add_row(cells);
  }
  return text + table.to_text();
}

std::string slots_text(const Explanation& explanation, const ExplainRequest& request) {
  const std::vector<std::string>& modules = request.names->modules;
  std::string text =
      fmt::format("\nSlots of replica {} (work is forward and backward; 1.00 is the mean slot):\n",
                  explanation.replica);
  std::vector<std::string> header = {"  slot"};
  for (std::size_t module = 0; module < modules.size(); ++module) {
    header.push_back(modules[module] + (module + 1 < modules.size() ? " segments" : " samples"));
    header.emplace_back("work");
    header.emplace_back("of mean");
  }
  header.emplace_back("LLM work deferred to here");
  Table table(header);
  for (int slot = 0; slot < static_cast<int>(explanation.slots.size()); ++slot) {
    if (request.slot >= 0 && slot != request.slot) {
      continue;
    }
    std::vector<std::string> cells = {fmt::format("  {}", slot)};
    for (const SlotLoad& load : explanation.slots[at(slot)]) {
      cells.push_back(std::to_string(load.num_units));
      cells.push_back(duration(load.work_ns));
      cells.push_back(format_fixed(load.of_mean, 2));
    }
    std::map<int, int> from;  // slot → samples
    for (const Deferral& deferral : explanation.deferrals) {
      from[deferral.from_slot] += deferral.to_slot == slot ? 1 : 0;
    }
    std::vector<std::string> parts;
    for (const auto& [from_slot, count] : from) {
      if (count > 0) {
        parts.push_back(fmt::format("{} from slot {}", count, from_slot));
      }
    }
    cells.push_back(parts.empty() ? "-" : "(" + join(parts) + ")");
    table.add_row(cells);
  }
  text += table.to_text();
  if (request.slot >= 0) {
    for (std::size_t module = 0; module < modules.size(); ++module) {
      std::vector<std::string> ids;
      for (const int sample : explanation.slots[at(request.slot)][module].samples) {
        ids.push_back(request.names->samples[at(sample)]);
      }
      text += fmt::format("  {}: {}\n", modules[module], ids.empty() ? "none" : join(ids));
    }
  }
  return text;
}

std::string alternative_text(const Alternative& alternative, const SampleStory& story) {
  std::string what;
  switch (alternative.kind) {
    case AlternativeKind::kOtherSlot:
      what = fmt::format("all of it in slot {}", alternative.slot);
      break;
    case AlternativeKind::kLlmSlot:
      what = fmt::format("only its LLM work in slot {}", alternative.slot);
      break;
    case AlternativeKind::kNotDeferred:
      what = fmt::format("not deferred, all in slot {}", alternative.slot);
      break;
    case AlternativeKind::kOtherReplica:
      what = fmt::format("in replica {}, slot {}", alternative.replica, alternative.slot);
      break;
  }
  std::string text =
      fmt::format("    {}: step time {}", what, signed_duration(alternative.step_change_ns));
  if (alternative.step_change_ns != alternative.replica_change_ns) {
    text += fmt::format(", {} {}",
                        alternative.replica == story.replica ? "its replica" : "these two replicas",
                        signed_duration(alternative.replica_change_ns));
  }
  return text + (alternative.fits ? "\n" : ", over the memory limit\n");
}

std::string why_text(const SampleStory& story) {
  if (story.alternatives.empty()) {
    return story.llm_slots.size() > 1 ? "    Its LLM work is cut into chunks; samples that are cut "
                                        "are not tried elsewhere.\n"
                                      : "    It has no other possible slot.\n";
  }
  const auto best = std::min_element(
      story.alternatives.begin(), story.alternatives.end(), [](const auto& a, const auto& b) {
        return std::pair(!a.fits, a.step_change_ns) < std::pair(!b.fits, b.step_change_ns);
      });
  if (!best->fits) {
    return "    No other slot keeps the memory limits:\n";
  }
  if (best->step_change_ns > 0) {
    return "    Every other slot makes the step slower:\n";
  }
  return best->step_change_ns == 0
             ? "    Another slot is as good; the step time does not depend on it:\n"
             : "    Another slot would be better; the policy's search did not find it:\n";
}

std::string story_text(const SampleStory& story, const ExplainRequest& request) {
  const BatchNames& names = *request.names;
  std::string text =
      fmt::format("  {} (replica {}):\n", names.samples[at(story.sample)], story.replica);
  for (std::size_t module = 0; module < names.modules.size(); ++module) {
    const bool llm = module + 1 == names.modules.size();
    std::vector<int> slots = llm ? story.llm_slots : story.segment_slots[module];
    if (slots.empty()) {
      text += fmt::format("    {}: nothing\n", names.modules[module]);
      continue;
    }
    std::map<int, int> counts;
    for (const int slot : slots) {
      ++counts[slot];
    }
    std::vector<std::string> parts;
    for (const auto& [slot, count] : counts) {
      parts.push_back(count > 1 ? fmt::format("slot {} ({} of {})", slot, count, slots.size())
                                : fmt::format("slot {}", slot));
    }
    text += fmt::format("    {}: {}{}, {} ({}x the mean sample)\n",
                        names.modules[module],
                        llm && slots.size() > 1 ? fmt::format("{} chunks in ", slots.size()) : "",
                        join(parts),
                        duration(story.work_ns[module]),
                        format_fixed(story.of_mean[module], 2));
  }
  text += why_text(story);
  for (const Alternative& alternative : story.alternatives) {
    text += alternative_text(alternative, story);
  }
  return text;
}

double seconds(std::int64_t time_ns) {
  return static_cast<double>(time_ns) * 1e-9;
}

Json lane_json(const LaneAccount& lane) {
  const auto in_seconds = [](nanoseconds time) { return seconds(time.count()); };
  return {{"replica", lane.replica},
          {"lane", lane.lane},
          {"forward_s", in_seconds(lane.forward)},
          {"backward_s", in_seconds(lane.backward)},
          {"fill_s", in_seconds(lane.fill)},
          {"wait_features_s", in_seconds(lane.features)},
          {"wait_activations_s", in_seconds(lane.activation)},
          {"wait_gradients_s", in_seconds(lane.gradient)},
          {"drain_s", in_seconds(lane.drain)},
          {"reduction_s", in_seconds(lane.reduction)},
          {"optimizer_s", in_seconds(lane.optimizer)},
          {"transfer_s", in_seconds(lane.transfer)}};
}

Json story_json(const SampleStory& story, const BatchNames& names) {
  Json modules = Json::object();
  for (std::size_t module = 0; module < names.modules.size(); ++module) {
    const bool llm = module + 1 == names.modules.size();
    modules[names.modules[module]] = {
        {"slots", llm ? story.llm_slots : story.segment_slots[module]},
        {"work_s", seconds(story.work_ns[module])},
        {"of_mean", story.of_mean[module]}};
  }
  Json alternatives = Json::array();
  for (const Alternative& alternative : story.alternatives) {
    alternatives.push_back({{"kind", name_of(alternative.kind)},
                            {"replica", alternative.replica},
                            {"slot", alternative.slot},
                            {"step_change_s", seconds(alternative.step_change_ns)},
                            {"replica_change_s", seconds(alternative.replica_change_ns)},
                            {"fits", alternative.fits}});
  }
  return {{"sample", names.samples[at(story.sample)]},
          {"replica", story.replica},
          {"modules", modules},
          {"alternatives", alternatives}};
}

Json slots_json(const Explanation& explanation, const ExplainRequest& request) {
  const BatchNames& names = *request.names;
  Json slots = Json::array();
  for (std::size_t slot = 0; slot < explanation.slots.size(); ++slot) {
    if (request.slot >= 0 && slot != at(request.slot)) {
      continue;
    }
    Json entry = {{"slot", slot}};
    for (std::size_t module = 0; module < names.modules.size(); ++module) {
      const SlotLoad& load = explanation.slots[slot][module];
      Json ids = Json::array();
      for (const int sample : load.samples) {
        ids.push_back(names.samples[at(sample)]);
      }
      entry[names.modules[module]] = {{"samples", ids},
                                      {"units", load.num_units},
                                      {"work_s", seconds(load.work_ns)},
                                      {"of_mean", load.of_mean}};
    }
    slots.push_back(entry);
  }
  return slots;
}

}  // namespace

std::string to_string(const Explanation& explanation, const ExplainRequest& request) {
  std::string text = certificate_text(explanation, request);
  text += limit_text(explanation, request);
  text += path_text(explanation, request);
  text += lanes_text(explanation, request);
  text += slots_text(explanation, request);
  if (!explanation.stories.empty()) {
    text += request.sample >= 0 ? "\nThe sample:\n" : "\nThe heaviest samples of this replica:\n";
    for (const SampleStory& story : explanation.stories) {
      text += story_text(story, request);
    }
  }
  return text;
}

Json to_json(const Explanation& explanation, const ExplainRequest& request) {
  const BatchNames& names = *request.names;
  Json path = Json::array();
  for (const PathShare& share : explanation.path) {
    path.push_back({{"what", share.what},
                    {"replica", share.replica},
                    {"lane", share.lane},
                    {"time_s", seconds(share.time_ns)}});
  }
  Json lanes = Json::array();
  for (std::size_t i = 0; i < explanation.lanes.size(); ++i) {
    lanes.push_back(lane_json(explanation.lanes[i]));
    lanes.back()["peak_bytes"] = explanation.peak_bytes[i];
  }
  Json deferred = Json::array();
  for (const Deferral& deferral : explanation.deferrals) {
    deferred.push_back({{"sample", names.samples[at(deferral.sample)]},
                        {"module", names.modules[at(deferral.module)]},
                        {"from_slot", deferral.from_slot},
                        {"to_slot", deferral.to_slot}});
  }
  Json stories = Json::array();
  for (const SampleStory& story : explanation.stories) {
    stories.push_back(story_json(story, names));
  }
  Json causes = Json::object();
  for (int cause = 0; cause < kNumGapCauses; ++cause) {
    causes[std::string(name_of(static_cast<GapCause>(cause))) + "_s"] =
        seconds(explanation.causes.time[at(cause)].count());
  }
  causes["in_bound_s"] = seconds(explanation.causes.in_bound.count());
  return {
      {"policy", request.step->assignment.policy},
      {"schedule", request.plan->schedule},
      {"step", request.step->assignment.step},
      {"step_s", seconds(explanation.step_ns)},
      {"lower_bound_s", seconds(explanation.bound_ns)},
      {"gap", explanation.gap()},
      {"over_bytes", request.step->excess ? request.step->excess->over() : 0},
      {"unlimited_step_s", request.unlimited_ns > 0 ? Json(seconds(request.unlimited_ns)) : Json()},
      {"replica", explanation.replica},
      {"busiest_lane", explanation.busiest.lane},
      {"shared_work_s", seconds(explanation.shared_ns)},
      {"gap_causes", causes},
      {"lanes", lanes},
      {"critical_path", path},
      {"slots", slots_json(explanation, request)},
      {"deferred", deferred},
      {"samples", stories}};
}

}  // namespace entrain
