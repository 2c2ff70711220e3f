#include "entrain/engine/pipeline/rank_places.h"

#include <algorithm>
#include <numeric>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

std::vector<int> run_of(int first, int count) {
  std::vector<int> ranks(at(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

}  // namespace

RankPlaces::RankPlaces(const Plan& plan) : replicas_(plan.replicas), first_of_lane_{0} {
  for (const std::vector<StageRef>& lane : plan.lanes) {
    const int width = plan.modules.at(at(lane.front().module)).tensor_parallel;
    first_of_lane_.push_back(first_of_lane_.back() + width);
  }
}

int RankPlaces::width(int lane) const {
  return first_of_lane_.at(at(lane) + 1) - first_of_lane_.at(at(lane));
}

RankPlace RankPlaces::place_of(int rank) const {
  ENTRAIN_INVARIANT(rank >= 0 && rank < num_ranks(), concat("rank ", rank, " of ", num_ranks()));
  const int within = rank % ranks_per_replica();
  const auto next = std::upper_bound(first_of_lane_.begin(), first_of_lane_.end(), within);
  const auto lane = static_cast<int>(next - first_of_lane_.begin()) - 1;
  return {rank / ranks_per_replica(), lane, within - first_of_lane_[at(lane)]};
}

int RankPlaces::rank_of(const RankPlace& place) const {
  ENTRAIN_INVARIANT(place.tensor_rank >= 0 && place.tensor_rank < width(place.lane),
                    concat("lane ", place.lane, " has no tensor rank ", place.tensor_rank));
  return place.replica * ranks_per_replica() + first_of_lane_[at(place.lane)] + place.tensor_rank;
}

std::string RankPlaces::name_of(int rank) const {
  const RankPlace place = place_of(rank);
  const std::string lane = concat("replica ", place.replica, " lane ", place.lane);
  return width(place.lane) == 1 ? lane : concat(lane, " tensor rank ", place.tensor_rank);
}

std::vector<int> RankPlaces::all() const {
  return run_of(0, num_ranks());
}

std::vector<int> RankPlaces::of_replica(int replica) const {
  return run_of(replica * ranks_per_replica(), ranks_per_replica());
}

std::vector<int> RankPlaces::of_lane(int replica, int lane) const {
  return run_of(rank_of({replica, lane, 0}), width(lane));
}

std::vector<int> RankPlaces::across_replicas(int lane, int tensor_rank) const {
  std::vector<int> ranks;
  for (int replica = 0; replica < replicas_; ++replica) {
    ranks.push_back(rank_of({replica, lane, tensor_rank}));
  }
  return ranks;
}

std::vector<int> RankPlaces::peers_of(int rank) const {
  const RankPlace place = place_of(rank);
  std::vector<int> peers = of_replica(place.replica);
  const std::vector<int> others = across_replicas(place.lane, place.tensor_rank);
  peers.insert(peers.end(), others.begin(), others.end());
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  std::erase(peers, rank);
  return peers;
}

int RankPlaces::sender_of(const RankPlace& receiver, int sending_lane) const {
  return rank_of({receiver.replica, sending_lane, receiver.tensor_rank % width(sending_lane)});
}

std::vector<int> RankPlaces::receivers_of(const RankPlace& sender, int receiving_lane) const {
  std::vector<int> ranks;
  for (int t = sender.tensor_rank; t < width(receiving_lane); t += width(sender.lane)) {
    ranks.push_back(rank_of({sender.replica, receiving_lane, t}));
  }
  return ranks;
}

}  // namespace entrain::engine
