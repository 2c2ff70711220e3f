#include "entrain/engine/checkpoint/read.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "entrain/core/base/digest.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/checkpoint/layout.h"
#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

namespace fs = std::filesystem;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return concat(at::IntArrayRef(shape));
}

void add_expected(const std::vector<NamedParameter>& parameters, std::vector<TensorInfo>& all) {
  for (const NamedParameter& parameter : parameters) {
    all.push_back(info_of(parameter));
    if (!parameter.tensor.requires_grad()) {
      continue;
    }
    for (const std::string_view suffix : kMomentSuffixes) {
      all.push_back(info_of({concat(parameter.name, suffix), parameter.tensor}));
    }
  }
}

// Collects what is wrong with one checkpoint.
class Verifier {
 public:
  explicit Verifier(const fs::path& checkpoint) : checkpoint_(checkpoint) {}

  Verification verify() {
    try {
      result_.manifest = read_manifest(checkpoint_);
    } catch (const std::exception& error) {
      add(kManifestName, error.what());
      return result_;
    }
    check_place();
    for (const LaneFiles& lane : result_.manifest->lanes) {
      for (const CheckpointFile& file : lane.files) {
        check_file(file, lane);
      }
    }
    check_completeness();
    return result_;
  }

 private:
  void add(const std::string& file, std::string message) {
    const fs::path path = checkpoint_ / file;
    const std::string prefix = path.string() + ": ";
    if (message.starts_with(prefix)) {
      message.erase(0, prefix.size());
    }
    result_.problems.push_back({path, std::move(message)});
  }

  void check_place() {
    const auto step = step_of(fs::absolute(checkpoint_ / "").parent_path().filename().string());
    if (step.has_value() && *step != result_.manifest->step) {
      add(kManifestName,
          concat("of step ", result_.manifest->step, ", in the folder of step ", *step));
    }
  }

  void check_file(const CheckpointFile& file, const LaneFiles& lane) {
    const fs::path path = checkpoint_ / file.name;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) {
      add(file.name, "missing");
      return;
    }
    const auto bytes = static_cast<std::int64_t>(fs::file_size(path, error));
    if (error || bytes != file.bytes) {
      add(file.name, concat(bytes, " bytes, ", file.bytes, " were written"));
      return;
    }
    try {
      const std::string actual = digest_of_file(path);
      if (actual != file.digest) {
        add(file.name, concat("damaged: digest ", actual, ", ", file.digest, " was written"));
        return;
      }
      std::vector<TensorInfo> listed;
      for (const CheckpointTensor& tensor : lane.tensors) {
        if (tensor.file == file.name) {
          listed.push_back(tensor.info);
        }
      }
      if (read_weight_header(path) != listed) {
        add(file.name, "holds other tensors than the manifest lists");
      }
    } catch (const std::exception& failure) {
      add(file.name, failure.what());
    }
  }

  // Every tensor once, in a listed file, and all that the model needs.
  void check_completeness() {
    std::map<std::string, std::vector<std::int64_t>> found;
    for (const LaneFiles& lane : result_.manifest->lanes) {
      for (const CheckpointTensor& tensor : lane.tensors) {
        const bool has_file = std::ranges::any_of(
            lane.files, [&](const CheckpointFile& file) { return file.name == tensor.file; });
        if (!has_file) {
          add(tensor.file, concat("not listed, but said to hold '", tensor.info.name, "'"));
        }
        if (!found.emplace(tensor.info.name, tensor.info.shape).second) {
          add(tensor.file, concat("tensor '", tensor.info.name, "' is written twice"));
        }
      }
    }
    try {
      check_against_model(found);
    } catch (const std::exception& error) {
      add(kManifestName, concat("model: ", error.what()));
    }
  }

  void check_against_model(std::map<std::string, std::vector<std::int64_t>>& found) {
    const std::string where = concat((checkpoint_ / kManifestName).string(), ": model");
    const ModelSpec model = model_from_json(result_.manifest->run.model, where);
    for (const TensorInfo& expected : expected_tensors(model)) {
      const auto tensor = found.find(expected.name);
      if (tensor == found.end()) {
        add(kManifestName, concat("tensor '", expected.name, "' is missing"));
        continue;
      }
      if (tensor->second != expected.shape) {
        add(kManifestName,
            concat("tensor '",
                   expected.name,
                   "' has shape ",
                   shape_text(tensor->second),
                   ", the model needs ",
                   shape_text(expected.shape)));
      }
      found.erase(tensor);
    }
    for (const auto& [name, shape] : found) {
      add(kManifestName, concat("tensor '", name, "' is not in the model"));
    }
  }

  fs::path checkpoint_;
  Verification result_;
};

// Steps to try, best first, with a warning if `latest` is unusable.
std::vector<std::int64_t> candidates_in(const fs::path& folder,
                                        std::optional<Latest>& latest,
                                        std::vector<std::string>& warnings) {
  std::vector<std::int64_t> steps = checkpoint_steps(folder);
  std::ranges::reverse(steps);
  try {
    latest = read_latest(folder);
    if (!latest.has_value() && !steps.empty()) {
      warnings.push_back(concat("'",
                                (folder / kLatestName).string(),
                                "' is missing; using the newest complete checkpoint"));
    }
  } catch (const std::exception& error) {
    warnings.push_back(concat(error.what(), "; using the newest complete checkpoint"));
  }
  if (latest.has_value()) {
    std::erase_if(steps, [&](std::int64_t step) { return step >= latest->step; });
    steps.insert(steps.begin(), latest->step);
  }
  return steps;
}

std::string summary_of(const fs::path& checkpoint, const Verification& verification) {
  const CheckpointProblem& first = verification.problems.front();
  const std::size_t more = verification.problems.size() - 1;
  return concat("checkpoint '",
                checkpoint.string(),
                "' is damaged: ",
                first.file.filename().string(),
                ": ",
                first.message,
                more == 0 ? std::string() : concat(" (and ", more, " more)"));
}

bool holds_checkpoints(const fs::path& folder) {
  std::error_code error;
  return !checkpoint_steps(folder).empty() || fs::exists(folder / kLatestName, error);
}

}  // namespace

std::vector<TensorInfo> expected_tensors(const ModelSpec& model) {
  StageOptions options;
  options.device = at::kMeta;
  std::vector<TensorInfo> all;
  for (std::size_t m = 0; m < model.encoders.size(); ++m) {
    const LayerRange layers{0, num_layers(model, static_cast<int>(m))};
    add_expected(EncoderStage(model.encoders[m], model.llm.hidden, layers, options).parameters(),
                 all);
  }
  const LayerRange layers{0, num_layers(model, model.llm_module())};
  add_expected(LlmStage(model.llm, layers, options).parameters(), all);
  return all;
}

CheckpointPlace checkpoint_place(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw InvalidInput(concat("'", path.string(), "' does not exist"));
  }
  const fs::path plain = fs::absolute(path / "").parent_path();
  if (fs::exists(plain / kManifestName, error) || step_of(plain.filename().string())) {
    return {plain, {}};
  }
  for (const fs::path& folder : {plain, plain / kCheckpointsName}) {
    if (holds_checkpoints(folder)) {
      return {{}, folder};
    }
  }
  throw InvalidInput(concat("'",
                            path.string(),
                            "' holds no checkpoint; a run folder, its checkpoints folder or one "
                            "checkpoint is needed"));
}

UsableCheckpoint usable_at(const fs::path& path) {
  const CheckpointPlace place = checkpoint_place(path);
  if (place.checkpoint.empty()) {
    return newest_usable(place.folder).value();
  }
  Verification verification = verify_checkpoint(place.checkpoint);
  if (!verification.ok()) {
    throw SystemFailure(summary_of(place.checkpoint, verification));
  }
  return {place.checkpoint, std::move(*verification.manifest), {}};
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestName;
  return decode_manifest(read_file(path), path.string());
}

std::vector<CheckpointProblem> verify_latest(const fs::path& folder) {
  const fs::path path = folder / kLatestName;
  try {
    const std::optional<Latest> latest = read_latest(folder);
    if (!latest.has_value()) {
      return {{path, "missing"}};
    }
    const fs::path checkpoint = folder / checkpoint_name(latest->step);
    std::error_code error;
    if (!fs::exists(checkpoint, error)) {
      return {{path, concat("names ", checkpoint.filename().string(), ", which does not exist")}};
    }
    if (digest(read_manifest(checkpoint)) != latest->manifest_digest) {
      return {{path, concat("was written for another ", checkpoint.filename().string())}};
    }
  } catch (const std::exception& error) {
    return {{path, error.what()}};
  }
  return {};
}

Verification verify_checkpoint(const fs::path& checkpoint) {
  return Verifier(checkpoint).verify();
}

std::optional<UsableCheckpoint> newest_usable(const fs::path& folder) {
  UsableCheckpoint usable;
  std::optional<Latest> latest;
  const std::vector<std::int64_t> steps = candidates_in(folder, latest, usable.warnings);
  if (steps.empty() && usable.warnings.empty()) {
    return std::nullopt;
  }
  for (const std::int64_t step : steps) {
    usable.path = folder / checkpoint_name(step);
    Verification verification = verify_checkpoint(usable.path);
    if (verification.ok() && latest.has_value() && latest->step == step) {
      verification.problems = verify_latest(folder);
    }
    if (verification.ok()) {
      usable.manifest = std::move(*verification.manifest);
      return usable;
    }
    usable.warnings.push_back(summary_of(usable.path, verification));
  }
  throw SystemFailure(
      concat("no usable checkpoint in '", folder.string(), "': ", join(usable.warnings, "; ")));
}

void load_tensors(const fs::path& checkpoint,
                  const Manifest& manifest,
                  const std::vector<NamedParameter>& tensors) {
  std::unordered_map<std::string, at::Tensor> wanted;
  for (const NamedParameter& tensor : tensors) {
    wanted.emplace(tensor.name, tensor.tensor);
  }
  std::set<std::string> files;
  for (const LaneFiles& lane : manifest.lanes) {
    for (const CheckpointTensor& tensor : lane.tensors) {
      if (wanted.contains(tensor.info.name)) {
        files.insert(tensor.file);
      }
    }
  }
  const at::NoGradGuard no_grad;
  for (const std::string& file : files) {
    const WeightFile read = read_weights(
        checkpoint / file, [&](const std::string& name) { return wanted.contains(name); });
    for (const NamedParameter& stored : read.tensors) {
      at::Tensor target = wanted.at(stored.name);
      if (stored.tensor.sizes() != target.sizes() ||
          stored.tensor.scalar_type() != target.scalar_type()) {
        throw InvalidInput(concat((checkpoint / file).string(),
                                  ": '",
                                  stored.name,
                                  "' is ",
                                  stored.tensor.toString(),
                                  " ",
                                  stored.tensor.sizes(),
                                  ", the run needs ",
                                  target.toString(),
                                  " ",
                                  target.sizes()));
      }
      check_finite(stored, (checkpoint / file).string());
      target.copy_(stored.tensor);
      wanted.erase(stored.name);
    }
  }
  if (!wanted.empty()) {
    throw InvalidInput(
        concat(checkpoint.string(), ": no tensor named '", wanted.begin()->first, "'"));
  }
}

std::vector<NamedParameter> checkpoint_weights(const fs::path& checkpoint,
                                               const Manifest& manifest) {
  std::unordered_map<std::string, at::Tensor> read;
  for (const LaneFiles& lane : manifest.lanes) {
    for (const CheckpointFile& part : lane.files) {
      for (NamedParameter& tensor :
           read_weights(checkpoint / part.name, [](const std::string& name) {
             return !is_moment(name);
           }).tensors) {
        read.emplace(tensor.name, std::move(tensor.tensor));
      }
    }
  }
  std::vector<NamedParameter> weights;
  for (const TensorInfo& expected :
       expected_tensors(model_from_json(manifest.run.model, "the checkpoint's model"))) {
    if (!is_moment(expected.name)) {
      weights.push_back({expected.name, read.at(expected.name)});
    }
  }
  return weights;
}

std::size_t export_weights(const fs::path& checkpoint,
                           const Manifest& manifest,
                           const fs::path& file) {
  const std::vector<NamedParameter> weights = checkpoint_weights(checkpoint, manifest);
  write_weights(file, weights, {{"format", "pt"}, {"writer", "entrain"}});
  return weights.size();
}

}  // namespace entrain::engine
