#include "entrain/engine/train/resume.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

std::string model_text(const CheckpointRun& run) {
  return concat(run.config.at("model").dump(),
                " (freeze ",
                run.config.at("freeze").dump(),
                ", digest ",
                short_digest(run.model_digest),
                ")");
}

std::string index_text(const CheckpointRun& run) {
  const Json& data = run.config.at("data");
  const Json fraction = data.value("validation_fraction", Json(0));
  return concat(data.at("train").dump(),
                " (",
                fraction == 0 ? "" : concat("validation_fraction ", fraction.dump(), ", "),
                "digest ",
                short_digest(run.index_digest),
                ")");
}

// The settings that identify a run, besides files with digests: by path, of a resolved
// configuration. Keys unknown to older runs have those runs' behaviour as default.
std::map<std::string, Json> settings_of(const Json& config) {
  const auto leaves_out = [](const std::string& key) {
    return key == "train" || key == "validation" || key == "validation_fraction" ||
           key == "read_ahead_mib" || key == "decode_threads" || key == "share_decoding" ||
           key.starts_with("feed") || key == "update_every";
  };
  std::map<std::string, Json> settings = {{"seed", config.value("seed", Json())},
                                          {"data.last_batch", "drop"},
                                          {"data.hold", 1},
                                          {"data.mixture", Json::object()},
                                          {"data.ignore_modality", Json::array()}};
  for (const char* table : {"data", "optimizer"}) {
    const Json values = config.value(table, Json::object());
    for (const auto& [key, value] : values.items()) {
      if (!leaves_out(key)) {
        settings[concat(table, ".", key)] = value;
      }
    }
  }
  const Json execution = config.value("execution", Json::object());
  settings["execution.precision"] = execution.value("precision", "fp32");
  return settings;
}

template <class Value>
void compare(const std::string& what,
             bool same,
             const Value& before,
             const Value& after,
             std::vector<std::string>& differences) {
  if (!same) {
    differences.push_back(concat(what, " ", before, " there, ", after, " here"));
  }
}

std::vector<std::string> setting_differences(const Json& then, const Json& now) {
  const std::map<std::string, Json> before = settings_of(then);
  std::vector<std::string> differences;
  for (const auto& [key, value] : settings_of(now)) {
    const auto found = before.find(key);
    if (found != before.end()) {
      compare(key, found->second == value, found->second.dump(), value.dump(), differences);
    }
  }
  return differences;
}

int update_every(const CheckpointRun& run) {
  const auto optimizer = run.config.find("optimizer");
  return optimizer == run.config.end() ? 1 : optimizer->value("update_every", 1);
}

// "steps = 100" or "epochs = 2".
std::string length(const Json& config) {
  const char* key = config.contains("epochs") ? "epochs" : "steps";
  return concat(key, " = ", config.at(key).dump());
}

// `holds_run`: whether there is one to continue or to set aside.
std::string ways_out(bool can_resume, bool holds_run = true) {
  if (!holds_run) {
    return "Choose another output";
  }
  return concat(
      can_resume ? "Continue anyway with --resume (checkpoint.resume = \"accept\"), choose"
                 : "Choose",
      " another output, or set the earlier run aside with --overwrite (checkpoint.resume = "
      "\"never\")");
}

// Refuses differences that identify another run, and returns those that were accepted.
std::vector<std::string> check_same_run(const fs::path& checkpoint,
                                        const CheckpointRun& then,
                                        const CheckpointRun& now,
                                        bool accept) {
  std::vector<std::string> hard;
  compare("optimizer.update_every",
          update_every(then) == update_every(now),
          update_every(then),
          update_every(now),
          hard);
  compare("model", then.model_digest == now.model_digest, model_text(then), model_text(now), hard);
  std::vector<std::string> soft = setting_differences(then.config, now.config);
  compare(
      "data.train", then.index_digest == now.index_digest, index_text(then), index_text(now), soft);
  if (hard.empty() && (soft.empty() || accept)) {
    return soft;
  }
  const bool can_resume = hard.empty();
  hard.insert(hard.end(), soft.begin(), soft.end());
  throw InvalidInput(concat("checkpoint '",
                            checkpoint.string(),
                            "' belongs to another run: ",
                            join(hard, "; "),
                            ". ",
                            ways_out(can_resume)));
}

void note_change(const std::string& key,
                 const Json& before,
                 const Json& after,
                 std::vector<std::string>& notes) {
  if (before != after) {
    notes.push_back(
        concat(key, " was ", before.dump(), " when the checkpoint was written, is ", after.dump()));
  }
}

std::vector<std::string> changes(const Manifest& manifest, const CheckpointRun& now) {
  std::vector<std::string> notes;
  const Json& then = manifest.run.config;
  const char* unit = then.contains("epochs") ? "epochs" : "steps";
  if (now.config.contains(unit)) {
    note_change(unit, then.at(unit), now.config.at(unit), notes);
  } else {
    note_change("the run's length", length(then), length(now.config), notes);
  }
  const Json& execution = then.at("execution");
  note_change("execution.device",
              execution.contains("device") ? execution.at("device") : Json("cpu"),
              now.config.at("execution").at("device"),
              notes);
  note_change("Entrain's version", manifest.entrain_version, std::string(version()), notes);
  note_change("torch's version", manifest.torch_version, ENTRAIN_TORCH_VERSION, notes);
  if (manifest.run.plan_digest != now.plan_digest) {
    notes.emplace_back(
        "the plan differs: the same samples in the same order, sums in a different order");
  }
  return notes;
}

// Files a run writes into its folder, besides checkpoints, dumps and logs.
constexpr std::array<const char*, 8> kRunFiles = {"config.json",
                                                  "plan.json",
                                                  "model.json",
                                                  "metrics.jsonl",
                                                  "memory.json",
                                                  kWeightsName,
                                                  "trace_predicted.json",
                                                  "trace_measured.json"};

std::vector<std::string> run_files(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const char* name : kRunFiles) {
    if (fs::exists(fs::symlink_status(folder / name, ignored))) {
      found.emplace_back(name);
    }
  }
  return found;
}

// The resolved configuration of an earlier run; null if there is none.
Json config_left_in(const fs::path& folder) {
  try {
    const Json config = Json::parse(read_file(folder / "config.json"));
    return config.contains("data") && config.contains("output") && config.contains("model")
               ? config
               : Json();
  } catch (const std::exception&) {
    return {};
  }
}

std::int64_t rows_left_in(const fs::path& folder) {
  std::error_code ignored;
  const fs::path path = folder / "metrics.jsonl";
  return fs::exists(path, ignored) ? std::ranges::count(read_file(path), '\n') : 0;
}

// A run folder without a checkpoint to continue from: whether a run may begin there.
void check_may_begin(const RunConfig& config,
                     const CheckpointRun& now,
                     std::vector<std::string>& warnings) {
  const fs::path folder(config.output);
  const std::vector<std::string> files = run_files(folder);
  const auto refuse = [&](const std::string& why, bool holds_run = true) {
    throw InvalidInput(concat(
        "output '", config.output, "' ", why, ". ", ways_out(/*can_resume=*/false, holds_run)));
  };
  if (config.execution.paced && !checkpoint_steps(checkpoint_folder(config)).empty()) {
    refuse("holds the checkpoints of a run; this paced run would overwrite its metrics");
  }
  if (files.empty()) {
    return;
  }
  const Json then = config_left_in(folder);
  if (then.is_null()) {
    refuse(concat("holds ", join(files), ", and config.json does not identify their run"),
           /*holds_run=*/false);
  }
  if (std::ranges::count(files, kWeightsName) > 0) {
    refuse("holds the weights of a run, and no checkpoint to continue from");
  }
  const std::int64_t rows = rows_left_in(folder);
  if (rows == 0) {
    return;
  }
  std::vector<std::string> differences = setting_differences(then, now.config);
  for (const char* key : {"model", "freeze", "lora"}) {
    const Json before = then.value(key, Json());
    const Json after = now.config.value(key, Json());
    compare(key, before == after, before.dump(), after.dump(), differences);
  }
  const bool paced = then.value("execution", Json::object()).value("paced", false);
  compare("execution.paced",
          paced == config.execution.paced,
          paced,
          config.execution.paced,
          differences);
  if (!differences.empty()) {
    refuse(concat(
        "holds ", counted(rows, "row"), " of another run's metrics: ", join(differences, "; ")));
  }
  if (paced && rows >= config.steps) {
    refuse("holds a paced run that has ended; there is nothing to continue from");
  }
  warnings.push_back(concat("'",
                            config.output,
                            "' holds this same run, which ended after ",
                            counted(rows, "row"),
                            " of metrics, before its first checkpoint; it starts again and this "
                            "is removed"));
}

// Whether the weights file is that of the run's last step.
bool has_weights_of(const RunConfig& config) {
  try {
    const auto none = [](const std::string& /*name*/) { return false; };
    const auto metadata = read_weights(fs::path(config.output) / kWeightsName, none).metadata;
    const auto step = metadata.find(kStepKey);
    return step != metadata.end() && step->second == std::to_string(config.steps);
  } catch (const std::exception&) {
    return false;
  }
}

// The first name of that kind which is free.
fs::path free_name(const fs::path& parent, const std::string& prefix) {
  std::error_code ignored;
  for (int number = 1;; ++number) {
    fs::path path = parent / concat(prefix, number);
    if (!fs::exists(fs::symlink_status(path, ignored))) {
      return path;
    }
  }
}

void move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) {
    fs::rename(from, to, error);
  }
  if (error) {
    throw SystemFailure(
        concat("cannot move '", from.string(), "' to '", to.string(), "': ", error.message()));
  }
}

// Names in the run's folder that belong to an earlier run; empty if there is none.
std::vector<std::string> earlier_names(const RunConfig& config) {
  const fs::path folder(config.output);
  std::vector<std::string> names = run_files(folder);
  if (names.empty() && checkpoint_steps(checkpoint_folder(config)).empty()) {
    return {};
  }
  std::error_code ignored;
  for (const char* name : {kCheckpointsName, "dumps", "logs", kTensorboardName}) {
    if (fs::exists(folder / name, ignored)) {
      names.emplace_back(name);
    }
  }
  return names;
}

// An input of the run among what set_aside() would move: it would be gone from where its
// configuration names it.
void check_inputs_stay(const RunConfig& config) {
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(config.output, ignored);
  const std::vector<std::string> names = earlier_names(config);
  const auto check = [&](const char* key, const std::string& input) {
    const fs::path within = fs::weakly_canonical(input, ignored).lexically_relative(folder);
    if (!input.empty() && !within.empty() &&
        std::ranges::count(names, within.begin()->string()) > 0) {
      throw InvalidInput(concat(key,
                                ": '",
                                input,
                                "' lies in the run's folder, and setting the earlier run aside "
                                "would move it away; copy it to a place of its own, or choose "
                                "another output"));
    }
  };
  check("plan.file", config.plan.file);
  check("plan.profile", config.plan.profile);
  check("plan.index", config.plan.index);
  check("data.train", config.data.train);
  check("data.validation", config.data.validation);
  check("data.feed_key", config.data.feed_key);
  check("model", config.model_file);
  check("init.from", config.init.from);
  check("init.adapter", config.init.adapter);
}

// Moves everything of an earlier run; nothing is removed. Empty if there was none.
std::string set_aside(const RunConfig& config) {
  const fs::path folder(config.output);
  const fs::path checkpoints = checkpoint_folder(config);
  const std::vector<std::string> names = earlier_names(config);
  const bool has_checkpoints = !checkpoint_steps(checkpoints).empty();
  if (names.empty() && !has_checkpoints) {
    return "";
  }
  std::vector<std::string> places;
  std::error_code ignored;
  if (!names.empty()) {
    const fs::path aside = free_name(folder, "earlier-");
    for (const std::string& name : names) {
      move(folder / name, aside / name);
    }
    places.push_back(concat("'", aside.string(), "'"));
  }
  if (has_checkpoints && fs::exists(checkpoints, ignored)) {  // a folder of their own
    const fs::path plain = (checkpoints / "").parent_path();
    const fs::path aside = free_name(plain.parent_path(), plain.filename().string() + ".earlier-");
    move(plain, aside);
    places.push_back(concat("'", aside.string(), "'"));
  }
  return concat("an earlier run is now in ", join(places, " and "));
}

// Skipped damaged checkpoints: they must not count as kept ones.
std::string set_damaged_aside(const fs::path& folder, std::int64_t resumed) {
  std::vector<std::string> places;
  for (const std::int64_t step : checkpoint_steps(folder)) {
    if (step > resumed) {
      const fs::path aside = free_name(folder, concat("damaged-", checkpoint_name(step), "-"));
      move(folder / checkpoint_name(step), aside);
      places.push_back(concat("'", aside.string(), "'"));
    }
  }
  return places.empty() ? "" : concat("damaged checkpoints are now in ", join(places, " and "));
}

}  // namespace

std::optional<ResumePoint> find_resume(const RunConfig& config,
                                       const CheckpointRun& now,
                                       std::vector<std::string>& warnings) {
  const std::string& from = config.checkpoint.resume;
  if (from == kResumeNever) {
    check_inputs_stay(config);
    return std::nullopt;
  }
  const fs::path folder = checkpoint_folder(config);
  const bool by_path = from != kResumeAuto && from != kResumeAccept;
  std::optional<UsableCheckpoint> found;
  if (by_path && !config.execution.paced) {
    found = usable_at(from);
  } else if (!config.execution.paced) {
    found = newest_usable(folder);
  }
  if (!found.has_value()) {
    check_may_begin(config, now, warnings);
    return std::nullopt;
  }
  for (const std::string& warning : found->warnings) {
    warnings.push_back(warning);
  }
  ResumePoint point;
  for (const std::string& difference :
       check_same_run(found->path, found->manifest.run, now, by_path || from == kResumeAccept)) {
    point.notes.push_back(concat("a different setting was accepted: ", difference));
  }
  if (found->manifest.step > config.steps) {
    throw InvalidInput(concat("checkpoint '",
                              found->path.string(),
                              "' is of step ",
                              found->manifest.step,
                              ", the run has steps = ",
                              config.steps,
                              ". ",
                              ways_out(/*can_resume=*/false)));
  }
  point.checkpoint = found->path;
  for (std::string& note : changes(found->manifest, now)) {
    point.notes.push_back(std::move(note));
  }
  point.manifest = std::move(found->manifest);
  std::error_code error;
  point.continues = fs::equivalent(point.checkpoint.parent_path(), folder, error) && !error;
  if (!point.continues) {
    check_inputs_stay(config);
  }
  point.finished = point.continues && point.manifest.step == config.steps && has_weights_of(config);
  return point;
}

std::string prepare_folders(const RunConfig& config, const std::optional<ResumePoint>& resume) {
  const bool continues = resume.has_value() && resume->continues;
  const bool begins_again = !resume.has_value() && config.checkpoint.resume != kResumeNever;
  std::string note;
  if (!continues && !begins_again) {
    note = set_aside(config);
  }
  if (config.execution.paced) {
    return note;
  }
  const fs::path folder = checkpoint_folder(config);
  remove_leftovers(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw SystemFailure(concat("cannot create folder '", folder.string(), "': ", error.message()));
  }
  const std::string& from = config.checkpoint.resume;
  if (continues && (from == kResumeAuto || from == kResumeAccept)) {
    note = set_damaged_aside(folder, resume->manifest.step);
  }
  if (continues) {  // also at an earlier checkpoint, although later ones stay until the next write
    write_latest(folder, {resume->manifest.step, digest(resume->manifest)});
  }
  return note;
}

}  // namespace entrain::engine
