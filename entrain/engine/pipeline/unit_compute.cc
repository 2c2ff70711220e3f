#include "entrain/engine/pipeline/unit_compute.h"

#include <algorithm>
#include <map>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

namespace entrain::engine {
namespace {

std::size_t at_index(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

bool is_last_stage(const StepSizes& sizes, const UnitKey& unit) {
  return unit.stage + 1 == sizes.program.num_stages.at(at_index(unit.module));
}

at::Tensor to_tensor(const std::vector<std::int64_t>& values, const StageOptions& options) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong)).to(options.device);
}

const SegmentWork& segment_of(const StepSizes& sizes, const UnitKey& unit, const WorkItem& item) {
  return sizes.costs.work.at(at_index(item.sample))
      .segments.at(at_index(unit.module))
      .at(at_index(item.segment));
}

UnitOutput run_encoder(const StepSizes& sizes,
                       const EncoderStage& stage,
                       const StageOptions& options,
                       const UnitKey& unit,
                       const Group& group,
                       UnitInput& input) {
  std::vector<SegmentGrid> grids;
  std::vector<at::Tensor> inputs;
  grids.reserve(group.items.size());
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    if (unit.stage == 0) {
      inputs.push_back(input.segments[i].input);
    }
    grids.push_back(segment_grid(sizes.model.encoders.at(at_index(unit.module)),
                                 segment_of(sizes, unit, group.items[i]),
                                 inputs.empty() ? 0 : inputs.back().size(0)));
  }
  at::Tensor hidden = std::move(input.hidden);
  if (unit.stage == 0) {
    hidden = at::cat(inputs).to(options.device, options.dtype);
    input.segments.clear();
  }
  return {stage.forward(hidden, grids), 0};
}

// Features of the packed samples by rising position in the packed rows.
struct PlacedFeatures {
  at::Tensor rows;                      // [F, hidden] or undefined
  std::vector<std::int64_t> positions;  // [F]
};

PlacedFeatures place_features(const StepSizes& sizes,
                              const Group& group,
                              const std::vector<std::int64_t>& sample_begin,
                              const UnitInput& input) {
  std::map<int, std::size_t> index_of_sample;
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    index_of_sample[group.items[i].sample] = i;
  }
  std::map<std::int64_t, at::Tensor> pieces;  // by position
  for (const FeaturePart& part : input.features) {
    std::vector<std::int64_t> rows;
    for (const WorkItem& item : part.items) {
      rows.push_back(feature_rows(sizes, part.unit.module, item));
    }
    // Split once: narrowing piece by piece makes backward quadratic.
    const std::vector<at::Tensor> split = part.leaf.split_with_sizes(rows);
    for (std::size_t i = 0; i < part.items.size(); ++i) {
      const WorkItem& item = part.items[i];
      const std::size_t sample = index_of_sample.at(item.sample);
      // Segments of all encoders are numbered through, in module order.
      std::int64_t segment = item.segment;
      const SampleWork& work = sizes.costs.work.at(at_index(item.sample));
      for (int module = 0; module < part.unit.module; ++module) {
        segment += std::ssize(work.segments.at(at_index(module)));
      }
      if (rows[i] > 0) {
        pieces[sample_begin[sample] + input.texts[sample]->feature_begin.at(at_index(segment))] =
            split[i];
      }
    }
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

void check_features(const StepSizes& sizes, const Group& group, const PlacedFeatures& placed) {
  std::int64_t expected = 0;
  for (const WorkItem& item : group.items) {
    for (const auto& segments : sizes.costs.work.at(at_index(item.sample)).segments) {
      for (const SegmentWork& segment : segments) {
        expected += segment.llm_tokens;
      }
    }
  }
  ENTRAIN_INVARIANT(std::ssize(placed.positions) == expected,
                    concat("an LLM slot got ",
                           placed.positions.size(),
                           " feature rows, its samples have ",
                           expected));
}

UnitOutput run_llm(const StepSizes& sizes,
                   const LlmStage& stage,
                   const StageOptions& options,
                   const UnitKey& unit,
                   const Group& group,
                   UnitInput& input,
                   std::int64_t target_tokens) {
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> begins;
  std::int64_t tokens = 0;
  for (const WorkItem& item : group.items) {
    begins.push_back(tokens);
    lengths.push_back(item_rows(sizes, unit.module, item));
    tokens += lengths.back();
  }
  at::Tensor hidden = std::move(input.hidden);
  if (unit.stage == 0) {
    std::vector<std::int64_t> ids;
    ids.reserve(at_index(tokens));
    for (const TokenizedSample* text : input.texts) {
      ids.insert(ids.end(), text->ids.begin(), text->ids.end());
    }
    const PlacedFeatures placed = place_features(sizes, group, begins, input);
    check_features(sizes, group, placed);
    hidden =
        stage.embed(to_tensor(ids, options), placed.rows, to_tensor(placed.positions, options));
    input.features.clear();
  }
  hidden = stage.decode(hidden, lengths);
  if (!is_last_stage(sizes, unit)) {
    return {hidden, 0};
  }
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> targets;
  for (std::size_t i = 0; i < input.texts.size(); ++i) {
    const TokenizedSample& text = *input.texts[i];
    // The token at a position is predicted from the row before it.
    for (std::int64_t p = std::max<std::int64_t>(1, text.target_begin); p < lengths[i]; ++p) {
      rows.push_back(begins[i] + p - 1);
      targets.push_back(text.ids[at_index(p)]);
    }
  }
  const at::Tensor loss =
      stage.loss_sum(hidden, to_tensor(rows, options), to_tensor(targets, options));
  return {loss / static_cast<double>(target_tokens), loss.item<double>()};
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
    const bool vision =
        sizes.model.encoders.at(at_index(unit.module)).modality == Modality::kVision;
    for (const WorkItem& item : group.items) {
      const SegmentWork& work = segment_of(sizes, unit, item);
      SegmentData segment = data.segment(unit.module, item.sample, item.segment);
      const std::int64_t rows = segment.input.size(0);
      ENTRAIN_INVARIANT(
          segment.rows == work.rows && segment.columns == work.columns &&
              (vision ? rows : (rows + 1) / 2) == work.tokens,
          concat("sample '",
                 sample_ids.at(at_index(item.sample)),
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
  if (llm && (unit.stage == 0 || is_last_stage(sizes, unit))) {
    for (const WorkItem& item : group.items) {
      const TokenizedSample& text = data.text(item.sample);
      const std::int64_t planned = item_rows(sizes, unit.module, item);
      ENTRAIN_INVARIANT(std::ssize(text.ids) == planned,
                        concat("sample '",
                               sample_ids.at(at_index(item.sample)),
                               "': ",
                               text.ids.size(),
                               " tokens, planned with ",
                               planned));
      input.texts.push_back(&text);
    }
  }
}

UnitOutput run_forward(const StepSizes& sizes,
                       const LaneStages& stages,
                       const StageOptions& options,
                       const UnitKey& unit,
                       const Group& group,
                       UnitInput& input,
                       std::int64_t target_tokens) {
  return unit.module == sizes.program.llm_module()
             ? run_llm(sizes, stages.llm(unit.stage), options, unit, group, input, target_tokens)
             : run_encoder(
                   sizes, stages.encoder(unit.module, unit.stage), options, unit, group, input);
}

}  // namespace entrain::engine
