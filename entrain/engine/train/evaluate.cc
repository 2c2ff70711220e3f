#include "entrain/engine/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <ATen/Parallel.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/progress.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/families/hf_tensors.h"
#include "entrain/core/spec/parameters.h"

#include "entrain/engine/checkpoint/hf_folder.h"
#include "entrain/engine/comm/torch_errors.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/models/device.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

// The whole model as single stages.
struct WholeModel {
  WholeModel(const ModelSpec& given,
             const std::filesystem::path& weights,
             const StageOptions& options)
      : spec(given),
        device(options.device),
        llm(spec.llm, {0, num_layers(spec, spec.llm_module())}, options) {
    for (int module = 0; module < spec.llm_module(); ++module) {
      encoders.emplace_back(spec.encoders[static_cast<std::size_t>(module)],
                            spec.llm.hidden,
                            LayerRange{0, num_layers(spec, module)},
                            options);
    }
    std::vector<NamedParameter> parameters = llm.parameters();
    for (const EncoderStage& encoder : encoders) {
      parameters.insert(parameters.end(), encoder.parameters().begin(), encoder.parameters().end());
    }
    if (std::filesystem::is_directory(weights)) {
      load_hf_weights(read_hf_tensors(weights, read_hf_model(weights)), parameters);
      return;
    }
    for (const TensorInfo& tensor : read_weight_header(weights)) {
      if (is_adapter_name(tensor.name) &&
          std::ranges::find(parameters, tensor.name, &NamedParameter::name) == parameters.end()) {
        throw InvalidInput(concat(weights.string(),
                                  ": has adapters, such as '",
                                  tensor.name,
                                  "'; this run's model has none: name the run that trained them"));
      }
    }
    load_weights(weights, parameters);
  }

  // Token ids, rows or positions on the model's device.
  [[nodiscard]] at::Tensor numbers(const std::vector<std::int64_t>& values) const {
    return at::tensor(values, at::kLong).to(device);
  }

  const ModelSpec& spec;
  at::Device device;
  std::vector<EncoderStage> encoders;
  LlmStage llm;
};

// Samples of one packed batch with their features.
struct Batch {
  std::vector<const TokenizedSample*> texts;
  std::vector<std::map<std::int64_t, at::Tensor>> features;  // [sample] by position in its tokens
  std::vector<std::vector<GridSpan>> grids;                  // [sample] of its images
};

// Adds the features of one encoder.
void encode(const WholeModel& model,
            const DataSet& data,
            const std::vector<int>& samples,
            std::size_t module,
            StepData& step_data,
            Batch& batch) {
  std::vector<at::Tensor> inputs;
  std::vector<SegmentGrid> grids;
  std::vector<std::int64_t> rows;
  std::vector<std::pair<std::size_t, std::int64_t>> places;  // sample, position
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const auto& encoders = data.work[static_cast<std::size_t>(samples[s])].segments;
    // Segments of all encoders are numbered consecutively, in module order.
    std::size_t first = 0;
    for (std::size_t earlier = 0; earlier < module; ++earlier) {
      first += encoders[earlier].size();
    }
    for (std::size_t k = 0; k < encoders[module].size(); ++k) {
      const SegmentWork& work = encoders[module][k];
      const SegmentData segment =
          step_data.segment(static_cast<int>(module), static_cast<int>(s), static_cast<int>(k));
      inputs.push_back(segment.input);
      grids.push_back(segment_grid(model.spec.encoders[module], work, segment.input.size(0)));
      rows.push_back(work.llm_tokens);
      places.emplace_back(s, batch.texts[s]->feature_begin[first + k]);
    }
  }
  if (inputs.empty()) {
    return;
  }
  const at::Tensor joined = at::cat(inputs).to(model.device);
  const std::int64_t width = output_width(model.spec, model.spec.llm_module(), 0);
  const auto parts =
      widened(model.encoders[module].forward(joined, grids), width).split_with_sizes(rows);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (rows[i] > 0) {
      batch.features[places[i].first][places[i].second] = parts[i];
    }
  }
}

Batch encode(const WholeModel& model,
             const DataSet& data,
             const std::vector<int>& samples,
             StepData& step_data) {
  Batch batch;
  batch.features.resize(samples.size());
  for (std::size_t s = 0; s < samples.size(); ++s) {
    batch.texts.push_back(&step_data.text(static_cast<int>(s)));
    batch.grids.push_back(image_grids(model.spec,
                                      data.work[static_cast<std::size_t>(samples[s])],
                                      batch.texts.back()->feature_begin));
  }
  for (std::size_t module = 0; module < model.encoders.size(); ++module) {
    encode(model, data, samples, module, step_data, batch);
  }
  return batch;
}

// Token sequences of some members of a batch, packed through the LLM.
struct PackedHidden {
  at::Tensor hidden;                // [sum of lengths, hidden]
  std::vector<std::int64_t> begin;  // [member] first row
};

PackedHidden decode(const WholeModel& model,
                    const Batch& batch,
                    const std::vector<std::size_t>& members,
                    const std::vector<std::vector<std::int64_t>>& sequences) {
  PackedHidden packed;
  std::vector<std::int64_t> ids;
  std::vector<PackedItem> items;
  std::vector<std::int64_t> positions;
  std::vector<at::Tensor> features;
  for (const std::size_t s : members) {
    const auto begin = static_cast<std::int64_t>(ids.size());
    packed.begin.push_back(begin);
    ids.insert(ids.end(), sequences[s].begin(), sequences[s].end());
    items.push_back({.rows = std::ssize(sequences[s])});
    if (!model.spec.llm.mrope_sections.empty()) {
      items.back().positions = multimodal_positions(std::ssize(sequences[s]), batch.grids[s]);
    }
    for (const auto& [position, piece] : batch.features[s]) {
      features.push_back(piece);
      for (std::int64_t row = 0; row < piece.size(0); ++row) {
        positions.push_back(begin + position + row);
      }
    }
  }
  const at::Tensor embedded = model.llm.embed(model.numbers(ids),
                                              features.empty() ? at::Tensor() : at::cat(features),
                                              model.numbers(positions));
  packed.hidden = model.llm.decode(embedded, items);
  return packed;
}

double loss_sum(const WholeModel& model, const Batch& batch) {
  std::vector<std::size_t> members(batch.texts.size());
  std::iota(members.begin(), members.end(), std::size_t{0});
  std::vector<std::vector<std::int64_t>> sequences;
  for (const TokenizedSample* text : batch.texts) {
    sequences.push_back(text->ids);
  }
  const PackedHidden packed = decode(model, batch, members, sequences);
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> targets;
  for (const std::size_t s : members) {
    const TokenizedSample& text = *batch.texts[s];
    for (const TokenRange& range : text.targets) {
      for (std::int64_t position = range.begin; position < range.end; ++position) {
        rows.push_back(packed.begin[s] + position - 1);
        targets.push_back(text.ids[static_cast<std::size_t>(position)]);
      }
    }
  }
  return model.llm.loss_sum(packed.hidden, model.numbers(rows), model.numbers(targets))
      .item<double>();
}

// The text of token ids, by the index's tokenizer.
std::string decode_text(const Index& index, const std::vector<std::int64_t>& ids) {
  return index.tokens != nullptr ? index.tokens->decode(ids) : detokenize(ids);
}

// The batch without what follows the last answers.
Batch prompts_of(Batch batch) {
  for (std::size_t s = 0; s < batch.texts.size(); ++s) {
    const std::int64_t end = batch.texts[s]->targets.back().begin;
    std::erase_if(batch.features[s], [&](const auto& piece) { return piece.first >= end; });
    std::erase_if(batch.grids[s], [&](const GridSpan& grid) { return grid.begin >= end; });
  }
  return batch;
}

// Greedy continuation of every prompt, which is all before the last answer, in lockstep; finished
// samples leave the pack.
std::vector<std::vector<std::int64_t>> greedy_answers(const WholeModel& model,
                                                      const Batch& batch,
                                                      const std::vector<std::int64_t>& stop,
                                                      int max_tokens) {
  const Batch prompts = prompts_of(batch);
  std::vector<std::vector<std::int64_t>> sequences;
  std::vector<std::vector<std::int64_t>> answers(batch.texts.size());
  std::vector<std::size_t> open(batch.texts.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  for (const TokenizedSample* text : batch.texts) {
    sequences.emplace_back(text->ids.begin(), text->ids.begin() + text->targets.back().begin);
  }
  for (int step = 0; step < max_tokens && !open.empty(); ++step) {
    const PackedHidden packed = decode(model, prompts, open, sequences);
    std::vector<std::int64_t> rows;
    for (std::size_t m = 0; m < open.size(); ++m) {
      rows.push_back(packed.begin[m] + std::ssize(sequences[open[m]]) - 1);
    }
    const at::Tensor best = model.llm.logits(packed.hidden, model.numbers(rows)).argmax(1).cpu();
    std::vector<std::size_t> still_open;
    for (std::size_t m = 0; m < open.size(); ++m) {
      const auto token = best[static_cast<std::int64_t>(m)].item<std::int64_t>();
      if (std::ranges::find(stop, token) == stop.end()) {
        answers[open[m]].push_back(token);
        sequences[open[m]].push_back(token);
        still_open.push_back(open[m]);
      }
    }
    open = std::move(still_open);
  }
  return answers;
}

StepNeeds needs_of_samples(const DataSet& data, const std::vector<int>& samples) {
  StepNeeds needs;
  needs.batch = samples;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    needs.texts.push_back(static_cast<int>(s));
    const auto& encoders = data.work[static_cast<std::size_t>(samples[s])].segments;
    for (std::size_t module = 0; module < encoders.size(); ++module) {
      for (std::size_t k = 0; k < encoders[module].size(); ++k) {
        needs.segments.push_back(
            {static_cast<int>(module), static_cast<int>(s), static_cast<int>(k)});
      }
    }
  }
  return needs;
}

EvaluateResult judge(const ModelSpec& model,
                     const std::filesystem::path& weights,
                     const DataSet& data,
                     const EvaluateOptions& options) {
  const at::NoGradGuard no_grad;
  // The matrices of a packed batch are small: more threads would mostly wait.
  at::set_num_threads(1);
  const WholeModel whole(model, weights, {.device = device_of(options.device)});
  ReadAheadOptions reader_options;
  reader_options.blank = options.blank;
  ReadAhead reader(data.index, model, reader_options);
  const int available = static_cast<int>(data.index.samples.size());
  const int wanted = options.samples > 0 ? std::min(options.samples, available) : available;
  Progress progress(options.blank ? "evaluating, inputs blanked" : "evaluating", wanted);
  const std::vector<std::int64_t> stop = data.index.tokens != nullptr
                                             ? data.index.tokens->facts().stop
                                             : std::vector<std::int64_t>{kEosToken};
  EvaluateResult result;
  std::int64_t targets = 0;
  for (int begin = 0; begin < wanted; begin += options.batch) {
    std::vector<int> samples(static_cast<std::size_t>(std::min(options.batch, wanted - begin)));
    std::iota(samples.begin(), samples.end(), begin);
    const auto step_data = reader.queue(needs_of_samples(data, samples));
    const Batch batch = encode(whole, data, samples, *step_data);
    result.loss += loss_sum(whole, batch);
    const auto answers = greedy_answers(whole, batch, stop, options.max_answer_tokens);
    for (std::size_t s = 0; s < samples.size(); ++s) {
      const TokenizedSample& text = *batch.texts[s];
      targets += text.num_targets();
      Answer answer;
      answer.id = data.index.samples[static_cast<std::size_t>(samples[s])].id;
      answer.kind = step_data->kind(static_cast<int>(s));
      const TokenRange& last = text.targets.back();
      answer.expected =
          decode_text(data.index, {text.ids.begin() + last.begin, text.ids.begin() + last.end});
      answer.given = decode_text(data.index, answers[s]);
      result.answers.push_back(std::move(answer));
    }
    progress.advance(std::ssize(samples));
  }
  result.loss /= static_cast<double>(std::max<std::int64_t>(1, targets));
  if (!std::isfinite(result.loss)) {
    throw SystemFailure(concat("the loss of ",
                               counted(wanted, "sample"),
                               " is ",
                               result.loss,
                               ", though every weight in '",
                               weights.string(),
                               "' is finite: values exceed the range of float32"));
  }
  return result;
}

}  // namespace

double EvaluateResult::accuracy() const {
  const auto correct = std::count_if(
      answers.begin(), answers.end(), [](const Answer& answer) { return answer.correct(); });
  return answers.empty() ? 0.0 : static_cast<double>(correct) / static_cast<double>(answers.size());
}

EvaluateResult evaluate(const ModelSpec& model,
                        const std::filesystem::path& weights,
                        const DataSet& data,
                        const EvaluateOptions& options) {
  return without_torch_errors([&] { return judge(model, weights, data, options); });
}

}  // namespace entrain::engine
