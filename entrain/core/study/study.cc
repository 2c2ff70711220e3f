#include "entrain/core/study/study.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/cost/analytic.h"
#include "entrain/core/dataset/batch_list.h"
#include "entrain/core/dataset/global_batch.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/families/family.h"
#include "entrain/core/planner/work_times.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/name_patterns.h"
#include "entrain/core/spec/training.h"

namespace entrain {
namespace {

// A table has no layers: every module is cut at one of this many places.
constexpr int kTableLayers = 64;
constexpr std::string_view kAnalytic = "analytic:";
constexpr const char* kFreezeOption = "--freeze";
constexpr const char* kLoraOption = "--lora";

void check_batches(const StudyInputs& inputs) {
  if (!inputs.batch.empty() && (inputs.no_repeat || inputs.global_batch != 0)) {
    throw InvalidInput("--batch is the whole batch: give neither --global-batch nor --no-repeat");
  }
  if (inputs.batch.empty() && !inputs.no_repeat && inputs.global_batch == 0) {
    throw InvalidInput(
        "give --global-batch, the samples of a step, or batches of your own by --batch or "
        "--no-repeat");
  }
  if (!inputs.mixture.empty() && (!inputs.batch.empty() || inputs.no_repeat)) {
    throw InvalidInput(
        "--mixture says what is drawn: give neither --batch nor --no-repeat, whose batches are as "
        "given");
  }
  if (inputs.hold > 1 && (!inputs.batch.empty() || inputs.no_repeat)) {
    throw InvalidInput(
        "--hold rearranges drawn batches: give neither --batch nor --no-repeat, whose batches are "
        "as given");
  }
  if (inputs.global_batch < 0) {
    throw InvalidInput(
        fmt::format("--global-batch: {} given; at least 1 is needed", inputs.global_batch));
  }
}

void check_inputs(const StudyInputs& inputs) {
  check_batches(inputs);
  if (inputs.costs.empty()) {
    if (!inputs.segment_costs.empty()) {
      throw InvalidInput("--segment-costs needs --costs");
    }
    if (inputs.index.empty() || inputs.model.empty()) {
      throw InvalidInput("give --index and --model, or --costs with costs of your own");
    }
  } else if (!inputs.index.empty() || !inputs.model.empty() || !inputs.cluster.empty()) {
    throw InvalidInput(
        "--costs replaces --index, --model and --profile, and knows no --cluster; "
        "give one or the other");
  } else if (!inputs.lora.empty()) {
    throw InvalidInput("--lora needs --index and --model: costs of your own have no matrices");
  } else if (!inputs.ignore_modality.empty()) {
    throw InvalidInput(
        "--ignore-modality needs --index and --model: costs of your own hold no media");
  }
}

void load_table(Study& study) {
  study.table = read_cost_table(study.inputs.costs, study.inputs.segment_costs);
  study.origin.profile = "costs: " + study.inputs.costs;
  study.ids = study.table->ids;
  study.model =
      table_model(*study.table, std::vector<int>(study.table->modules.size(), kTableLayers));
  ModelSpec frozen = study.model;  // a plan's digest is over the model without --freeze
  for (const std::string& word : study.inputs.freeze) {  // a table knows no parameters
    check_name(kFreezeOption, "module", word, part_words(frozen));
  }
  freeze_modules(frozen, study.inputs.freeze, kFreezeOption);
  for (const EncoderSpec& encoder : frozen.encoders) {
    if (encoder.projector_frozen) {
      throw InvalidInput(fmt::format("{}: '{}' given; a cost table has whole modules: {}",
                                     kFreezeOption,
                                     join(study.inputs.freeze),
                                     join(study.table->modules)));
    }
  }
  for (int module = 0; module < frozen.num_modules(); ++module) {
    study.frozen.push_back(layer_trainable(frozen, module, 0) ? 0 : 1);
  }
}

// Under a cluster: its device and all degrees that a node can hold.
void apply_cluster(Study& study) {
  StudyInputs& inputs = study.inputs;
  if (!inputs.cluster.empty()) {
    study.cluster = read_cluster(inputs.cluster);
    inputs.analytic.tensor_parallel.clear();
    for (int degree = 1; degree <= study.cluster->devices_per_node; ++degree) {
      if (study.cluster->devices_per_node % degree == 0) {
        inputs.analytic.tensor_parallel.push_back(degree);
      }
    }
  }
  if (inputs.profile.empty()) {
    study.assumed = true;
    inputs.profile =
        std::string(kAnalytic) + (study.cluster.has_value() ? study.cluster->device : "a40");
  }
}

void load_index(Study& study) {
  apply_cluster(study);
  const StudyInputs& inputs = study.inputs;
  study.model = load_model(inputs.model);
  freeze_modules(study.model, inputs.freeze, kFreezeOption);
  if (!inputs.lora.empty()) {
    add_lora(study.model, parse_lora(inputs.lora, kLoraOption), kLoraOption);
  }
  study.samples = read_index(inputs.index).samples;
  study.ignored = check_media(study.model,
                              study.samples,
                              inputs.ignore_modality,
                              fmt::format("index '{}'", inputs.index),
                              kIgnoreOption);
  study.profile =
      inputs.profile.starts_with(kAnalytic)
          ? analytic_profile(
                study.model, device_model(inputs.profile.substr(kAnalytic.size())), inputs.analytic)
          : read_profile(inputs.profile);
  validate(study.profile, study.model, inputs.profile);
  study.origin = {inputs.profile,
                  study.profile.device,
                  inputs.profile.starts_with(kAnalytic) ? "" : profile_machine(inputs.profile),
                  study.profile.dtype,
                  study.profile.source == "measured",
                  inputs.cluster};
  if (study.cluster.has_value() && study.profile.device != study.cluster->device) {
    throw InvalidInput(fmt::format("cluster '{}' has devices '{}', the profile '{}' is of '{}'",
                                   inputs.cluster,
                                   study.cluster->device,
                                   inputs.profile,
                                   study.profile.device));
  }
  if (study.samples.empty()) {
    throw InvalidInput(fmt::format("index '{}' has no samples", inputs.index));
  }
  for (const SampleSizes& sample : study.samples) {
    study.ids.push_back(sample.id);
  }
}

std::vector<int> all_rows(const Study& study) {
  std::vector<int> rows(study.ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// Rows of the batches that the inputs give, and their size; none where batches are drawn.
void give_batches(Study& study) {
  StudyInputs& inputs = study.inputs;
  if (!inputs.batch.empty()) {
    study.given =
        rows_of_batch_list(read_file(inputs.batch), concat("--batch ", inputs.batch), study.ids);
    inputs.global_batch = static_cast<int>(std::ssize(study.given));
  } else if (inputs.no_repeat) {
    study.given = all_rows(study);
    if (inputs.global_batch == 0) {
      inputs.global_batch = static_cast<int>(std::ssize(study.given));
    }
    if (study.num_given() == 0) {
      throw InvalidInput(fmt::format(
          "--no-repeat: {}, fewer than one global batch of {}; without --global-batch they are one "
          "batch",
          counted(std::ssize(study.given), "sample"),
          inputs.global_batch));
    }
  }
}

// A table's times are those of its device, without the backward of frozen modules.
std::vector<std::int64_t> table_weights(const Study& study) {
  std::vector<std::int64_t> weights(study.ids.size(), 0);
  for (std::size_t module = 0; module < study.table->units.size(); ++module) {
    for (std::size_t sample = 0; sample < weights.size(); ++sample) {
      for (const TableUnit& unit : study.table->units[module][sample]) {
        weights[sample] += unit.forward_ns + (study.frozen[module] != 0 ? 0 : unit.backward_ns);
      }
    }
  }
  return weights;
}

// Requires  given batches.
std::vector<int> given_rows(const Study& study, std::int64_t step) {
  const std::int64_t batch = study.inputs.global_batch;
  if (step < 0 || step >= study.num_given()) {
    throw InvalidInput(
        study.num_given() == 1
            ? fmt::format("step {}: the given batch is step 0, the only one", step)
            : fmt::format("step {}: --no-repeat gives {} batches of {}, steps 0 to {}",
                          step,
                          study.num_given(),
                          batch,
                          study.num_given() - 1));
  }
  const auto begin = study.given.begin() + step * batch;
  return {begin, begin + batch};
}

std::vector<SampleWork> work_of(const Study& study, const std::vector<int>& rows) {
  std::vector<SampleWork> work;
  work.reserve(rows.size());
  for (const int row : rows) {
    work.push_back(study.table.has_value()
                       ? table_work(*study.table, row)
                       : sample_work(study.model, study.samples[static_cast<std::size_t>(row)]));
  }
  return work;
}

// For an unknown id: those that end with it, else one spelled alike, else some.
std::string likely_ids(const std::string& id, const std::vector<std::string>& ids) {
  std::vector<std::string> likely = ids;
  std::erase_if(likely, [&](const std::string& known) { return !known.ends_with("/" + id); });
  const bool ends = !likely.empty();
  if (const std::string match = close_match(id, ids); !ends && !match.empty()) {
    return match;
  }
  likely = ends ? likely : ids;
  likely.resize(std::min<std::size_t>(3, likely.size()));
  const std::string shown = join(likely, "' or '");
  return ends ? fmt::format(", did you mean '{}'?", shown)
              : fmt::format("; ids are such as '{}'", shown);
}

}  // namespace

std::vector<std::string> Study::module_names() const {
  return entrain::module_names(model);
}

std::int64_t Study::num_given() const {
  return given.empty() ? 0 : std::ssize(given) / inputs.global_batch;
}

std::string Study::left_out() const {
  const std::int64_t rest = std::ssize(given) - num_given() * inputs.global_batch;
  return rest == 0 ? ""
                   : fmt::format(
                         "the last {} of {} samples are left out: they do not fill a global "
                         "batch of {}",
                         rest,
                         given.size(),
                         inputs.global_batch);
}

std::string Study::note() const {
  std::string text = to_string(origin);
  if (assumed) {
    text += " (assumed: give --profile)";
  }
  if (!origin.links.empty()) {
    text += fmt::format("; links of {}", origin.links);
  }
  if (!inputs.freeze.empty()) {
    text += fmt::format("; frozen: {}", join(inputs.freeze));
  }
  if (!inputs.lora.empty()) {
    text += fmt::format("; adapters: {}", inputs.lora);
  }
  if (table.has_value() && !table->has_activation_bytes()) {
    text += "; memory counts one byte a token and layer, for want of <module>_activation_bytes";
  }
  if (!inputs.batch.empty()) {
    text += fmt::format("; the batch of {}", inputs.batch);
  } else if (inputs.no_repeat) {
    text += "; batches in the order of the file, no sample twice";
  }
  if (!inputs.mixture.empty()) {
    text += fmt::format("; the mixture of {}", inputs.mixture);
  }
  if (inputs.hold > 1) {
    text +=
        fmt::format("; oversized samples held within windows of {}", counted(inputs.hold, "step"));
  }
  if (with_replacement) {
    text += "; fewer than four batches of samples: drawn with replacement";
  }
  return text;
}

Study load_study(const StudyInputs& inputs) {
  check_inputs(inputs);
  Study study;
  study.inputs = inputs;
  if (inputs.costs.empty()) {
    load_index(study);
  } else {
    load_table(study);
  }
  give_batches(study);
  if (inputs.hold > 1) {
    study.hold_weights = study.table.has_value()
                             ? table_weights(study)
                             : hold_weights(study.model, work_of(study, all_rows(study)));
  }
  if (!inputs.mixture.empty()) {
    study.mixture.emplace(
        read_mixture_file(inputs.mixture), study.ids, inputs.global_batch, inputs.seed);
  }
  study.with_replacement = study.given.empty() && !study.mixture.has_value() &&
                           drawn_with_replacement(std::ssize(study.ids), study.inputs.global_batch);
  return study;
}

StudyBatch batch_of(const Study& study, std::vector<int> rows) {
  StudyBatch batch;
  batch.rows = std::move(rows);
  for (const int row : batch.rows) {
    batch.ids.push_back(study.ids[static_cast<std::size_t>(row)]);
  }
  batch.work = work_of(study, batch.rows);
  return batch;
}

std::string repetition_warning(const Study& study) {
  if (!study.with_replacement) {
    return "";
  }
  const int global_batch = study.inputs.global_batch;
  std::vector<int> rows = DrawnRows(study).rows(0);
  std::sort(rows.begin(), rows.end());
  const auto distinct = std::unique(rows.begin(), rows.end()) - rows.begin();
  return fmt::format(
      "{}, fewer than four global batches of {}: batches are drawn with replacement, and "
      "{} of the first batch's {} samples are repeats (id~2, …){}",
      counted(std::ssize(study.ids), "sample"),
      global_batch,
      global_batch - distinct,
      global_batch,
      std::cmp_less(study.ids.size(), global_batch) ? "; `entrain train` refuses such a batch"
                                                    : "");
}

StudyBatch draw_batch(const Study& study, std::int64_t step) {
  if (!study.given.empty()) {
    return batch_of(study, given_rows(study, step));
  }
  StudyBatch batch = batch_of(study, DrawnRows(study).rows(step));
  batch.ids = unique_names(std::move(batch.ids));
  return batch;
}

DrawnRows::DrawnRows(const Study& study) : study_(study) {
  const StudyInputs& inputs = study.inputs;
  if (study.mixture.has_value()) {
    sampler_.emplace(*study.mixture, inputs.global_batch, study.hold());
  } else if (!study.with_replacement) {
    sampler_.emplace(static_cast<int>(study.ids.size()),
                     inputs.global_batch,
                     inputs.seed,
                     LastBatch::kDrop,
                     study.hold());
  }
}

std::vector<int> DrawnRows::rows(std::int64_t step) {
  return sampler_.has_value() ? sampler_->batch(step)
                              : draw_study_rows(static_cast<int>(study_.ids.size()),
                                                study_.inputs.global_batch,
                                                study_.inputs.seed,
                                                step,
                                                study_.hold());
}

std::int64_t DrawnRows::num_steps() const {
  constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();
  return study_.mixture.has_value() ? study_.mixture->num_steps().value_or(kNoEnd) : kNoEnd;
}

int place_of_sample(const std::vector<std::string>& ids,
                    const std::string& id,
                    const std::string& whose) {
  const auto found = std::find(ids.begin(), ids.end(), id);
  if (found == ids.end()) {
    throw InvalidInput(fmt::format("--sample: '{}' is not among the {} samples{}{}",
                                   id,
                                   ids.size(),
                                   whose,
                                   likely_ids(id, ids)));
  }
  return static_cast<int>(found - ids.begin());
}

std::int64_t step_of_sample(const Study& study, const std::string& id) {
  const int row = place_of_sample(study.ids, id);
  const auto samples = static_cast<int>(study.ids.size());
  const int batch = study.inputs.global_batch;
  if (!study.given.empty()) {
    const auto place = std::find(study.given.begin(), study.given.end(), row) - study.given.begin();
    if (place / batch >= study.num_given()) {
      throw InvalidInput(fmt::format("--sample: '{}' is in no given batch", id));
    }
    return place / batch;
  }
  constexpr std::int64_t kEpochs = 4;
  DrawnRows drawn(study);
  const std::int64_t steps = std::min((kEpochs * samples + batch - 1) / batch, drawn.num_steps());
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::vector<int> rows = drawn.rows(step);
    if (std::find(rows.begin(), rows.end(), row) != rows.end()) {
      return step;
    }
  }
  throw InvalidInput(fmt::format(
      "--sample: '{}' is drawn in none of the steps 0 to {}: every epoch leaves its "
      "last incomplete batch out, a mixture what it has no share of; give --step to look "
      "further",
      id,
      steps - 1));
}

StepCosts batch_costs(const Study& study, const Plan& plan, const StudyBatch& batch) {
  if (study.table.has_value()) {
    return table_costs(*study.table, plan, batch.rows, study.frozen);
  }
  return step_costs(study.model,
                    plan,
                    study.cluster.has_value()
                        ? cluster_profile(study.profile, *study.cluster, plan.replicas)
                        : study.profile,
                    batch.work);
}

BatchNames names_of(const Study& study, const StudyBatch& batch) {
  return {study.module_names(), batch.ids, batch.work};
}

Plan read_study_plan(const Study& study, const std::filesystem::path& path) {
  return study.table.has_value() ? table_plan(*study.table, read_json_file(path), path.string())
                                 : read_plan(path, study.model);
}

LaneSplitResult search_split(const Study& study, LaneSplitRequest request, int num_batches) {
  const auto batches = std::make_shared<std::vector<StudyBatch>>();
  request.model = &study.model;
  request.batches.clear();
  const std::int64_t last =
      study.given.empty() ? num_batches : std::min<std::int64_t>(num_batches, study.num_given());
  for (std::int64_t step = 0; step < last; ++step) {
    batches->push_back(draw_batch(study, step));
    request.batches.push_back(batches->back().work);
  }
  request.seed = study.inputs.seed;
  request.costs_of = [&study, batches](const Plan& plan, std::size_t batch) {
    return batch_costs(study, plan, (*batches)[batch]);
  };
  Progress progress("simulating splits", Progress::kShareTotal, ProgressUnit::kShare);
  request.progress = [&progress](double share) { progress.reach_share(share); };
  return plan_lane_split(request);
}

void complete_request(const Study& study, int num_batches, PlanSearchRequest& request) {
  if (study.table.has_value()) {
    throw InvalidInput(
        "the search for a cluster's plan needs --index, --model and --profile: costs "
        "of your own say nothing of tensor and context parallelism");
  }
  ENTRAIN_INVARIANT(study.cluster.has_value(), "a study without a cluster");
  request.cluster = &*study.cluster;
  request.model = &study.model;
  request.profile = &study.profile;
  request.state.parameter_dtype = study.profile.dtype;
  request.seed = study.inputs.seed;
  request.batches.clear();
  for (int batch = 0; batch < num_batches; ++batch) {
    request.batches.push_back(draw_batch(study, request.first_step + batch).work);
  }
}

}  // namespace entrain
