#include "entrain/engine/checkpoint/manifest.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

constexpr int kVersion = 1;
constexpr const char* kDigestKey = "digest";

Json to_json(const LaneFiles& lane) {
  Json files = Json::array();
  for (const CheckpointFile& file : lane.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}});
  }
  Json tensors = Json::array();
  for (const CheckpointTensor& tensor : lane.tensors) {
    tensors.push_back({{"name", tensor.info.name},
                       {"dtype", tensor.info.dtype},
                       {"shape", tensor.info.shape},
                       {"file", tensor.file}});
  }
  return {{"files", files}, {"tensors", tensors}};
}

Json content_of(const Manifest& manifest) {
  Json lanes = Json::array();
  for (const LaneFiles& lane : manifest.lanes) {
    lanes.push_back(to_json(lane));
  }
  const CheckpointRun& run = manifest.run;
  Json content = {{"version", kVersion},
                  {"step", manifest.step},
                  {"entrain_version", manifest.entrain_version},
                  {"torch_version", manifest.torch_version},
                  {"seed", run.seed},
                  {"global_batch", run.global_batch},
                  {"index_digest", run.index_digest},
                  {"model_digest", run.model_digest},
                  {"plan_digest", run.plan_digest},
                  {"config_digest", run.config_digest},
                  {"config", run.config},
                  {"plan", run.plan},
                  {"model", run.model},
                  {"lanes", lanes}};
  const SkipCounts& skipped = manifest.skipped;
  if (skipped.steps != 0) {
    content["skipped"] = skipped.steps;
  }
  if (skipped.updates != skipped.steps) {
    content["skipped_updates"] = skipped.updates;
  }
  return content;
}

// A name that cannot refer to a file outside the checkpoint's folder.
std::string plain_name(ObjectReader& reader, const std::string& key) {
  const auto name = reader.required<std::string>(key);
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
    reader.fail(key, concat("'", name, "' is not the plain name of a file"));
  }
  return name;
}

LaneFiles read_lane(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  LaneFiles lane;
  for (const auto& [value, file_where] : reader.array("files")) {
    ObjectReader file(*value, file_where);
    lane.files.push_back({plain_name(file, "name"),
                          file.required<std::int64_t>("bytes"),
                          file.required<std::string>("digest")});
    file.finish();
  }
  for (const auto& [value, tensor_where] : reader.array("tensors")) {
    ObjectReader tensor(*value, tensor_where);
    CheckpointTensor read;
    read.info.name = tensor.required<std::string>("name");
    read.info.dtype = tensor.required<std::string>("dtype");
    read.info.shape = tensor.list<std::int64_t>("shape");
    read.file = plain_name(tensor, "file");
    tensor.finish();
    lane.tensors.push_back(std::move(read));
  }
  reader.finish();
  return lane;
}

Manifest unchecked_manifest(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  reader.check_version(kVersion);
  Manifest manifest;
  manifest.step = reader.required<std::int64_t>("step");
  SkipCounts& skipped = manifest.skipped;
  skipped.steps = reader.optional<std::int64_t>("skipped", 0);
  if (skipped.steps < 0 || skipped.steps > manifest.step) {
    reader.fail("skipped", concat(skipped.steps, " of ", manifest.step, " steps"));
  }
  skipped.updates = reader.optional("skipped_updates", skipped.steps);
  if (skipped.updates < 0 || skipped.updates > skipped.steps) {
    reader.fail("skipped_updates",
                concat(skipped.updates, " by ", skipped.steps, " skipped steps"));
  }
  manifest.entrain_version = reader.required<std::string>("entrain_version");
  manifest.torch_version = reader.required<std::string>("torch_version");
  manifest.run.seed = reader.required<std::uint64_t>("seed");
  manifest.run.global_batch = reader.required<int>("global_batch");
  manifest.run.index_digest = reader.required<std::string>("index_digest");
  manifest.run.model_digest = reader.required<std::string>("model_digest");
  manifest.run.plan_digest = reader.required<std::string>("plan_digest");
  manifest.run.config_digest = reader.required<std::string>("config_digest");
  manifest.run.config = reader.at("config");
  manifest.run.plan = reader.at("plan");
  manifest.run.model = reader.at("model");
  for (const auto& [value, lane_where] : reader.array("lanes")) {
    manifest.lanes.push_back(read_lane(*value, lane_where));
  }
  reader.finish();
  return manifest;
}

}  // namespace

std::string digest(const Manifest& manifest) {
  return digest_of(content_of(manifest).dump(1));
}

std::string encode(const Manifest& manifest) {
  Json content = content_of(manifest);
  content[kDigestKey] = digest_of(content.dump(1));
  return content.dump(1) + "\n";
}

Manifest decode_manifest(const std::string& content, const std::string& where) {
  Json document = parse_json(content, where);
  if (!document.is_object() || !document.contains(kDigestKey)) {
    throw InvalidInput(concat(where, ": no digest; the file is not a checkpoint's manifest"));
  }
  const std::string claimed = document[kDigestKey].dump();
  document.erase(kDigestKey);
  const std::string actual = digest_of(document.dump(1));
  if (claimed != Json(actual).dump()) {
    throw InvalidInput(concat(where, ": digest ", claimed, " claimed, the content has ", actual));
  }
  Manifest manifest = unchecked_manifest(document, where);
  if (encode(manifest) != content) {
    throw InvalidInput(concat(where, ": the file was changed after it was written"));
  }
  return manifest;
}

bool is_moment(const std::string& tensor_name) {
  return std::ranges::any_of(
      kMomentSuffixes, [&](std::string_view suffix) { return tensor_name.ends_with(suffix); });
}

}  // namespace entrain::engine
