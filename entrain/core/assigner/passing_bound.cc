#include "entrain/core/assigner/passing_bound.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

using std::int64_t;

// Samples that may join the long ones: sums over the first i of them by falling work / least.
class Joining {
 public:
  // order: all samples in that order; `apart`: those not counted.
  Joining(const std::vector<PassingSample>& samples,
          const PassedLane& lane,
          const std::vector<int>& order,
          const std::vector<char>& apart) {
    for (const int sample : order) {
      if (apart[at(sample)] == 0) {
        work_.push_back(work_.back() + lane.work[at(sample)]);
        least_.push_back(least_.back() + samples[at(sample)].least);
      }
    }
  }

  [[nodiscard]] int64_t all() const { return work_.back(); }
  // The most work whose delays sum up to `delay` (not negative), fractions of samples allowed.
  [[nodiscard]] int64_t most_work(int64_t delay) const {
    const auto next = std::upper_bound(least_.begin(), least_.end(), delay);
    if (next == least_.end()) {
      return all();
    }
    const auto i = static_cast<std::size_t>(next - least_.begin());
    const double part =
        static_cast<double>(delay - least_[i - 1]) / static_cast<double>(least_[i] - least_[i - 1]);
    return work_[i - 1] +
           static_cast<int64_t>(part * static_cast<double>(work_[i] - work_[i - 1])) + 1;
  }

 private:
  std::vector<int64_t> work_{0};
  std::vector<int64_t> least_{0};
};

// The n longest samples.
struct LongSamples {
  int64_t longest = 0;
  int64_t shortest = 0;
  int64_t work = 0;               // on the lane in question
  std::vector<int64_t> least{0};  // [m]: of all of them but the m with the largest

  // What m replicas of `time` each leave for samples that join them; negative: too little for
  // these.
  [[nodiscard]] int64_t delay(int m, int64_t time) const {
    return m * time - longest - (m - 1) * shortest - least[at(m)];
  }
};

class Passing {
 public:
  Passing(const std::vector<PassingSample>& samples, int64_t around, int replicas)
      : samples_(samples), around_(around), replicas_(replicas), by_length_(samples.size()) {
    std::iota(by_length_.begin(), by_length_.end(), 0);
    std::stable_sort(by_length_.begin(), by_length_.end(), [&](int a, int b) {
      return samples[at(a)].length > samples[at(b)].length;
    });
    for (const PassingSample& sample : samples) {
      least_ += sample.least;
    }
    while (!by_length_.empty() && samples[at(by_length_.back())].length == 0) {
      by_length_.pop_back();
    }
  }

  [[nodiscard]] int64_t bound(const PassedLane& lane, int64_t known) const {
    const int64_t work = std::accumulate(lane.work.begin(), lane.work.end(), int64_t{0});
    std::vector<int> order;
    for (const int count : {1, replicas_, replicas_ + 1, 2 * replicas_, 2 * replicas_ + 1}) {
      if (count > static_cast<int>(by_length_.size())) {
        continue;
      }
      const LongSamples of = long_samples(lane, count);
      if (possible_evenly(of, lane, work, known)) {
        continue;
      }
      if (order.empty()) {
        order = by_ratio(lane);
      }
      std::vector<char> apart(samples_.size(), 0);
      for (int i = 0; i < count; ++i) {
        apart[at(by_length_[at(i)])] = 1;
      }
      known = bound_of(of, {samples_, lane, order, apart}, lane, known);
    }
    return known;
  }

 private:
  // By falling work / least.
  [[nodiscard]] std::vector<int> by_ratio(const PassedLane& lane) const {
    std::vector<int> order(samples_.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<double> ratio;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const auto least = static_cast<double>(samples_[i].least);
      ratio.push_back(least > 0 ? static_cast<double>(lane.work[i]) / least
                                : std::numeric_limits<double>::infinity());
    }
    std::stable_sort(
        order.begin(), order.end(), [&](int a, int b) { return ratio[at(a)] > ratio[at(b)]; });
    return order;
  }

  // possible() without an order: true where replicas hold equal work and the same part of every
  // sample that is not among the long ones.
  [[nodiscard]] bool possible_evenly(const LongSamples& of,
                                     const PassedLane& lane,
                                     int64_t work,
                                     int64_t time) const {
    const auto rest = static_cast<double>(work - of.work);
    for (int m = 1; m < static_cast<int>(of.least.size()); ++m) {
      const double even = static_cast<double>(work) * m / replicas_;
      const double joined = even - static_cast<double>(of.work);
      const auto delay = static_cast<double>(of.delay(m, time - around_));
      const auto others = static_cast<double>(least_ - of.least[0]);
      // A nanosecond apart from what rounding does.
      if (delay >= 0 && joined >= 0 && joined <= rest && joined * others <= (delay - 1) * rest &&
          even + 1 <= static_cast<double>(m * (time - lane.around))) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] LongSamples long_samples(const PassedLane& lane, int count) const {
    LongSamples of;
    of.longest = samples_[at(by_length_[0])].length;
    of.shortest = samples_[at(by_length_[at(count - 1)])].length;
    std::vector<int64_t> least;
    for (int i = 0; i < count; ++i) {
      of.work += lane.work[at(by_length_[at(i)])];
      least.push_back(samples_[at(by_length_[at(i)])].least);
    }
    std::sort(least.begin(), least.end(), std::greater<>());
    of.least[0] = std::accumulate(least.begin(), least.end(), int64_t{0});
    for (int m = 1; m <= std::min(count, replicas_); ++m) {
      of.least.push_back(of.least.back() - least[at(m - 1)]);
    }
    return of;
  }

  // Whether a step may take no longer than `time`, by this bound.
  [[nodiscard]] bool possible(const LongSamples& of,
                              const Joining& joining,
                              const PassedLane& lane,
                              int64_t time) const {
    const int64_t room = time - lane.around;  // of a replica
    for (int m = 1; m < static_cast<int>(of.least.size()) && room >= 0; ++m) {
      const int64_t delay = of.delay(m, time - around_);
      if (delay < 0 || of.work > m * room) {
        continue;
      }
      const int64_t joined = std::min(m * room - of.work, joining.most_work(delay));
      if (joining.all() - joined <= (replicas_ - m) * room) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] int64_t bound_of(const LongSamples& of,
                                 const Joining& joining,
                                 const PassedLane& lane,
                                 int64_t known) const {
    if (possible(of, joining, lane, known)) {
      return known;
    }
    int64_t low = known;  // not possible
    int64_t high = std::max<int64_t>(known, 1);
    while (!possible(of, joining, lane, high)) {
      low = high;
      high *= 2;
    }
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (possible(of, joining, lane, middle) ? high : low) = middle;
    }
    return high;
  }

  const std::vector<PassingSample>& samples_;
  int64_t around_;
  int replicas_;
  int64_t least_ = 0;           // of all samples
  std::vector<int> by_length_;  // those that go the whole way, by falling length
};

}  // namespace

int64_t passing_bound(const std::vector<PassingSample>& samples,
                      int64_t around,
                      const std::vector<PassedLane>& lanes,
                      int replicas,
                      int64_t known) {
  const Passing passing(samples, around, replicas);
  for (const PassedLane& lane : lanes) {
    known = passing.bound(lane, known);
  }
  return known;
}

}  // namespace entrain
