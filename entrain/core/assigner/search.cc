#include "entrain/core/assigner/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "entrain/core/assigner/moves.h"
#include "entrain/core/base/at.h"
#include "entrain/core/base/digest.h"
#include "entrain/core/base/random.h"
#include "entrain/core/graph/placement.h"

namespace entrain {
namespace {

constexpr double kFirstThreshold = 1e-4;  // of the step time
constexpr int kUnknownGroups = 8;         // one of so many moves to groups without a path is timed
constexpr int kDraws = 30;                // for each evaluation, at most
constexpr int kDrawsOfFound = 8;          // likewise where orders are found: more win nothing
constexpr int kDrawsOfMany = 20;          // likewise in a group of kManyReplicas or more
constexpr int kManyReplicas = 16;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr int kMovesPerRule = 10;  // accepted in a replica until its rule is chosen again

double sixteenth_power(double value) {
  for (int i = 0; i < 4; ++i) {
    value *= value;
  }
  return value;
}

double sixteenth_root(double value) {
  for (int i = 0; i < 4; ++i) {
    value = std::sqrt(value);
  }
  return value;
}

class PlacementSearch {
 public:
  PlacementSearch(const AssignRequest& request,
                  const BatchLoads& loads,
                  StepEvaluator& evaluator,
                  const SearchPiece& piece,
                  SearchedPlacement& searched)
      : costs_(*request.costs),
        evaluator_(evaluator),
        members_(piece.members),
        budget_(piece.budget),
        best_(searched.best),
        current_(searched.current),
        edit_(current_.placement, searched.before, members_),
        first_(evaluator.simulations()),
        first_usual_(evaluator.usual_simulations()),
        draws_each_(!evaluator.fixed_orders()          ? kDrawsOfFound
                    : members_.size() >= kManyReplicas ? kDrawsOfMany
                                                       : kDraws),
        rng_(request.seed + static_cast<std::uint64_t>(evaluator.evaluations()),
             hash_of("assigner/entrain") + static_cast<std::uint64_t>(request.step)),
        mover_(request, loads, members_, rng_, edit_),
        moves_(current_.times.size(), 0),
        powers_(current_.times.size(), 0) {
    reference_ = std::max(1.0, current_.times[at(slowest_of(current_.times, members_))].score());
    for (const int replica : members_) {
      evaluator_.use_rule(replica, current_.times[at(replica)]);
      take(replica, current_.times[at(replica)]);
    }
    best_ns_ = step_ns();
  }

  void run(std::int64_t bound_ns, int kicks) {
    if (kicks > 0) {
      kick(kicks);
    }
    if (best_ns_ > bound_ns) {
      for (const int replica : members_) {
        find_chain(replica);
      }
    }
    // Draws that change nothing, or nothing for the better, cost no evaluation; their number is
    // bounded as well.
    for (draws_ = 0; draws_ < draws_each_ * (1 + budget_) && best_ns_ > bound_ns; ++draws_) {
      if (spent() + 2 > budget_) {
        break;
      }
      const int replica = rng_.below(5) < 3 ? slowest_ : any_member();
      const Changed changed = mover_.move(replica);
      if (changed.count > 0 && promising(changed) && accept(changed)) {
        edit_.keep();
        choose_rule_again();
      } else {
        edit_.undo();
      }
    }
  }

 private:
  // Random moves, whatever they cost.
  void kick(int moves) {
    for (int i = 0; i < moves; ++i) {
      mover_.move(any_member());
    }
    edit_.keep();
    for (const int replica : members_) {
      take(replica, evaluator_.evaluate(current_.placement, replica));
      changed_.insert(replica);
    }
  }

  // Simulations, or what they come to if they are larger than usual.
  [[nodiscard]] int spent() const {
    return std::max(evaluator_.simulations() - first_,
                    evaluator_.usual_simulations() - first_usual_);
  }

  [[nodiscard]] double threshold() const {
    const double part = std::max(static_cast<double>(spent()),
                                 static_cast<double>(draws_) / static_cast<double>(draws_each_)) /
                        std::max(1, budget_);
    return kFirstThreshold * std::max(0.0, 1.0 - part);
  }

  // Takes the changed placement. Whether the norm may fall, by what the kept paths say.
  bool promising(const Changed& changed) {
    if (no_shorter_path(changed)) {
      return false;
    }
    bool known = true;
    for (int i = 0; i < changed.count; ++i) {
      known = evaluator_.place_known(edit_, changed.replica[i]) && known;
    }
    return known || rng_.below(kUnknownGroups) == 0;
  }

  // Whether the paths of all changed replicas are known, and the norm of their times is no smaller.
  bool no_shorter_path(const Changed& changed) {
    double norm = norm_;
    for (int i = 0; i < changed.count; ++i) {
      const int replica = changed.replica[i];
      const std::int64_t growth = evaluator_.path_growth(edit_, replica);
      if (growth == std::numeric_limits<std::int64_t>::min()) {
        return false;
      }
      const auto time = static_cast<double>(current_.times[at(replica)].total_ns + growth);
      norm += sixteenth_power(time / reference_) - powers_[at(replica)];
    }
    return norm >= norm_;
  }

  bool accept(const Changed& changed) {
    double rest = norm_;
    for (int i = 0; i < changed.count; ++i) {
      rest -= powers_[at(changed.replica[i])];
    }
    const double allowed = norm_ * (1 + 16 * threshold());
    ReplicaTimes times[2];
    double powers[2] = {0, 0};
    double left = allowed - std::max(0.0, rest);
    for (int i = 0; i < changed.count; ++i) {
      const double most = reference_ * sixteenth_root(std::max(0.0, left));
      times[i] =
          evaluator_.evaluate_placed(changed.replica[i], static_cast<std::int64_t>(most) + 1);
      if (!times[i].done) {
        return false;
      }
      powers[i] = sixteenth_power(times[i].score() / reference_);
      left -= powers[i];
      if (left < 0) {
        return false;
      }
    }
    for (int i = 0; i < changed.count; ++i) {
      ++moves_[at(changed.replica[i])];
      changed_.insert(changed.replica[i]);
      take(changed.replica[i], times[i]);
      evaluator_.keep_chain(current_.placement, changed.replica[i]);
    }
    keep_best();
    return true;
  }

  // Moves suit the rule under which they were timed, yet may make another one faster.
  void choose_rule_again() {
    const int replica = slowest_;
    if (!evaluator_.has_rules() || moves_[at(replica)] < kMovesPerRule ||
        spent() + evaluator_.num_near_rules() > budget_) {
      return;
    }
    moves_[at(replica)] = 0;
    const int rule = current_.times[at(replica)].rule;
    take(replica, evaluator_.choose_rule(current_.placement, replica, RuleSet::kNear));
    changed_.insert(replica);
    if (current_.times[at(replica)].rule != rule) {
      find_chain(replica);
    }
    keep_best();
  }

  void find_chain(int replica) {
    if (spent() < budget_) {
      evaluator_.find_chain(current_.placement, replica);
    }
  }

  void take(int replica, const ReplicaTimes& times) {
    current_.times[at(replica)] = times;
    powers_[at(replica)] = sixteenth_power(times.score() / reference_);
    norm_ = 0;
    for (const int member : members_) {
      norm_ += powers_[at(member)];
    }
    slowest_ = slowest_of(current_.times, members_);
  }

  void keep_best() {
    const std::int64_t now_ns = step_ns();
    if (now_ns < best_ns_) {
      for (const int replica : changed_) {
        copy_replica(costs_, current_.placement, replica, best_.placement);
        best_.times[at(replica)] = current_.times[at(replica)];
      }
      changed_.clear();
      best_ns_ = now_ns;
    }
  }

  [[nodiscard]] int any_member() { return members_[rng_.below(members_.size())]; }

  // Of the members; the most there is where they do not fit.
  [[nodiscard]] std::int64_t step_ns() const {
    std::int64_t latest = 0;
    for (const int member : members_) {
      const ReplicaTimes& times = current_.times[at(member)];
      latest = times.fits() ? std::max(latest, times.total_ns) : kNever;
      if (latest == kNever) {
        return kNever;
      }
    }
    return evaluator_.step_ns(latest);
  }

  const StepCosts& costs_;
  StepEvaluator& evaluator_;
  const std::vector<int>& members_;
  int budget_;
  Evaluated& best_;
  std::set<int> changed_;  // replicas since best_ was found
  Evaluated& current_;
  PlacementEdit edit_;
  int first_;        // simulations before
  int first_usual_;  // likewise
  std::int64_t draws_each_;
  std::int64_t draws_ = 0;
  Rng rng_;
  Mover mover_;
  double reference_ = 1;
  std::vector<int> moves_;      // [replica] accepted since its rule was chosen here
  std::vector<double> powers_;  // [replica] (score / reference)^16
  double norm_ = 0;
  int slowest_ = 0;  // of the members
  std::int64_t best_ns_ = 0;
};

std::vector<std::vector<int>> groups_by_time(const std::vector<ReplicaTimes>& times, int count) {
  std::vector<int> order(times.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return slower_last(times[at(b)], times[at(a)]);
  });
  std::vector<std::vector<int>> groups(at(count));
  for (int i = 0; i < static_cast<int>(order.size()); ++i) {
    const bool back = i / count % 2 != 0;
    groups[at(back ? count - 1 - i % count : i % count)].push_back(order[at(i)]);
  }
  for (std::vector<int>& members : groups) {
    std::sort(members.begin(), members.end());
  }
  return groups;
}

}  // namespace

int slowest_of(const std::vector<ReplicaTimes>& times) {
  const auto latest = std::max_element(times.begin(), times.end(), slower_last);
  return static_cast<int>(latest - times.begin());
}

int slowest_of(const std::vector<ReplicaTimes>& times, const std::vector<int>& members) {
  return *std::max_element(members.begin(), members.end(), [&](int a, int b) {
    return slower_last(times[at(a)], times[at(b)]);
  });
}

bool Evaluated::fits() const {
  return std::all_of(
      times.begin(), times.end(), [](const ReplicaTimes& replica) { return replica.fits(); });
}

double Evaluated::worst_over() const {
  double over = 0;
  for (const ReplicaTimes& replica : times) {
    over = std::max(over, replica.over);
  }
  return over;
}

double Evaluated::slowest_score() const {
  return times[at(slowest_of(times))].score();
}

bool better(const Evaluated& a, const Evaluated& b, const StepEvaluator& evaluator) {
  if (!a.fits() || !b.fits()) {
    return a.fits() || (!b.fits() && a.worst_over() < b.worst_over());
  }
  return evaluator.step_ns(a.times) < evaluator.step_ns(b.times);
}

void local_search(const AssignRequest& request,
                  const BatchLoads& loads,
                  std::int64_t bound_ns,
                  StepEvaluator& evaluator,
                  const SearchPiece& piece,
                  SearchedPlacement& searched) {
  PlacementSearch(request, loads, evaluator, piece, searched).run(bound_ns, piece.kicks);
}

Evaluated search_in_groups(const AssignRequest& request,
                           const BatchLoads& loads,
                           std::int64_t bound_ns,
                           StepEvaluators& evaluators,
                           int budget,
                           int kicks,
                           Evaluated start) {
  const std::vector<std::vector<int>> groups = groups_by_time(start.times, evaluators.size());
  for (int number = 1; number < evaluators.size(); ++number) {
    evaluators[number].use_rules_of(evaluators[0]);
  }
  SearchedPlacement searched(std::move(start));
  evaluators.for_each([&](int number) {
    const SearchPiece piece{
        .budget = budget / evaluators.size(), .members = groups[at(number)], .kicks = kicks};
    local_search(request, loads, bound_ns, evaluators[number], piece, searched);
  });
  return std::move(searched.best);
}

}  // namespace entrain
