// Whether plans fit in memory on further global batches than those used for scoring.
//
// Read first: MemoryCheck. A sample missing in the scored batches may be larger than any of theirs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "entrain/core/assigner/memory_fit.h"
#include "entrain/core/spec/cluster.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/plan.h"
#include "entrain/core/spec/profile.h"

namespace entrain {

// Batches of a run after those used for scoring.
struct FurtherBatches {
  // Their steps in the run, the most demanding first; each once.
  std::vector<std::int64_t> steps;
  // The batch of one of them. Called again if a step is needed again.
  std::function<std::vector<SampleWork>(std::int64_t step)> draw;
  // Samples of theirs with the largest units, for bounds and cuts of layers; any number.
  std::vector<SampleWork> largest;
  // Steps first … first + in_row - 1 are all among them; the others were chosen for their work
  // from the `screened` steps behind.
  std::int64_t first = 0;
  int in_row = 0;
  int screened = 0;
  // Whether a check may use fewer of them if they take long: kMostCheckUnits.
  bool may_stop = false;

  [[nodiscard]] int count() const { return static_cast<int>(steps.size()); }
};

// The minimum of a check that may stop early: units on stages (plan_units.h),
// and batches.
inline constexpr std::int64_t kMostCheckUnits = 1'500'000;
inline constexpr int kLeastCheckBatches = 16;

// The first further batch that a plan does not fit.
struct FurtherMiss {
  std::int64_t step = -1;  // -1: it fits those that were checked
  int batches = 0;         // checked; 0 if nothing limits memory
  MemoryMiss miss;

  [[nodiscard]] bool fits() const { return step < 0; }
};

struct MemoryCheckInputs {
  const ModelSpec* model = nullptr;
  const Profile* profile = nullptr;
  const ClusterSpec* cluster = nullptr;
  const FurtherBatches* further = nullptr;
  std::uint64_t seed = 0;
  std::function<void()> on_batch;  // after every checked batch; may be empty
  int threads = 1;                 // >= 1, one batch each; results do not depend on it
};

// The batch that one plan did not fit comes first for the next. All answers are those of
// memory_miss() under the plan's policy: they hold only for the checked batches.
class MemoryCheck {
 public:
  // The objects the inputs point to must outlive the check.
  explicit MemoryCheck(const MemoryCheckInputs& inputs);

  // Only on the batches that an earlier plan did not fit.
  FurtherMiss known(const Plan& plan);
  // Also on kFewBatches of the most demanding.
  FurtherMiss few(const Plan& plan);
  // As if no plan had been checked.
  void forget();
  // On all of them, or until it may stop. Cost: some percent of a simulated step each.
  FurtherMiss all(const Plan& plan);

 private:
  FurtherMiss check(const Plan& plan, std::size_t count, bool may_stop);
  struct Checked {
    std::int64_t units = 0;
    std::optional<MemoryMiss> miss;
  };
  std::vector<Checked> check_from(const Plan& plan,
                                  const Profile& profile,
                                  std::size_t first,
                                  std::size_t end);
  SharedVector<SampleWork> work_of(std::int64_t step, bool keep);

  MemoryCheckInputs inputs_;
  std::vector<std::int64_t> order_;  // steps, those that a plan did not fit first
  std::size_t num_known_ = 0;        // of these
  std::map<std::int64_t, SharedVector<SampleWork>> kept_;  // step → batch
};

// "one of 104 further batches (step 44)"
std::string describe(const FurtherBatches& further, std::int64_t step);

}  // namespace entrain
