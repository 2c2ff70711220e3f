// Local search on simulated step time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "entrain/core/assigner/evaluators.h"
#include "entrain/core/base/at.h"
#include "entrain/core/baselines/loads.h"
#include "entrain/core/baselines/request.h"
#include "entrain/core/graph/placement.h"

namespace entrain {

// A placement with the times of its replicas.
struct Evaluated {
  Placement placement;
  std::vector<ReplicaTimes> times;  // [replica]

  [[nodiscard]] bool fits() const;
  [[nodiscard]] double worst_over() const;  // the most of ReplicaTimes::over
  [[nodiscard]] double slowest_score() const;
};

// As of a replica: within the limits first, then nearer to them, then the shorter step.
bool better(const Evaluated& a, const Evaluated& b, const StepEvaluator& evaluator);

// The order of penalised times.
inline bool slower_last(const ReplicaTimes& a, const ReplicaTimes& b) {
  return a.score() < b.score();
}

// The replica with the largest penalised time, of all or of `members`.
int slowest_of(const std::vector<ReplicaTimes>& times);
int slowest_of(const std::vector<ReplicaTimes>& times, const std::vector<int>& members);

// A lane's work is no measure of a replica whose time is an oversized sample's path through all
// stages: shift(slow, fast, share) moves that share of the slowest replica's work to the fastest
// and says whether the slower of both got faster. The share is less and less of what the slowest
// takes more, while goes_on() and until even little of it does not help.
template <class Shift, class GoesOn>
void level_replicas(const std::vector<ReplicaTimes>& times,
                    const Shift& shift,
                    const GoesOn& goes_on) {
  double part = 0.5;
  while (part > 0.02 && goes_on()) {
    const int slow = slowest_of(times);
    const int fast =
        static_cast<int>(std::min_element(times.begin(), times.end(), slower_last) - times.begin());
    const double excess = 1.0 - times[at(fast)].score() / times[at(slow)].score();
    part = slow != fast && shift(slow, fast, part * excess) ? std::min(0.5, part * 1.5) : part / 2;
  }
}

// A placement that is searched in place: pieces of a search write what belongs to their members
// alone, so that others may be searched beside them.
struct SearchedPlacement {
  explicit SearchedPlacement(Evaluated start)
      : best(start), before(start.placement), current(std::move(start)) {}
  Evaluated best;    // seen so far that keeps the limits, or the start
  Placement before;  // of an edit
  Evaluated current;
};

struct SearchPiece {
  int budget = 0;            // StepEvaluator::usual_simulations()
  std::vector<int> members;  // replicas, rising: the others stay as they are
  int kicks = 0;  // random moves first, whatever they cost: a way out of a place where nothing
                  // better is near
};

// Changes the placement of the piece's members move by move; a replica below is one of them:
// - a sample to another slot, or two of like size swapped, within a replica or between two;
// - a sample's LLM work to a later slot than its segments, segments to earlier slots and back;
// - two slots swapped, within a replica or between two; two merged or one split if the number of
//   slots is free.
// Three of five moves are on the slowest replica. A move is kept if the 16-norm of the replicas'
// penalised times (evaluate.h) rises by at most a threshold, which falls from 1e-4 of the step to
// 0: replicas that are not the slowest improve too. A simulation stops as soon as its move cannot
// be kept, and most moves are left out before: those that leave a replica's critical path as long
// as it was (path_growth.h), and seven of eight to groups of which no path is known.
// - Where the schedule fixes the lanes' orders, those that are known are replayed (order_replay.h),
//   at a twentieth of a simulation's cost.
// - Where it finds orders, a path may change with them, and is a guess. There the slowest replica's
//   rule is chosen again after every few moves that it kept.
// Members of `searched.best` become those with the best step time seen that keeps the limits, if
// any was better. A larger budget is another search, in which the threshold falls more slowly.
//
// Requires  all placements of `searched` are the same in the piece's members.
// Ensures   equal arguments give equal results. Stops at `bound_ns`, too.
void local_search(const AssignRequest& request,
                  const BatchLoads& loads,
                  std::int64_t bound_ns,
                  StepEvaluator& evaluator,
                  const SearchPiece& piece,
                  SearchedPlacement& searched);

// The best of all replicas, in groups that are searched each on its own, with equal shares of the
// budget: one for each evaluator, replicas by falling time dealt to and fro, so that slow ones are
// with fast ones to which they can give samples. The first evaluator's rules are used for all.
Evaluated search_in_groups(const AssignRequest& request,
                           const BatchLoads& loads,
                           std::int64_t bound_ns,
                           StepEvaluators& evaluators,
                           int budget,
                           int kicks,
                           Evaluated start);

}  // namespace entrain
