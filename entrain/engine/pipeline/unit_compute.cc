#include "entrain/engine/pipeline/unit_compute.h"

#include <algorithm>
#include <map>
#include <utility>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

// Features of the packed samples by rising position in the packed rows.
struct PlacedFeatures {
  at::Tensor rows;                      // [F, hidden] or undefined
  std::vector<std::int64_t> positions;  // [F]
};

// Tokens of a sample that hold features of a segment.
TokenRange feature_tokens(const StepSizes& sizes,
                          int module,
                          const WorkItem& segment,
                          const TokenizedSample& text) {
  // Segments of all encoders are numbered consecutively, in module order.
  std::int64_t index = segment.segment;
  const SampleWork& work = sizes.costs.work.at(at(segment.sample));
  for (int earlier = 0; earlier < module; ++earlier) {
    index += std::ssize(work.segments.at(at(earlier)));
  }
  const std::int64_t begin = text.feature_begin.at(at(index));
  return {begin, begin + feature_rows(sizes, module, segment)};
}

// The tokens of a range that an item holds; empty where it holds none.
TokenRange held_by(const PackedItem& item, const TokenRange& tokens) {
  const std::int64_t begin = std::clamp(tokens.begin, item.begin, item.begin + item.rows);
  return {begin, std::clamp(tokens.end, begin, item.begin + item.rows)};
}

// Positions of the packed samples in the group and in the packed rows.
struct PackedSample {
  std::size_t index = 0;
  std::int64_t begin = 0;  // row of its first token here
};

std::map<int, PackedSample> packed_samples(const Group& group, const UnitInput& input) {
  std::map<int, PackedSample> result;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    result[group.items[i].sample] = {i, begin};
    begin += input.items[i].rows;
  }
  return result;
}

// Adds the rows of a part's features that belong to the packed tokens, by their position there.
void add_pieces(const StepSizes& sizes,
                const std::map<int, PackedSample>& samples,
                const UnitInput& input,
                const FeaturePart& part,
                std::map<std::int64_t, at::Tensor>& pieces) {
  std::vector<std::int64_t> rows;                          // the whole part, cut up
  std::vector<std::pair<std::size_t, std::int64_t>> used;  // index and destination
  for (const WorkItem& segment : part.items) {
    const std::int64_t all = feature_rows(sizes, part.unit.module, segment);
    const auto sample = samples.find(segment.sample);
    if (sample == samples.end()) {
      rows.push_back(all);
      continue;
    }
    const PackedItem& item = input.items[sample->second.index];
    const TokenRange tokens =
        feature_tokens(sizes, part.unit.module, segment, *input.texts[sample->second.index]);
    const TokenRange held = held_by(item, tokens);
    if (held.size() > 0) {
      rows.push_back(held.begin - tokens.begin);
      used.emplace_back(rows.size(), sample->second.begin + held.begin - item.begin);
      rows.push_back(held.size());
      rows.push_back(tokens.end - held.end);
    } else {
      rows.push_back(all);
    }
  }
  if (used.empty()) {
    return;
  }
  // Split once: narrow() per piece makes backward quadratic.
  const std::int64_t width = output_width(sizes.model, sizes.model.llm_module(), 0);
  const std::vector<at::Tensor> split = widened(part.leaf, width).split_with_sizes(rows);
  for (const auto& [index, position] : used) {
    pieces[position] = split[index];
  }
}

PlacedFeatures place_features(const StepSizes& sizes, const Group& group, const UnitInput& input) {
  const std::map<int, PackedSample> samples = packed_samples(group, input);
  std::map<std::int64_t, at::Tensor> pieces;  // by position
  for (const FeaturePart& part : input.features) {
    add_pieces(sizes, samples, input, part, pieces);
  }
  PlacedFeatures placed;
  std::vector<at::Tensor> ordered;
  for (const auto& [position, piece] : pieces) {
    for (std::int64_t row = 0; row < piece.size(0); ++row) {
      placed.positions.push_back(position + row);
    }
    ordered.push_back(piece);
  }
  if (!ordered.empty()) {
    placed.rows = ordered.size() == 1 ? ordered.front() : at::cat(ordered);
  }
  return placed;
}

void check_features(const StepSizes& sizes,
                    const Group& group,
                    const UnitInput& input,
                    const PlacedFeatures& placed) {
  std::int64_t expected = 0;
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    const int sample = group.items[i].sample;
    const auto& modules = sizes.costs.work.at(at(sample)).segments;
    for (std::size_t module = 0; module < modules.size(); ++module) {
      for (std::size_t segment = 0; segment < modules[module].size(); ++segment) {
        const WorkItem item{sample, static_cast<int>(segment)};
        const TokenRange tokens =
            feature_tokens(sizes, static_cast<int>(module), item, *input.texts[i]);
        expected += held_by(input.items[i], tokens).size();
      }
    }
  }
  ENTRAIN_INVARIANT(std::ssize(placed.positions) == expected,
                    concat("an LLM slot got ",
                           placed.positions.size(),
                           " feature rows, its samples have ",
                           expected));
}

}  // namespace

void read_data(const StepSizes& sizes,
               const std::vector<std::string>& sample_ids,
               const UnitKey& unit,
               const Group& group,
               StepData& data,
               UnitInput& input) {
  const bool llm = unit.module == sizes.program.llm_module();
  if (!llm && unit.stage == 0) {
    const EncoderSpec& encoder = sizes.model.encoders.at(at(unit.module));
    const bool vision = encoder.modality == Modality::kVision;
    for (const WorkItem& item : group.items) {
      const SegmentWork& work = segment_of(sizes, unit.module, item);
      SegmentData segment = data.segment(unit.module, item.sample, item.segment);
      ENTRAIN_INVARIANT(
          segment.rows == work.rows && segment.columns == work.columns &&
              fits_input(encoder, segment.input.size(0), work.tokens),
          concat("sample '",
                 sample_ids.at(at(item.sample)),
                 "' segment ",
                 item.segment,
                 ": ",
                 segment.rows,
                 " x ",
                 segment.columns,
                 vision ? " patches, planned with " : " patches and mel frames, planned with ",
                 work.rows,
                 " x ",
                 work.columns));
      input.segments.push_back(std::move(segment));
    }
  }
  const bool positions = !sizes.model.llm.mrope_sections.empty();
  if (llm && (positions || unit.stage == 0 || is_last_stage(sizes.program, unit))) {
    for (const WorkItem& item : group.items) {
      const TokenizedSample& text = data.text(item.sample);
      const std::int64_t planned = sizes.costs.work.at(at(item.sample)).llm_tokens;
      ENTRAIN_INVARIANT(std::ssize(text.ids) == planned,
                        concat("sample '",
                               sample_ids.at(at(item.sample)),
                               "': ",
                               text.ids.size(),
                               " tokens, planned with ",
                               planned));
      input.texts.push_back(&text);
    }
  }
}

void place_items(const StepSizes& sizes, const Group& group, UnitInput& input) {
  if (sizes.model.llm.mrope_sections.empty()) {
    return;
  }
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    PackedItem& item = input.items[i];
    const std::vector<AxisPosition> all =
        multimodal_positions(std::ssize(input.texts[i]->ids),
                             image_grids(sizes.model,
                                         sizes.costs.work.at(at(group.items[i].sample)),
                                         input.texts[i]->feature_begin));
    const auto begin = all.begin() + item.begin;
    item.positions.assign(begin, begin + item.rows);
  }
}

EncoderInput encoder_input(const StepSizes& sizes,
                           const StageOptions& options,
                           const UnitKey& unit,
                           const Group& group,
                           UnitInput& input) {
  EncoderInput result;
  std::vector<at::Tensor> inputs;
  result.grids.reserve(group.items.size());
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    if (unit.stage == 0) {
      inputs.push_back(input.segments[i].input);
    }
    result.grids.push_back(segment_grid(sizes.model.encoders.at(at(unit.module)),
                                        segment_of(sizes, unit.module, group.items[i]),
                                        inputs.empty() ? 0 : inputs.back().size(0)));
  }
  result.hidden = std::move(input.hidden);
  if (unit.stage == 0) {
    result.hidden = at::cat(inputs).to(options.device, options.dtype);
    input.segments.clear();
  }
  return result;
}

at::Tensor llm_input(const StepSizes& sizes,
                     const LlmStage& stage,
                     const StageOptions& options,
                     const UnitKey& unit,
                     const Group& group,
                     UnitInput& input) {
  if (unit.stage > 0) {
    return std::move(input.hidden);
  }
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < input.items.size(); ++i) {
    const auto first = input.texts[i]->ids.begin() + input.items[i].begin;
    ids.insert(ids.end(), first, first + input.items[i].rows);
  }
  const PlacedFeatures placed = place_features(sizes, group, input);
  check_features(sizes, group, input, placed);
  input.features.clear();
  return stage.embed(index_tensor(ids, options.device),
                     placed.rows,
                     index_tensor(placed.positions, options.device));
}

at::Tensor losses_of(const LlmStage& stage,
                     const StageOptions& options,
                     const UnitInput& input,
                     const at::Tensor& hidden) {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> targets;
  std::int64_t first_row = 0;
  for (std::size_t i = 0; i < input.texts.size(); ++i) {
    const TokenizedSample& text = *input.texts[i];
    const PackedItem& item = input.items[i];
    // The token at a position is predicted from the row before it, which holds the loss: also
    // where the token itself begins the next chunk.
    const std::int64_t end = std::min(item.begin + item.rows + 1, std::ssize(text.ids));
    for (const TokenRange& range : text.targets) {
      for (std::int64_t p = std::max(item.begin + 1, range.begin); p < std::min(end, range.end);
           ++p) {
        rows.push_back(first_row + p - 1 - item.begin);
        targets.push_back(text.ids[at(p)]);
      }
    }
    first_row += item.rows;
  }
  return stage.loss_sum(
      hidden, index_tensor(rows, options.device), index_tensor(targets, options.device));
}

}  // namespace entrain::engine
