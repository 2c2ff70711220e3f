#include "entrain/engine/checkpoint/write.h"

#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

std::vector<NamedParameter> copies_of(const std::vector<NamedParameter>& tensors) {
  std::vector<NamedParameter> copies;
  copies.reserve(tensors.size());
  for (const NamedParameter& tensor : tensors) {
    copies.push_back({tensor.name,
                      tensor.tensor.detach().to(tensor.tensor.options().device(at::kCPU),
                                                /*non_blocking=*/false,
                                                /*copy=*/true)});
  }
  return copies;
}

std::string file_name(const char* content, int lane) {
  const std::string digits = std::to_string(lane);
  return concat(content,
                "-lane-",
                std::string(5 - std::min<std::size_t>(5, digits.size()), '0'),
                digits,
                ".safetensors");
}

void write_tensors(const fs::path& partial,
                   const std::string& name,
                   const std::vector<NamedParameter>& tensors,
                   LaneFiles& written) {
  const fs::path path = partial / name;
  write_weights(path, tensors);
  written.files.push_back(
      {name, static_cast<std::int64_t>(fs::file_size(path)), digest_of_file(path)});
  for (const NamedParameter& tensor : tensors) {
    written.tensors.push_back({info_of(tensor), name});
  }
}

constexpr std::chrono::milliseconds kReportPoll{5};

fs::path report_path(const fs::path& partial, int lane) {
  return partial / concat("written-lane-", lane, ".json");
}

}  // namespace

LaneSnapshot snapshot_of(int lane,
                         const std::vector<NamedParameter>& weights,
                         const std::vector<NamedParameter>& moments) {
  return {lane, copies_of(weights), copies_of(moments), 0};
}

fs::path begin_checkpoint(const fs::path& folder, std::int64_t step) {
  const fs::path partial = partial_path(folder, step);
  std::error_code error;
  fs::remove_all(partial, error);
  if (!error) {
    fs::create_directories(partial, error);
  }
  if (error) {
    throw SystemFailure(concat("cannot create folder '", partial.string(), "': ", error.message()));
  }
  return partial;
}

LaneFiles write_lane(const fs::path& partial, const LaneSnapshot& snapshot) {
  LaneFiles written;
  write_tensors(partial, file_name("weights", snapshot.lane), snapshot.weights, written);
  if (!snapshot.moments.empty()) {
    write_tensors(partial, file_name("optimizer", snapshot.lane), snapshot.moments, written);
  }
  return written;
}

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

void commit_checkpoint(const fs::path& folder, const Manifest& manifest, int keep) {
  const fs::path partial = partial_path(folder, manifest.step);
  const fs::path named = folder / checkpoint_name(manifest.step);
  write_file(partial / kManifestName, encode(manifest));
  sync_folder(partial);
  std::error_code error;
  if (fs::exists(named, error)) {  // damaged, or of a run that was resumed before it
    discard_checkpoint(folder, manifest.step);
  }
  fs::rename(partial, named, error);
  if (error) {
    throw SystemFailure(concat("cannot write '", named.string(), "': ", error.message()));
  }
  sync_folder(folder);
  write_latest(folder, {manifest.step, digest(manifest)});
  prune(folder, manifest.step, keep);
}

}  // namespace entrain::engine
