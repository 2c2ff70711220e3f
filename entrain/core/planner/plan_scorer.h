// Turns configurations of a cluster into plans and simulates them: shared by the search and its
// explanations.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "entrain/core/cost/step_costs.h"
#include "entrain/core/planner/memory_check.h"
#include "entrain/core/planner/plan_bound.h"
#include "entrain/core/planner/plan_candidate.h"
#include "entrain/core/planner/plan_score.h"
#include "entrain/core/planner/plan_space.h"
#include "entrain/core/planner/recompute_levels.h"

namespace entrain {

class PlanScorer {
 public:
  // `request` must outlive the scorer.
  // Throws  as search_plans() does.
  explicit PlanScorer(const PlanSearchRequest& request);
  PlanScorer(const PlanScorer&) = delete;
  PlanScorer& operator=(const PlanScorer&) = delete;

  [[nodiscard]] const PlanSpace& space() const { return space_; }
  [[nodiscard]] const PlanBounds& bounds() const { return bounds_; }
  [[nodiscard]] std::int64_t num_batches() const;

  // The plan of a configuration, simulated. If recomputation may be tried: the faster of the
  // plan without and of a level of recompute_levels(): its estimate, or, if that does not fit,
  // the fastest that fits of the last level and two between. A level is simulated on every batch
  // whatever `stop_at`, and only if the estimate recomputes something, or if
  // the plan without does not fit.
  // Requires  memory allows a cut.
  //
  // rival  [batch] step times of the plan to beat: what is kFarBehind it after a batch is set
  //        aside, with every level of recomputation that nothing better is known of; empty: nothing
  //        is. A later call for the same configuration does not simulate the same steps again,
  //        but for those that were given up.
  [[nodiscard]] PlanCandidate score(const PlanShape& config,
                                    std::int64_t stop_at,
                                    std::span<const std::int64_t> rival = {});
  // Whether recomputation may be tried: RecomputeRule::kAuto and a limit.
  [[nodiscard]] bool may_recompute() const;
  // Of a stopped candidate without recompute_tried, which nobody knows to fit the batches that were
  // left: its configuration's plan with recomputation where it does not; else nothing.
  // Requires  may_recompute().
  [[nodiscard]] std::optional<PlanCandidate> score_rest(const PlanCandidate& stopped);

  // Cuts the layers and lays out lanes, without simulation. Layers are recomputed only by
  // RecomputeRule::kFull. kNoFit with a reason if state, or state and the largest unit, exceed a
  // lane's memory.
  // Requires  memory allows a cut.
  [[nodiscard]] PlanCandidate make_candidate(const PlanShape& config) const;

  // Simulates batch after batch, as long as the steps so far plus the bounds of the others stay
  // under `stop_at`, and until it is set aside.
  // Ensures  the state tells how it ended; mean_ns as in PlanCandidate.
  void simulate(PlanCandidate& candidate,
                std::int64_t stop_at,
                std::span<const std::int64_t> rival = {});
  [[nodiscard]] int simulated_steps() const { return simulated_steps_; }

  // Where the policy chooses the number of slots: with the plan's halved as long as the estimate
  // falls, since most of a short step's many slots are launches. Else as it is.
  [[nodiscard]] PlanShape with_suited_slots(PlanShape config) const;

  // A step of the first batch under a quick assignment, by `lpt-2d` where the policy searches, in
  // the number of slots that suits it, with the fewest recomputed layers that are estimated to fit
  // where it would not fit without: knows the pipeline's fill and drain and oversized samples.
  // `searched`: then by the policy itself, by its shortest search, which may give up beyond
  // `far_ns`. Not a bound, and not counted as a simulated step; kNoStop if state exceeds a lane's
  // memory. May run on several threads at a time.
  // Requires  memory allows a cut.
  // Cost      some milliseconds; `searched` some tens.
  [[nodiscard]] std::int64_t guess(const PlanShape& given,
                                   bool searched,
                                   std::int64_t far_ns = kNoStop) const;
  // Its cost in units on stages (plan_units.h), about.
  [[nodiscard]] std::int64_t guess_units(const PlanShape& config) const;

  // Simulated plans whose steps take at most this in sum are checked on further
  // batches, and do not fit if one of those exceeds them; initially all are checked.
  void set_lead(std::int64_t total_ns) { lead_ns_ = total_ns; }
  // Whether a step beside a rival is given up as soon as it is expected to be kFarBehind it
  // (AssignRequest::give_up_ns); initially not.
  void set_gives_up(bool gives_up) { gives_up_ = gives_up; }
  // Checks all further batches of the request, or until it may stop; a plan that does not fit one
  // becomes kNoFit.
  FurtherMiss check_all(PlanCandidate& candidate);
  // For another part of the space: nothing is known, and no step simulated.
  void start_part();
  // For another search of the same part, starting from no simulated steps: known steps are
  // counted, and not run again. Leading plans are checked on all further batches.
  void start_again();
  // Their cost, counted as for kMostUnitStages.
  [[nodiscard]] std::int64_t simulated_unit_stages() const { return simulated_unit_stages_; }

 private:
  [[nodiscard]] PlanCandidate lay_out(const PlanShape& config,
                                      const std::vector<std::vector<LayerRange>>& stages) const;
  [[nodiscard]] PlanCandidate recompute(const PlanShape& config,
                                        bool needed,
                                        std::span<const std::int64_t> rival);
  [[nodiscard]] PlanCandidate best_level(const PlanCandidate& without,
                                         const RecomputeLevels& all,
                                         std::span<const std::int64_t> rival);
  void count_recompute(PlanCandidate& candidate) const;
  [[nodiscard]] RecomputeLevels levels_of(const Plan& plan) const;
  // Whether it fits the further batches; else sets its state and reason.
  bool passes(const FurtherMiss& found, PlanCandidate& candidate) const;
  // One batch as in a run.
  void report_progress() const;
  [[nodiscard]] StepScore step(const Plan& plan,
                               std::size_t batch,
                               std::int64_t give_up_ns = kNoStop);
  // The scores of a plan that was set aside, or did not fit beside one; null: it never was.
  [[nodiscard]] const std::vector<StepScore>* known_scores(const Plan& plan) const;
  [[nodiscard]] StepCosts costs_of(const Plan& plan, std::size_t batch) const;

  const PlanSearchRequest& request_;
  PlanSpace space_;
  PlanBounds bounds_;
  std::vector<SharedVector<SampleWork>> batches_;
  std::vector<SampleWork> sum_;  // of all batches, as one sample
  int simulated_steps_ = 0;
  std::int64_t simulated_unit_stages_ = 0;
  std::vector<std::pair<Plan, std::vector<StepScore>>> known_;  // of plans set aside: [batch]
  MemoryCheck check_;
  std::int64_t lead_ns_ = std::numeric_limits<std::int64_t>::max();
  bool all_for_leaders_ = false;
  bool gives_up_ = false;
  // Where there are further batches.
  struct DoneStep {
    StepScore score;
    std::int64_t unit_stages = 0;
  };
  std::vector<std::pair<Plan, std::map<std::size_t, DoneStep>>> done_;  // batch → its step
};

// Of the steps that were simulated.
std::int64_t total_ns(const PlanCandidate& candidate);
// A candidate's time over that of `rival` on the batches that the candidate has run.
// Requires  it has run some, and no more than the rival.
double time_over(const PlanCandidate& candidate, std::span<const std::int64_t> rival);

}  // namespace entrain
