#include "entrain/engine/train/resume.h"

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"

#include "entrain/engine/checkpoint/layout.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

std::string model_text(const CheckpointRun& run) {
  return concat(run.model_digest,
                " (",
                run.config.at("model").get<std::string>(),
                ", freeze ",
                run.config.at("freeze").dump(),
                ")");
}

std::string index_text(const CheckpointRun& run) {
  return concat(run.index_digest, " (", run.config.at("data").at("train").get<std::string>(), ")");
}

// A run of before this key dropped it.
std::string last_batch(const CheckpointRun& run) {
  return run.config.at("data").value("last_batch", "drop");
}

// "steps = 100" or "epochs = 2".
std::string length(const Json& config) {
  const char* key = config.contains("epochs") ? "epochs" : "steps";
  return concat(key, " = ", config.at(key).dump());
}

int update_every(const CheckpointRun& run) {
  const auto optimizer = run.config.find("optimizer");
  return optimizer == run.config.end() ? 1 : optimizer->value("update_every", 1);
}

// Refuses what would make another run of it.
void check_same_run(const fs::path& checkpoint,
                    const CheckpointRun& then,
                    const CheckpointRun& now) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* what, bool same, const auto& before, const auto& after) {
    if (!same) {
      differences.push_back(concat(what, " ", before, " there, ", after, " here"));
    }
  };
  compare("seed", then.seed == now.seed, then.seed, now.seed);
  compare("data.global_batch",
          then.global_batch == now.global_batch,
          then.global_batch,
          now.global_batch);
  compare(
      "data.last_batch", last_batch(then) == last_batch(now), last_batch(then), last_batch(now));
  compare("optimizer.update_every",
          update_every(then) == update_every(now),
          update_every(then),
          update_every(now));
  compare("index digest", then.index_digest == now.index_digest, index_text(then), index_text(now));
  compare("model digest", then.model_digest == now.model_digest, model_text(then), model_text(now));
  if (!differences.empty()) {
    throw InvalidInput(concat("checkpoint '",
                              checkpoint.string(),
                              "' is of another run: ",
                              join(differences, "; "),
                              ". To begin anew, choose another output or checkpoint.resume = "
                              "\"never\""));
  }
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
  for (const auto& [key, value] : now.config.at("optimizer").items()) {
    const Json& optimizer = then.at("optimizer");
    note_change(concat("optimizer.", key),
                optimizer.contains(key) ? optimizer.at(key) : Json(),
                value,
                notes);
  }
  const Json& execution = then.at("execution");
  note_change("execution.device",
              execution.contains("device") ? execution.at("device") : Json("cpu"),
              now.config.at("execution").at("device"),
              notes);
  note_change("execution.precision",
              execution.contains("precision") ? execution.at("precision") : Json("fp32"),
              now.config.at("execution").at("precision"),
              notes);
  note_change("Entrain's version", manifest.entrain_version, std::string(version()), notes);
  note_change("torch's version", manifest.torch_version, ENTRAIN_TORCH_VERSION, notes);
  if (manifest.run.plan_digest != now.plan_digest) {
    notes.emplace_back("the plan is another one: same samples in the same order, sums in another");
  }
  return notes;
}

}  // namespace

std::optional<ResumePoint> find_resume(const RunConfig& config,
                                       const CheckpointRun& now,
                                       std::vector<std::string>& warnings) {
  const std::string& from = config.checkpoint.resume;
  if (config.execution.paced || from == "never") {
    return std::nullopt;
  }
  const fs::path folder = checkpoint_folder(config);
  std::optional<UsableCheckpoint> found;
  if (from == "auto") {
    found = newest_usable(folder);
  } else {
    found = usable_at(from);
  }
  if (!found.has_value()) {
    return std::nullopt;
  }
  for (const std::string& warning : found->warnings) {
    warnings.push_back(warning);
  }
  check_same_run(found->path, found->manifest.run, now);
  if (found->manifest.step > config.steps) {
    throw InvalidInput(concat("checkpoint '",
                              found->path.string(),
                              "' is of step ",
                              found->manifest.step,
                              ", the run has steps = ",
                              config.steps));
  }
  ResumePoint point;
  point.checkpoint = found->path;
  point.notes = changes(found->manifest, now);
  point.manifest = std::move(found->manifest);
  std::error_code error;
  point.continues = fs::equivalent(point.checkpoint.parent_path(), folder, error) && !error;
  return point;
}

std::string prepare_checkpoint_folder(const RunConfig& config,
                                      const std::optional<ResumePoint>& resume) {
  if (config.execution.paced) {
    return "";
  }
  const fs::path folder = checkpoint_folder(config);
  const bool continues = resume.has_value() && resume->continues;
  std::string note;
  if (!continues && !checkpoint_steps(folder).empty()) {
    note = concat("checkpoints of an earlier run are now in '", set_aside(folder).string(), "'");
  }
  remove_leftovers(folder);
  if (config.checkpoint.every_steps > 0) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      throw SystemFailure(
          concat("cannot create folder '", folder.string(), "': ", error.message()));
    }
  }
  return note;
}

}  // namespace entrain::engine
