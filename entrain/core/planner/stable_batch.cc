#include "entrain/core/planner/stable_batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/random.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/planner/lane_shares.h"
#include "entrain/core/planner/split_bound.h"

namespace entrain {
namespace {

constexpr int kMostDraws = 1'000'000;
constexpr std::int64_t kMostNanoseconds = std::int64_t{1} << 62;

int num_samples(const StableBatchRequest& request) {
  return static_cast<int>(request.work_ns.front().size());
}

int limit_of(const StableBatchRequest& request) {
  return request.limit > 0 ? request.limit : num_samples(request);
}

// No sum over a batch may leave 64 bits, whatever is drawn.
void check_sums(const StableBatchRequest& request) {
  std::int64_t most = 0;
  for (std::size_t sample = 0; sample < request.work_ns.front().size(); ++sample) {
    std::int64_t work = 0;
    for (const std::vector<std::int64_t>& module : request.work_ns) {
      work += module[sample];
    }
    most = std::max(most, work);
  }
  std::int64_t batch = std::max(limit_of(request), num_samples(request));
  for (const int also : request.also) {
    batch = std::max<std::int64_t>(batch, also);
  }
  if (most > kMostNanoseconds / batch) {
    throw InvalidInput(fmt::format(
        "stable batch: a sample of {} ns in batches of up to {} samples may exceed 2^62 ns",
        most,
        batch));
  }
}

void check_request(const StableBatchRequest& request) {
  if (request.work_ns.empty() || request.work_ns.front().empty()) {
    throw InvalidInput("stable batch: there are no samples to draw from");
  }
  for (const std::vector<std::int64_t>& module : request.work_ns) {
    ENTRAIN_INVARIANT(module.size() == request.work_ns.front().size(),
                      "every module has the work of every sample");
  }
  if (request.devices < std::ssize(request.work_ns)) {
    throw InvalidInput(fmt::format("stable batch: {} for {}; each needs one",
                                   counted(request.devices, "device"),
                                   counted(std::ssize(request.work_ns), "module")));
  }
  if (request.limit < 0) {
    throw InvalidInput(fmt::format(
        "stable batch: a limit of {} samples; allowed: 1 or more, 0 for all", request.limit));
  }
  for (const int also : request.also) {
    if (also < 1) {
      throw InvalidInput(
          fmt::format("stable batch: a batch size of {} samples; allowed: 1 or more", also));
    }
  }
  check_sums(request);
}

// Reports the share of the drawing that is done: sizes that the search tries up to the proven size,
// and those that are drawn as well.
class DrawProgress {
 public:
  DrawProgress(const StableBatchRequest& request, std::int64_t proven) : request_(request) {
    const int limit = limit_of(request);
    for (std::int64_t batch = 1; batch <= limit; batch *= 2) {
      total_ += cost_of(batch);
      if (proven > 0 && batch >= proven) {
        break;
      }
    }
    for (const int also : request.also) {
      total_ += cost_of(also);
    }
  }

  // After one of `draws` draws of a size.
  void drawn(int batch, int draws) {
    done_ += cost_of(batch) / draws;
    if (request_.progress) {
      request_.progress(std::min(1.0, done_ / total_));
    }
  }

 private:
  [[nodiscard]] double cost_of(std::int64_t batch) const {
    return static_cast<double>(num_samples(request_) + batch);
  }

  const StableBatchRequest& request_;
  double total_ = 0;
  double done_ = 0;
};

// The reference batch and `draws` more of one size, each with its own seed.
BatchSizeSplits draw_splits(const StableBatchRequest& request,
                            int batch,
                            int draws,
                            DrawProgress& progress) {
  const int samples = num_samples(request);
  BatchSizeSplits result;
  result.batch = batch;
  result.with_replacement = drawn_with_replacement(samples, batch);
  Rng seeds(request.seed, hash_of("stable batch") + static_cast<std::uint64_t>(batch));
  for (int draw = 0; draw <= draws; ++draw) {
    progress.drawn(batch, draws + 1);
    const std::vector<int> rows = draw_study_rows(samples, batch, seeds.next(), 0);
    std::vector<int> split = share_lanes(total_work(request.work_ns, rows), request.devices);
    const auto known =
        std::find_if(result.splits.begin(), result.splits.end(), [&](const CountedSplit& other) {
          return other.devices_of == split;
        });
    if (known != result.splits.end()) {
      ++known->count;
    } else {
      result.splits.push_back({std::move(split), 1});
      if (!request.whole_counts && !result.settled()) {
        break;
      }
    }
  }
  result.reference = result.splits.front().devices_of;
  std::stable_sort(result.splits.begin(), result.splits.end(), [](const auto& a, const auto& b) {
    return a.count != b.count ? a.count > b.count : a.devices_of > b.devices_of;
  });
  return result;
}

std::string counts_text(const BatchSizeSplits& size) {
  std::vector<std::string> parts;
  for (const CountedSplit& split : size.splits) {
    parts.push_back(fmt::format("{} ({})", split_text(split.devices_of), split.count));
  }
  return join(parts);
}

std::string reason_of(const StableBatchResult& result, int limit, int samples) {
  const BatchSizeSplits& last = result.sizes.back();
  return fmt::format(
      "no batch of up to {} samples ({} there are, sizes 1, 2, 4 … {} tried) asks for {} every "
      "time: the {} batches of {} samples asked for {}; the work of all samples lies {:.4f} "
      "devices "
      "from the next split",
      limit,
      samples,
      last.batch,
      split_text(result.region.devices_of),
      result.draws + 1,
      last.batch,
      counts_text(last),
      result.margin);
}

// Beyond the proven size nothing needs trying; below it one disagreement takes back what smaller
// batches agreed on.
void search(const StableBatchRequest& request, DrawProgress& progress, StableBatchResult& result) {
  const int limit = limit_of(request);
  for (std::int64_t batch = 1; batch <= limit; batch *= 2) {
    result.sizes.push_back(draw_splits(request, static_cast<int>(batch), result.draws, progress));
    ++result.sizes_tried;
    const BatchSizeSplits& size = result.sizes.back();
    if (!size.settled() || size.reference != result.region.devices_of) {
      result.b_min = 0;
    } else if (result.b_min == 0) {
      result.b_min = size.batch;
    }
    if (result.b_min > 0 && result.proven > 0 && batch >= result.proven) {
      break;
    }
  }
  if (result.b_min == 0) {
    result.reason = reason_of(result, limit, num_samples(request));
  }
}

}  // namespace

int num_validation_draws(double alpha, double error) {
  if (!(alpha > 0 && alpha < 1) || !(error > 0 && error < 1)) {
    throw InvalidInput(fmt::format(
        "stable batch: alpha {} and error {}; allowed: above 0, below 1", alpha, error));
  }
  // Less a hair, so that exact quotients stay what they are.
  const double draws = std::ceil(std::log(alpha) / std::log1p(-error) - 1e-9);
  if (!(draws <= kMostDraws)) {
    throw InvalidInput(
        fmt::format("stable batch: alpha {} and error {} ask for {:.0f} draws of "
                    "every size; at most {} are allowed",
                    alpha,
                    error,
                    draws,
                    kMostDraws));
  }
  return std::max(1, static_cast<int>(draws));
}

double StableBatchResult::search_alpha() const {
  return std::min(1.0, alpha * sizes_tried);
}

StableBatchResult find_stable_batch(const StableBatchRequest& request) {
  StableBatchResult result;
  result.draws = num_validation_draws(request.alpha, request.error);
  check_request(request);
  result.alpha = request.alpha;
  result.error = request.error;
  const std::vector<std::int64_t> all = total_work(request.work_ns);
  result.region = split_region(share_lanes(all, request.devices));
  result.margin = result.region.margin(all);
  result.proven = proven_stable_batch(result.region, request.work_ns, request.error);
  const double total = std::accumulate(all.begin(), all.end(), 0.0);
  for (const std::int64_t work : all) {
    result.shares.push_back(total > 0 ? static_cast<double>(work) / total * request.devices : 0);
  }
  DrawProgress progress(request, result.proven);
  search(request, progress, result);
  for (const int also : request.also) {
    if (std::none_of(result.sizes.begin(), result.sizes.end(), [&](const BatchSizeSplits& size) {
          return size.batch == also;
        })) {
      result.sizes.push_back(draw_splits(request, also, result.draws, progress));
    }
  }
  std::sort(result.sizes.begin(), result.sizes.end(), [](const auto& a, const auto& b) {
    return a.batch < b.batch;
  });
  return result;
}

std::string split_text(const std::vector<int>& devices_of) {
  return fmt::format("{}", fmt::join(devices_of, ":"));
}

}  // namespace entrain
