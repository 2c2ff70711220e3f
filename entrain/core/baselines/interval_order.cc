#include "entrain/core/baselines/interval_order.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

// Strict 1F1B of the microbatches given so far: turn t runs, on the stage with w stages after it,
// the forward of microbatch t and the backward of microbatch t - w.
class ChainTimeline {
 public:
  explicit ChainTimeline(const ChainTimes& times)
      : times_(times), num_stages_(static_cast<int>(times.forward.size())), free_(at(num_stages_)) {
    gradient_.resize(at(num_stages_));
  }

  void append(int microbatch) {
    order_.push_back(microbatch);
    const int turn = static_cast<int>(order_.size()) - 1;
    std::int64_t arrived = 0;
    for (int stage = 0; stage < num_stages_; ++stage) {
      arrived = std::max(arrived, free_[at(stage)]) + times_.forward[at(stage)][at(microbatch)];
      free_[at(stage)] = arrived;
    }
    for (int stage = 0; stage < num_stages_; ++stage) {
      const int released = turn - (num_stages_ - 1 - stage);
      if (released >= 0) {
        run_backward(stage, released);
      }
    }
  }

  // How long the first stage waits from now until the gradient of its next backward arrives, with
  // no forward in between.
  [[nodiscard]] std::int64_t idle_interval() const {
    if (num_stages_ == 1) {
      return 0;
    }
    const std::size_t next = gradient_[0].size();
    if (next < gradient_[1].size()) {
      return std::max<std::int64_t>(0, gradient_[1][next] - free_[0]);
    }
    // The pipeline is still filling: the way of the microbatch through the other stages and back.
    std::int64_t way = 0;
    for (int stage = 1; stage < num_stages_; ++stage) {
      way += times_.forward[at(stage)][at(order_[next])] +
             times_.backward[at(stage)][at(order_[next])];
    }
    return way;
  }

 private:
  void run_backward(int stage, int position) {
    const std::int64_t from_loss =
        stage + 1 < num_stages_ ? gradient_[at(stage + 1)][at(position)] : 0;
    free_[at(stage)] = std::max(free_[at(stage)], from_loss) +
                       times_.backward[at(stage)][at(order_[at(position)])];
    gradient_[at(stage)].push_back(free_[at(stage)]);
  }

  const ChainTimes& times_;
  int num_stages_;
  std::vector<int> order_;
  std::vector<std::int64_t> free_;                   // [stage] end of its last operation
  std::vector<std::vector<std::int64_t>> gradient_;  // [stage][position] end of its backward
};

// Takes the microbatch closest to `interval` out of `rest`, which is sorted by rising size.
int take_closest(const std::vector<std::int64_t>& size,
                 std::int64_t interval,
                 std::vector<int>& rest) {
  const auto closest = std::min_element(rest.begin(), rest.end(), [&](int a, int b) {
    return std::abs(size[at(a)] - interval) < std::abs(size[at(b)] - interval);
  });
  const int result = *closest;
  rest.erase(closest);
  return result;
}

}  // namespace

std::vector<int> interval_order(const ChainTimes& times) {
  ENTRAIN_INVARIANT(!times.forward.empty(), "an order needs a stage");
  const std::vector<std::int64_t>& size = times.forward.front();
  std::vector<int> rest(size.size());
  std::iota(rest.begin(), rest.end(), 0);
  std::stable_sort(
      rest.begin(), rest.end(), [&](int a, int b) { return size[at(a)] < size[at(b)]; });
  if (rest.size() < 3) {
    return rest;
  }
  const int filling = static_cast<int>(times.forward.size()) - 1;
  ChainTimeline timeline(times);
  std::vector<int> result;
  const auto emit = [&](int microbatch) {
    timeline.append(microbatch);
    result.push_back(microbatch);
  };
  emit(rest.front());
  rest.erase(rest.begin());
  const auto reserved = std::min(rest.begin() + filling, rest.end());
  const std::vector<int> last(std::make_reverse_iterator(reserved), rest.rend());
  rest.erase(rest.begin(), reserved);
  std::int64_t interval = timeline.idle_interval();
  for (int left = filling; left > 0 && !rest.empty(); --left) {
    emit(take_closest(size, interval / left, rest));
    interval = std::max<std::int64_t>(0, interval - size[at(result.back())]);
  }
  while (!rest.empty()) {
    emit(take_closest(size, timeline.idle_interval(), rest));
  }
  result.insert(result.end(), last.begin(), last.end());
  return result;
}

}  // namespace entrain
