#include "entrain/core/dataset/hold.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"

namespace entrain {
namespace {

constexpr std::int64_t kOversized = 4;  // in mean samples
constexpr std::int64_t kMostWork = 2;   // in mean steps

// Places count through the window's rows, a step after the other; a sample is named by the place
// that it was drawn at.
class Window {
 public:
  Window(std::span<const int> rows, int steps, std::span<const std::int64_t> weights)
      : rows_(rows),
        weights_(weights),
        batch_(static_cast<int>(rows.size()) / steps),
        steps_(at(steps)) {
    const auto count = static_cast<int>(rows.size());
    std::int64_t total = 0;
    for (int sample = 0; sample < count; ++sample) {
      total += weight(sample);
    }
    limit_ = kMostWork * (total / steps);
    for (int sample = 0; sample < count; ++sample) {
      Step& step = steps_[at(sample / batch_)];
      if (weight(sample) > kOversized * (total / count)) {
        oversized_.push_back(sample);
        ++step.room;
      } else {
        step.ordinary.push_back(sample);
        step.work += weight(sample);
      }
      step_of_.push_back(sample / batch_);
    }
    heaviest_first(oversized_);
    for (Step& step : steps_) {
      heaviest_first(step.ordinary);
      std::reverse(step.ordinary.begin(), step.ordinary.end());
    }
  }

  std::vector<int> gather() {
    std::vector<int> left = oversized_;
    while (!left.empty()) {
      const std::optional<int> step = unfilled_near(left.front() / batch_);
      if (!step.has_value()) {
        break;
      }
      left = fill(*step, left);
    }
    left.insert(left.end(), displaced_.begin(), displaced_.end());
    heaviest_first(left);
    for (const int sample : left) {
      put(sample, lightest_with_room());
    }
    return rows_by_step();
  }

 private:
  struct Step {
    std::vector<int> ordinary;  // the lightest first
    int room = 0;               // samples that it lacks
    std::int64_t work = 0;      // of what is in it
    bool filled = false;
  };

  [[nodiscard]] std::int64_t weight(int sample) const { return weights_[at(rows_[at(sample)])]; }

  void heaviest_first(std::vector<int>& samples) const {
    std::stable_sort(
        samples.begin(), samples.end(), [this](int a, int b) { return weight(a) > weight(b); });
  }

  [[nodiscard]] std::optional<int> unfilled_near(int step) const {
    std::optional<int> best;
    for (int other = 0; other < static_cast<int>(steps_.size()); ++other) {
      if (!steps_[at(other)].filled &&
          (!best.has_value() || std::abs(other - step) < std::abs(*best - step))) {
        best = other;
      }
    }
    return best;
  }

  // Puts the first of `left` into the step, and what fits of the others, which are in falling
  // order; returns the rest.
  std::vector<int> fill(int step_index, const std::vector<int>& left) {
    Step& step = steps_[at(step_index)];
    step.filled = true;
    std::vector<int> rest;
    for (const int sample : left) {
      const bool full = step.room == 0;
      const std::int64_t gives_up =
          full && !step.ordinary.empty() ? weight(step.ordinary.back()) : 0;
      const bool fits = step.work - gives_up + weight(sample) <= limit_;
      if ((full && step.ordinary.empty()) || (!fits && sample != left.front())) {
        rest.push_back(sample);
        continue;
      }
      if (full) {
        displaced_.push_back(step.ordinary.back());
        step.ordinary.pop_back();
        step.work -= gives_up;
        ++step.room;
      }
      put(sample, step_index);
    }
    return rest;
  }

  void put(int sample, int step) {
    step_of_[at(sample)] = step;
    --steps_[at(step)].room;
    steps_[at(step)].work += weight(sample);
  }

  [[nodiscard]] int lightest_with_room() const {
    std::optional<int> best;
    for (int step = 0; step < static_cast<int>(steps_.size()); ++step) {
      if (steps_[at(step)].room > 0 &&
          (!best.has_value() || steps_[at(step)].work < steps_[at(*best)].work)) {
        best = step;
      }
    }
    ENTRAIN_INVARIANT(best.has_value(), "more samples than places");
    return *best;
  }

  // Samples that keep their step keep their place; the others take those that are left.
  [[nodiscard]] std::vector<int> rows_by_step() const {
    std::vector<int> result(rows_.begin(), rows_.end());
    std::vector<std::vector<int>> coming(steps_.size());
    for (std::size_t sample = 0; sample < rows_.size(); ++sample) {
      if (step_of_[sample] != static_cast<int>(sample) / batch_) {
        coming[at(step_of_[sample])].push_back(rows_[sample]);
      }
    }
    std::vector<std::size_t> placed(steps_.size(), 0);
    for (std::size_t place = 0; place < rows_.size(); ++place) {
      const int step = static_cast<int>(place) / batch_;
      if (step_of_[place] != step) {
        result[place] = coming[at(step)][placed[at(step)]++];
      }
    }
    return result;
  }

  std::span<const int> rows_;
  std::span<const std::int64_t> weights_;
  int batch_ = 1;
  std::vector<Step> steps_;
  std::vector<int> step_of_;    // [sample]
  std::vector<int> oversized_;  // the heaviest first
  std::vector<int> displaced_;
  std::int64_t limit_ = 0;  // of a step's work
};

}  // namespace

std::vector<int> hold_oversized(std::span<const int> rows,
                                int steps,
                                std::span<const std::int64_t> weights) {
  ENTRAIN_INVARIANT(steps >= 1 && rows.size() % at(steps) == 0, "a window of whole batches");
  if (steps == 1 || rows.empty()) {
    return {rows.begin(), rows.end()};
  }
  return Window(rows, steps, weights).gather();
}

}  // namespace entrain
