// b_min and drift on real manifests: 16 devices, Qwen2.5-VL's vision encoder or a Whisper-like one
// before a Llama-3 1B.
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "entrain/core/cost/analytic.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/planner/drift.h"
#include "entrain/core/planner/lane_shares.h"
#include "entrain/core/planner/stable_batch.h"

#include "tests/oracle/manifests.h"

namespace entrain {
namespace {

using oracle::manifests;

constexpr int kDevices = 16;
constexpr int kBatch = 512;

struct Manifest {
  std::string name;
  Modality modality = Modality::kVision;
  bool settles = true;  // below the size of the manifest
};
const std::vector<Manifest> kManifests = {
    {"coco_val2017_captions", Modality::kVision},
    {"opencqa_charts", Modality::kVision},
    {"mathvision_qa", Modality::kVision, false},
    {"librispeech_multiclip", Modality::kAudio},
    {"earnings22_turns", Modality::kAudio},
};

WorkTimes work_of(const std::filesystem::path& folder, const Manifest& manifest) {
  const ModelSpec model = oracle::manifest_model(manifest.modality);
  const Index index = read_index(folder / (manifest.name + ".csv"));
  const Profile profile = analytic_profile(model, device_model("a40"));
  return work_times(model, profile, batch_work(model, index.samples));
}

TEST(ManifestStableBatch, IsWhatDrawsAndBoundsSay) {
  if (!std::filesystem::is_directory(manifests())) {
    GTEST_SKIP() << "no shared data; set ENTRAIN_SHARED to its folder";
  }
  for (const Manifest& manifest : kManifests) {
    StableBatchRequest request;
    request.work_ns = work_of(manifests(), manifest);
    request.devices = kDevices;
    const StableBatchResult result = find_stable_batch(request);
    std::printf("  %-24s split %s, margin %.3f devices, b_min %d, proven from %lld\n",
                manifest.name.c_str(),
                split_text(result.region.devices_of).c_str(),
                result.margin,
                result.b_min,
                static_cast<long long>(result.proven));
    EXPECT_EQ(result.b_min > 0, manifest.settles) << manifest.name << ": " << result.reason;
    EXPECT_EQ(result.b_min > 0, result.reason.empty()) << manifest.name;
    if (result.b_min == 0) {
      continue;
    }
    // Fresh batches, drawn by other seeds, keep to what is certified.
    int others = 0;
    for (std::uint64_t seed = 1'000; seed < 1'400; ++seed) {
      const std::vector<int> rows =
          draw_study_rows(static_cast<int>(request.work_ns.front().size()), result.b_min, seed, 0);
      others +=
          share_lanes(total_work(request.work_ns, rows), kDevices) != result.region.devices_of;
    }
    EXPECT_LE(others, 40) << manifest.name << ": 5 % are 20 of 400";
  }
}

TEST(ManifestDrift, IsQuietInTrainingAndFindsAShift) {
  if (!std::filesystem::is_directory(manifests())) {
    GTEST_SKIP() << "no shared data; set ENTRAIN_SHARED to its folder";
  }
  for (const Manifest& manifest : kManifests) {
    const WorkTimes work = work_of(manifests(), manifest);
    const std::vector<std::int64_t> all = total_work(work);
    const SplitRegion region = split_region(share_lanes(all, kDevices));
    const double high = factor_range(region, all, 0).high;
    DriftMonitor monitor(region, work, kBatch);
    GlobalBatchSampler sampler(static_cast<int>(work.front().size()), kBatch, 3);
    int alarms = 0;
    std::int64_t step = 0;
    for (; step < 10'000; ++step) {
      if (monitor.observe(total_work(work, sampler.batch(step))).has_value()) {
        ++alarms;
        monitor.restart();
      }
    }
    EXPECT_EQ(alarms, 0) << manifest.name << ": 0.01 are what the contract allows in the mean";
    // A tenth more encoder work than the split allows.
    std::optional<DriftAlarm> alarm;
    const std::int64_t shifted = step;
    while (!alarm.has_value() && step < shifted + 1'000) {
      std::vector<std::int64_t> sums = total_work(work, sampler.batch(step));
      sums[0] = static_cast<std::int64_t>(static_cast<double>(sums[0]) * 1.1 * high);
      alarm = monitor.observe(sums);
      ++step;
    }
    std::printf("  %-24s no alarm in 10,000 steps; encoder work x %.3f found after %lld steps\n",
                manifest.name.c_str(),
                1.1 * high,
                static_cast<long long>(step - shifted));
    ASSERT_TRUE(alarm.has_value()) << manifest.name;
    EXPECT_EQ(alarm->gains, 0) << manifest.name;
    EXPECT_LE(step - shifted, 200) << manifest.name;
  }
}

}  // namespace
}  // namespace entrain
