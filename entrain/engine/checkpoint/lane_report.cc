#include "entrain/engine/checkpoint/lane_report.h"

#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/layout.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kReportPoll{5};

fs::path report_path(const fs::path& partial, int lane) {
  return partial / concat("written-lane-", lane, ".json");
}

}  // namespace

// The report is a manifest of this lane only, so that the same checks apply.
void hand_in_lane(const fs::path& folder, std::int64_t step, const LaneSnapshot& snapshot) {
  const fs::path partial = partial_path(folder, step);
  Manifest report;
  report.step = step;
  report.run.config = report.run.plan = report.run.model = Json::object();
  report.lanes.push_back(write_lane(partial, snapshot));
  write_file(report_path(partial, snapshot.lane), encode(report));
}

std::vector<LaneFiles> collect_lanes(const fs::path& folder,
                                     std::int64_t step,
                                     int num_lanes,
                                     const std::function<bool()>& give_up) {
  const fs::path partial = partial_path(folder, step);
  std::vector<LaneFiles> lanes;
  for (int lane = 1; lane < num_lanes; ++lane) {
    const fs::path path = report_path(partial, lane);
    while (!fs::exists(path)) {
      if (give_up()) {
        return {};
      }
      std::this_thread::sleep_for(kReportPoll);
    }
    Manifest report = decode_manifest(read_file(path), path.string());
    if (report.step != step || report.lanes.size() != 1) {
      throw InvalidInput(
          concat("'", path.string(), "' is not the report of a lane for step ", step));
    }
    lanes.push_back(std::move(report.lanes.front()));
    fs::remove(path);
  }
  return lanes;
}

}  // namespace entrain::engine
