// Maps ranks to places: replicas first, within a replica its lanes, within a lane the ranks that
// share it.
//
// Read first: RankPlaces.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"

namespace entrain::engine {

struct RankPlace {
  int replica = 0;
  int lane = 0;
  int tensor_rank = 0;  // among the ranks of the lane
  bool operator==(const RankPlace&) const = default;
};

// Ranks are numbered consecutively, so the ranks of a lane are contiguous, and those of a replica.
// Without tensor parallelism rank = replica · lanes + lane.
class RankPlaces {
 public:
  // Requires  a plan that check_runnable() of runnable.h accepts.
  explicit RankPlaces(const Plan& plan);

  [[nodiscard]] int num_ranks() const { return replicas_ * ranks_per_replica(); }
  [[nodiscard]] int ranks_per_replica() const { return first_of_lane_.back(); }
  [[nodiscard]] int num_lanes() const { return static_cast<int>(first_of_lane_.size()) - 1; }
  // Ranks of a lane: the tensor parallelism of the modules on it.
  [[nodiscard]] int width(int lane) const;

  [[nodiscard]] RankPlace place_of(int rank) const;
  [[nodiscard]] int rank_of(const RankPlace& place) const;
  // "replica 0 lane 1", followed by " tensor rank 1" if the lane has several ranks.
  [[nodiscard]] std::string name_of(int rank) const;

  // All in rising order.
  [[nodiscard]] std::vector<int> all() const;
  [[nodiscard]] std::vector<int> of_replica(int replica) const;
  [[nodiscard]] std::vector<int> of_lane(int replica, int lane) const;
  // The ranks with the same weights: one per replica.
  [[nodiscard]] std::vector<int> across_replicas(int lane, int tensor_rank) const;

  // The ranks that exchange activations, gradients or weights with this one: those of the replica,
  // and those of other replicas with the same weights.
  [[nodiscard]] std::vector<int> peers_of(int rank) const;

  // The route of messages between two lanes, whose tensors are replicated on every rank of a lane:
  // rank t of the receiving lane gets its messages from rank t modulo the sending lane's width.
  [[nodiscard]] int sender_of(const RankPlace& receiver, int sending_lane) const;
  // The ranks that receive from this one; there may be none.
  [[nodiscard]] std::vector<int> receivers_of(const RankPlace& sender, int receiving_lane) const;

 private:
  int replicas_;
  std::vector<int> first_of_lane_;  // [lane] rank within the replica; last: their number
};

}  // namespace entrain::engine
