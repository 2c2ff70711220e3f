#include "entrain/core/assigner/balance_split.h"

#include "entrain/core/base/at.h"

namespace entrain {
namespace {

class SplitSearch {
 public:
  SplitSearch(const std::vector<SplitItem>& items,
              const std::vector<double>& difference,
              double least_gain)
      : items_(items),
        dimensions_(difference.size()),
        difference_((items.size() + 1) * difference.size()),
        chosen_(items.size(), 0),
        best_(items.size(), 0) {
    for (std::size_t d = 0; d < dimensions_; ++d) {
      difference_[d] = difference[d];
    }
    least_ = squares(difference_.data()) - least_gain;
  }

  std::vector<int> run() {
    visit(0);
    return best_;
  }

 private:
  [[nodiscard]] double squares(const double* difference) const {
    double sum = 0;
    for (std::size_t d = 0; d < dimensions_; ++d) {
      sum += difference[d] * difference[d];
    }
    return sum;
  }

  void visit(std::size_t depth) {
    const double* now = difference_.data() + depth * dimensions_;
    if (depth == items_.size()) {
      const double candidate = squares(now);
      if (candidate < least_) {
        least_ = candidate;
        best_ = chosen_;
      }
      return;
    }
    double* next = difference_.data() + (depth + 1) * dimensions_;
    for (int option = 0; option < items_[depth].num_options; ++option) {
      const double* change = items_[depth].change.data() + at(option) * dimensions_;
      for (std::size_t d = 0; d < dimensions_; ++d) {
        next[d] = now[d] + change[d];
      }
      chosen_[depth] = option;
      visit(depth + 1);
    }
  }

  const std::vector<SplitItem>& items_;
  std::size_t dimensions_;
  std::vector<double> difference_;  // [items + 1][dimension] after the choices above
  std::vector<int> chosen_;
  std::vector<int> best_;
  double least_ = 0;
};

}  // namespace

std::vector<int> best_split(const std::vector<SplitItem>& items,
                            const std::vector<double>& difference,
                            double least_gain) {
  return SplitSearch(items, difference, least_gain).run();
}

int keep_affordable(std::vector<SplitItem>& items, int combinations) {
  int product = 1;
  std::size_t count = 0;
  for (; count < items.size() && items[count].num_options <= combinations / product; ++count) {
    product *= items[count].num_options;
  }
  items.resize(count);
  return product;
}

}  // namespace entrain
