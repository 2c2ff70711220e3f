#include "entrain/core/study/paper_batches.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/planner/lane_shares.h"
#include "entrain/core/planner/stable_batch.h"

namespace entrain {
namespace {

constexpr int kTheoremDraws = 1000;

}  // namespace

Json batch_splits(const WorkTimes& work, int devices, int global_batch) {
  StableBatchRequest request;
  request.work_ns = work;
  request.devices = devices;
  request.also = {1, 4, 16, 64, 256, global_batch};
  const StableBatchResult found = find_stable_batch(request);
  Json sizes = Json::array();
  for (const BatchSizeSplits& size : found.sizes) {
    Json splits = Json::object();
    for (const CountedSplit& split : size.splits) {
      splits[split_text(split.devices_of)] = split.count;
    }
    sizes.push_back({{"batch", size.batch}, {"splits", splits}});
  }
  // Fresh batches, of other seeds than the certificate's.
  int differ = 0;
  if (found.b_min > 0) {
    for (int draw = 0; draw < kTheoremDraws; ++draw) {
      const std::vector<int> rows =
          draw_study_rows(static_cast<int>(work.front().size()), found.b_min, 1000 + at(draw), 0);
      differ += share_lanes(total_work(work, rows), devices) == found.region.devices_of ? 0 : 1;
    }
  }
  return {{"devices", devices},
          {"split", split_text(found.region.devices_of)},
          {"b_min", found.b_min},
          {"proven", found.proven},
          {"reason", found.reason},
          {"sizes", sizes},
          {"fresh_batches", found.b_min > 0 ? kTheoremDraws : 0},
          {"fresh_differ", differ}};
}

Json ratios_by_size(const WorkTimes& work) {
  constexpr int kBatches = 200;
  const auto ratio = [&](const std::vector<std::int64_t>& total) {
    const std::int64_t encoders = std::accumulate(total.begin(), total.end() - 1, std::int64_t{0});
    return static_cast<double>(encoders) /
           static_cast<double>(std::max<std::int64_t>(1, total.back()));
  };
  Json sizes = Json::array();
  for (const int size : {1, 4, 16, 64, 256, 1024}) {
    std::vector<double> values;
    for (int draw = 0; draw < kBatches; ++draw) {
      values.push_back(ratio(
          total_work(work, draw_study_rows(static_cast<int>(work.front().size()), size, 7, draw))));
    }
    std::sort(values.begin(), values.end());
    sizes.push_back({{"batch", size},
                     {"p5", values[kBatches / 20]},
                     {"median", values[kBatches / 2]},
                     {"p95", values[kBatches - 1 - kBatches / 20]}});
  }
  return {{"all", ratio(total_work(work))}, {"sizes", sizes}};
}

}  // namespace entrain
