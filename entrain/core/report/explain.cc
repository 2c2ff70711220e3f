#include "entrain/core/report/explain.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/planner/work_times.h"

namespace entrain {
namespace {

std::vector<int> replicas_of_samples(const StepAssignment& assignment, int num_samples) {
  std::vector<int> result(at(num_samples), 0);
  for (std::size_t replica = 0; replica < assignment.replicas.size(); ++replica) {
    for (const Slot& slot : assignment.replicas[replica].modules.back()) {
      for (const WorkItem& item : slot) {
        result[at(item.sample)] = static_cast<int>(replica);
      }
    }
  }
  return result;
}

class Explainer {
 public:
  explicit Explainer(const ExplainRequest& request)
      : request_(request),
        plan_(*request.plan),
        costs_(*request.costs),
        assignment_(request.step->assignment),
        program_(request.step->program),
        timeline_(request.step->timeline),
        works_(work_times(costs_)),
        replica_of_(replicas_of_samples(assignment_, costs_.num_samples)) {}

  Explanation run() {
    result_.step_ns = timeline_.makespan.count();
    result_.bound_ns = request_.step->bound.count();
    result_.causes = gap_causes(program_, timeline_, costs_, request_.step->bound);
    result_.replica = chosen_replica();
    account_lanes();
    share_path();
    load_slots();
    result_.deferrals = deferrals(replica());
    for (const int sample : chosen_samples()) {
      result_.stories.push_back(story_of(sample));
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] const ReplicaAssignment& replica() const {
    return assignment_.replicas[at(result_.replica)];
  }

  // The requested one, that of the requested sample, or the slowest.
  [[nodiscard]] int chosen_replica() const {
    const int count = static_cast<int>(assignment_.replicas.size());
    if (request_.replica >= count) {
      throw InvalidInput(
          fmt::format("replica {} given; there are {}, counted from 0", request_.replica, count));
    }
    int chosen = request_.replica;
    if (request_.sample >= 0 && chosen < 0) {
      chosen = replica_of(request_.sample);
    }
    if (chosen < 0) {
      chosen = slowest_replica(timeline_);
    }
    const int num_slots = assignment_.replicas[at(chosen)].num_slots;
    if (request_.slot >= num_slots) {
      throw InvalidInput(fmt::format(
          "slot {} given; replica {} has {}, counted from 0", request_.slot, chosen, num_slots));
    }
    return chosen;
  }

  [[nodiscard]] int replica_of(int sample) const { return replica_of_[at(sample)]; }

  void account_lanes() {
    const std::vector<LaneAccount> accounts = lane_accounts(program_, timeline_);
    for (const LaneAccount& account : accounts) {
      if (account.replica == result_.replica) {
        result_.lanes.push_back(account);
        result_.peak_bytes.push_back(
            timeline_.lanes[at(account.replica)][at(account.lane)].peak_bytes);
      }
    }
    result_.busiest = *std::ranges::max_element(result_.lanes, {}, &LaneAccount::busy);
    std::int64_t sum = 0;
    for (const LaneAccount& account : accounts) {
      sum += account.lane == result_.busiest.lane ? account.busy().count() : 0;
    }
    result_.shared_ns = sum / std::ssize(assignment_.replicas);
  }

  void share_path() {
    std::map<std::tuple<std::string, int, int>, std::int64_t> shares;
    for (const TimelineEvent& event : critical_path(program_, timeline_)) {
      const Operation& operation =
          program_.replicas[at(event.replica)].lanes[at(event.lane)][at(event.operation)];
      const std::string what = event.category == EventCategory::kSend
                                   ? "transfer"
                                   : std::string(name_of(operation.kind));
      shares[{what, event.replica, event.lane}] += (event.finish - event.start).count();
    }
    for (const auto& [key, time] : shares) {
      if (time > 0) {
        result_.path.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), time});
      }
    }
    std::stable_sort(result_.path.begin(),
                     result_.path.end(),
                     [](const PathShare& a, const PathShare& b) { return a.time_ns > b.time_ns; });
  }

  void load_slots() {
    result_.slots.resize(at(replica().num_slots));
    for (int module = 0; module <= costs_.llm_module(); ++module) {
      std::int64_t sum = 0;
      for (int slot = 0; slot < replica().num_slots; ++slot) {
        SlotLoad& load = result_.slots[at(slot)].emplace_back();
        for (const WorkItem& item : replica().modules[at(module)][at(slot)]) {
          if (std::find(load.samples.begin(), load.samples.end(), item.sample) ==
              load.samples.end()) {
            load.samples.push_back(item.sample);
          }
          ++load.num_units;
          load.work_ns += work_of(module, item);
        }
        sum += load.work_ns;
      }
      for (std::vector<SlotLoad>& slot : result_.slots) {
        SlotLoad& load = slot[at(module)];
        load.of_mean = sum > 0 ? static_cast<double>(load.work_ns) * replica().num_slots /
                                     static_cast<double>(sum)
                               : 0;
      }
    }
  }

  [[nodiscard]] std::int64_t work_of(int module, const WorkItem& item) const {
    std::int64_t work = 0;
    for (std::size_t stage = 0; stage < costs_.modules[at(module)].stages.size(); ++stage) {
      const OperationTimes time = unit_cost(costs_, module, static_cast<int>(stage), item).time;
      work += (time.forward + time.backward()).count();
    }
    return work;
  }

  [[nodiscard]] std::vector<int> chosen_samples() const {
    if (request_.sample >= 0) {
      return {request_.sample};
    }
    std::vector<std::pair<std::int64_t, int>> heaviest;  // negative work, so that ties go by index
    for (int sample = 0; sample < costs_.num_samples; ++sample) {
      if (replica_of(sample) != result_.replica) {
        continue;
      }
      std::int64_t work = 0;
      for (const std::vector<std::int64_t>& samples : works_) {
        work += samples[at(sample)];
      }
      heaviest.emplace_back(-work, sample);
    }
    std::sort(heaviest.begin(), heaviest.end());
    std::vector<int> result;
    for (std::size_t i = 0; i < std::min(heaviest.size(), at(request_.stories)); ++i) {
      result.push_back(heaviest[i].second);
    }
    return result;
  }

  [[nodiscard]] SampleStory story_of(int sample) const {
    SampleStory story;
    story.sample = sample;
    story.replica = replica_of(sample);
    const ReplicaAssignment& part = assignment_.replicas[at(story.replica)];
    for (int module = 0; module <= costs_.llm_module(); ++module) {
      const bool llm = module == costs_.llm_module();
      const std::vector<int>& first = costs_.modules[at(module)].first_unit;
      std::vector<int> slots(at(llm ? 0 : first[at(sample) + 1] - first[at(sample)]), -1);
      for (int slot = 0; slot < part.num_slots; ++slot) {
        for (const WorkItem& item : part.modules[at(module)][at(slot)]) {
          if (item.sample == sample && llm) {
            story.llm_slots.push_back(slot);
          } else if (item.sample == sample) {
            slots[at(item.segment)] = slot;
          }
        }
      }
      if (!llm) {
        story.segment_slots.push_back(slots);
      }
      const std::vector<std::int64_t>& works = works_[at(module)];
      story.work_ns.push_back(works[at(sample)]);
      const std::int64_t total = std::accumulate(works.begin(), works.end(), std::int64_t{0});
      story.of_mean.push_back(total > 0 ? static_cast<double>(story.work_ns.back()) *
                                              costs_.num_samples / static_cast<double>(total)
                                        : 0);
    }
    story.alternatives = best_alternatives(plan_, costs_, assignment_, sample);
    return story;
  }

  const ExplainRequest& request_;
  const Plan& plan_;
  const StepCosts& costs_;
  const StepAssignment& assignment_;
  const Program& program_;
  const Timeline& timeline_;
  WorkTimes works_;
  std::vector<int> replica_of_;  // [sample]
  Explanation result_;
};

}  // namespace

Explanation explain(const ExplainRequest& request) {
  ENTRAIN_INVARIANT(request.plan != nullptr && request.costs != nullptr &&
                        request.step != nullptr && request.names != nullptr,
                    "an explanation needs plan, costs, step and names");
  return Explainer(request).run();
}

}  // namespace entrain
