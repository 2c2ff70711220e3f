// Runs a packed batch through a Hugging Face folder's model: logits, loss, every gradient, and some
// greedy tokens; or only the batch's M-RoPE positions.
//
// Usage: entrain_forward FOLDER BATCH OUTPUT [SPLIT [ADAPTER LORA]]
// BATCH and OUTPUT are safetensors files. BATCH holds, int64 unless said otherwise:
//   ids [T], lengths [samples], rows [N] and targets [N] (rows with loss and their targets),
//   pixels [patches, values] float32, grids [images, 2] (rows and columns in patches),
//   image_sample [images], image_begin [images] (first feature's token in its sample); of clips
//   instead of grids clip_frames [clips] (mel frames with sound), and pixels holds padded windows.
//   image_sizes [images, 2] (width and height in pixels), where the tiles of an image are one
//   segment: grids are then those of a tile.
//   grids, image_sample and image_begin have a row for every image, tile and temporal patch, of a
//   sample the videos' last; videos [videos, 2] (sample and patches) and video_fps [videos] float32
//   (of the frames that are read) say which are of videos.
// OUTPUT.folder: the model's folder written again, with the weights that were loaded.
// OUTPUT: logits [T, vocab], loss [1] (mean over targets), "gradient NAME" by the files' names,
//   flops [2] float64 (of matrices and of attention, by the cost model),
// generated [samples, kGenerated], positions [T, 3]. Without `targets` positions alone.
// A BATCH of clips [samples] float32, one after another, and clip_lengths [clips]: mel [frames,
// bands] as the encoder reads them, mel_frames [clips] and features [clips]. A BATCH that is a
// shard
// (.tar): pixels [patches, values], grids [segments, 2] (tiles of one segment below each other) and
// segments [samples] (how many each has), as training reads them. SPLIT: encoder and LLM are cut
// into that many stages each (default 1). With ADAPTER, a folder of peft's, and LORA, the keys of
// [lora] as JSON: gradients are those of its tensors, OUTPUT.folder has the adapters added to the
// weights, and OUTPUT.adapter is the adapter's folder written again.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/python_process.h"
#include "entrain/core/cost/layer_work.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/families/hf_tensors.h"
#include "entrain/core/spec/parameters.h"
#include "entrain/core/spec/positions.h"
#include "entrain/core/spec/training.h"
#include "entrain/core/spec/workload.h"

#include "entrain/engine/checkpoint/adapter_folder.h"
#include "entrain/engine/checkpoint/hf_folder.h"
#include "entrain/engine/data/log_mel.h"
#include "entrain/engine/data/sample_reader.h"
#include "entrain/engine/models/stages.h"
#include "entrain/engine/models/weights.h"

namespace entrain::engine {
namespace {

constexpr int kGenerated = 6;  // tokens behind every sample

using Tensors = std::map<std::string, at::Tensor>;

std::vector<std::int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous().view(-1);
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

// `count` ranges of nearly equal length.
std::vector<LayerRange> cut(int layers, int count) {
  std::vector<LayerRange> ranges;
  for (int i = 0; i < count; ++i) {
    ranges.push_back({layers * i / count, layers * (i + 1) / count});
  }
  return ranges;
}

struct Model {
  Model(ModelSpec model,
        const HfTensors& tensors,
        int split,
        const std::optional<AdapterFolder>& adapter)
      : spec(std::move(model)) {
    std::vector<NamedParameter> parameters;
    const auto add = [&](const std::vector<NamedParameter>& more) {
      parameters.insert(parameters.end(), more.begin(), more.end());
    };
    for (std::size_t m = 0; m < spec.encoders.size(); ++m) {
      auto& stages = encoders.emplace_back();
      for (const LayerRange& layers : cut(num_layers(spec, static_cast<int>(m)), split)) {
        stages.emplace_back(spec.encoders[m], spec.llm.hidden, layers, StageOptions{});
        add(stages.back().parameters());
      }
    }
    for (const LayerRange& layers : cut(num_layers(spec, spec.llm_module()), split)) {
      llm.emplace_back(spec.llm, layers, StageOptions{});
      add(llm.back().parameters());
    }
    if (spec.llm.tie_word_embeddings && split > 1) {
      llm.back().use_table(llm.front().table());
    }
    all = parameters;
    const auto adapters = std::stable_partition(
        parameters.begin(), parameters.end(), [](const NamedParameter& parameter) {
          return !is_adapter_name(parameter.name);
        });
    if (adapter.has_value()) {
      load_adapters(*adapter, {adapters, parameters.end()});
    }
    parameters.erase(adapters, parameters.end());
    load_hf_weights(tensors, parameters);
  }

  ModelSpec spec;
  std::vector<std::vector<EncoderStage>> encoders;
  std::vector<LlmStage> llm;
  std::vector<NamedParameter> all;
};

// The only window of a clip of so many mel frames.
SegmentWork clip_work(const ModelSpec& model, std::int64_t frames) {
  SampleSizes sizes;
  sizes.audio_seconds = {static_cast<double>(frames) / 100};
  return sample_work(model, sizes).segments.at(0).at(0);
}

at::Tensor encode_clips(const Model& model, const Tensors& batch) {
  const EncoderSpec& encoder = model.spec.encoders.front();
  std::vector<SegmentGrid> grids;
  std::vector<at::Tensor> windows;
  std::int64_t begin = 0;
  for (const std::int64_t frames : numbers(batch.at("clip_frames"))) {
    const std::int64_t rows = input_frames(encoder, frames);
    grids.push_back(segment_grid(encoder, clip_work(model.spec, frames), rows));
    windows.push_back(batch.at("pixels").narrow(0, begin, rows));
    begin += window_frames(encoder);
  }
  at::Tensor hidden = at::cat(windows);
  for (const EncoderStage& stage : model.encoders.front()) {
    hidden = stage.forward(hidden, grids);
  }
  return hidden;
}

// The segments of the batch's images.
std::vector<SegmentWork> image_works(const ModelSpec& model, const Tensors& batch) {
  std::vector<SegmentWork> works;
  if (batch.contains("image_sizes")) {
    const std::vector<std::int64_t> sides = numbers(batch.at("image_sizes"));
    std::map<std::int64_t, SampleSizes> samples;
    const std::vector<std::int64_t> sample_of = numbers(batch.at("image_sample"));
    for (std::size_t i = 0; i < sample_of.size(); ++i) {
      samples[sample_of[i]].images.push_back(
          {static_cast<int>(sides[2 * i]), static_cast<int>(sides[2 * i + 1])});
    }
    for (const auto& [sample, sizes] : samples) {
      const std::vector<SegmentWork> more = sample_work(model, sizes).segments.at(0);
      works.insert(works.end(), more.begin(), more.end());
    }
    return works;
  }
  const EncoderSpec& encoder = model.encoders.front();
  const std::vector<std::int64_t> sides = numbers(batch.at("grids"));
  const std::int64_t window = std::max<std::int64_t>(1, encoder.window_size / encoder.patch_size);
  for (std::size_t i = 0; i + 1 < sides.size(); i += 2) {
    SegmentWork work;
    work.rows = sides[i];
    work.columns = sides[i + 1];
    work.tokens = work.rows * work.columns + extra_tokens(encoder);
    work.attention_pairs = work.tokens * work.tokens;
    work.window_pairs = window_pairs(work.rows, work.columns, window);
    work.llm_tokens =
        work.rows * work.columns / (std::int64_t{encoder.merge_size} * encoder.merge_size);
    works.push_back(work);
  }
  return works;
}

at::Tensor encode(const Model& model, const Tensors& batch) {
  if (batch.contains("clip_frames")) {
    return encode_clips(model, batch);
  }
  std::vector<SegmentGrid> grids;
  for (const SegmentWork& work : image_works(model.spec, batch)) {
    grids.push_back(segment_grid(model.spec.encoders.front(), work, 0));
  }
  at::Tensor hidden = batch.at("pixels");
  for (const EncoderStage& stage : model.encoders.front()) {
    hidden = stage.forward(hidden, grids);
  }
  return hidden;
}

// Grids of all samples, from sizes and frames of which the batch's are what is read.
std::vector<std::vector<GridSpan>> grids_of(ModelSpec model,
                                            const Tensors& batch,
                                            std::size_t samples) {
  EncoderSpec& encoder = model.encoders.front();
  encoder.tiling = {};
  encoder.min_pixels = 1;
  if (reads_videos(encoder)) {
    encoder.video.sampling = VideoSpec::Sampling::kAll;
    encoder.video.min_pixels = 1;
    encoder.video.max_pixels = std::int64_t{1} << 40;
  }
  std::vector<SampleSizes> sizes(samples);
  std::vector<std::vector<std::int64_t>> begins(samples);
  std::vector<std::vector<ImageSize>> segments(samples);
  const std::vector<std::int64_t> sides = numbers(batch.at("grids"));
  const std::vector<std::int64_t> tokens = numbers(batch.at("image_begin"));
  const std::vector<std::int64_t> sample_of = numbers(batch.at("image_sample"));
  for (std::size_t i = 0; i < sample_of.size(); ++i) {
    const auto sample = static_cast<std::size_t>(sample_of[i]);
    begins[sample].push_back(tokens[i]);
    segments[sample].push_back({static_cast<int>(sides[2 * i + 1]) * encoder.patch_size,
                                static_cast<int>(sides[2 * i]) * encoder.patch_size});
  }
  const std::vector<std::int64_t> videos =
      batch.contains("videos") ? numbers(batch.at("videos")) : std::vector<std::int64_t>();
  for (std::size_t v = 0; v < videos.size() / 2; ++v) {
    const std::int64_t frames = 2 * videos[2 * v + 1];
    const double fps = batch.at("video_fps")[static_cast<std::int64_t>(v)].item<double>();
    sizes[static_cast<std::size_t>(videos[2 * v])].videos.push_back(
        {static_cast<double>(frames) / fps, frames, std::nullopt});
  }
  std::vector<std::vector<GridSpan>> result;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    // Sizes of videos from the back.
    std::size_t end = segments[sample].size();
    for (auto video = sizes[sample].videos.rbegin(); video != sizes[sample].videos.rend();
         ++video) {
      end -= static_cast<std::size_t>(*video->frames / 2);
      video->size = segments[sample].at(end);
    }
    segments[sample].resize(end);
    sizes[sample].images = segments[sample];
    result.push_back(image_grids(model, sample_work(model, sizes[sample]), begins[sample]));
  }
  return result;
}

struct Packed {
  std::vector<PackedItem> items;
  std::vector<std::int64_t> places;  // rows that features fill
};

Packed pack(const Model& model, const Tensors& batch) {
  Packed packed;
  const std::vector<std::int64_t> lengths = numbers(batch.at("lengths"));
  std::vector<std::int64_t> begins;
  std::vector<std::vector<GridSpan>> grids(lengths.size());
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    packed.items.push_back({.rows = length});
    begins.push_back(begin);
    begin += length;
  }
  if (batch.contains("grids")) {
    if (!model.spec.llm.mrope_sections.empty()) {
      grids = grids_of(model.spec, batch, lengths.size());
    }
    const std::vector<SegmentWork> works = image_works(model.spec, batch);
    const std::vector<std::int64_t> samples = numbers(batch.at("image_sample"));
    const std::vector<std::int64_t> tokens = numbers(batch.at("image_begin"));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (std::int64_t token = 0; token < works[i].llm_tokens; ++token) {
        packed.places.push_back(begins[static_cast<std::size_t>(samples[i])] + tokens[i] + token);
      }
    }
  }
  if (batch.contains("clip_frames")) {
    const std::vector<std::int64_t> frames = numbers(batch.at("clip_frames"));
    const std::vector<std::int64_t> samples = numbers(batch.at("image_sample"));
    const std::vector<std::int64_t> tokens = numbers(batch.at("image_begin"));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (std::int64_t f = 0; f < clip_work(model.spec, frames[i]).llm_tokens; ++f) {
        packed.places.push_back(begins[static_cast<std::size_t>(samples[i])] + tokens[i] + f);
      }
    }
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    packed.items[i].positions = multimodal_positions(lengths[i], grids[i]);
  }
  return packed;
}

at::Tensor positions_of(const Packed& packed) {
  std::vector<std::int64_t> all;
  for (const PackedItem& item : packed.items) {
    for (const AxisPosition& position : item.positions) {
      all.insert(all.end(), {position.time, position.row, position.column});
    }
  }
  return at::tensor(all, at::TensorOptions(at::kLong)).view({-1, 3});
}

at::Tensor hidden_of(const Model& model, const Tensors& batch, const Packed& packed) {
  const at::Tensor features = batch.contains("pixels") ? encode(model, batch) : at::Tensor();
  at::Tensor hidden = model.llm.front().embed(
      batch.at("ids"), features, at::tensor(packed.places, at::TensorOptions(at::kLong)));
  for (const LlmStage& stage : model.llm) {
    hidden = stage.decode(hidden, packed.items);
  }
  return hidden;
}

// The token that follows each sample with the greatest score, again and again.
at::Tensor generate(const Model& model, Tensors batch) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> steps;
  for (int step = 0; step < kGenerated; ++step) {
    const at::Tensor hidden = hidden_of(model, batch, pack(model, batch));
    const at::Tensor last_rows = at::cumsum(batch.at("lengths"), 0) - 1;
    steps.push_back(model.llm.back().logits(hidden, last_rows).argmax(1));
    std::vector<at::Tensor> grown;
    const std::vector<std::int64_t> lengths = numbers(batch.at("lengths"));
    const std::vector<at::Tensor> ids = batch.at("ids").split_with_sizes(lengths);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      grown.push_back(at::cat({ids[i], steps.back().narrow(0, static_cast<std::int64_t>(i), 1)}));
    }
    batch["ids"] = at::cat(grown);
    batch["lengths"] = batch.at("lengths") + 1;
  }
  return at::stack(steps, 1).contiguous();
}

// Floating-point operations of the batch's forward without the output head, as costs count them:
// of matrices, and of attention, where the half that a causal mask leaves counts as all.
std::vector<double> counted_work(const ModelSpec& spec, const Tensors& batch) {
  double matrices = 0;
  double attention = 0;
  const auto add = [&](int module, std::int64_t tokens, std::int64_t pairs, std::int64_t windows) {
    const int end = num_layers(spec, module) - (module == spec.llm_module() ? 1 : 0);
    for (int layer = 0; layer < end; ++layer) {
      const LayerWork work = layer_work(spec, module, layer, 4);
      const bool windowed = layer_kind(spec, module, layer) == LayerKind::kWindowedTransformer;
      matrices += work.matrix_flops * static_cast<double>(tokens);
      attention += work.attention_flops * static_cast<double>(windowed ? windows : pairs);
    }
  };
  if (batch.contains("grids")) {
    for (const SegmentWork& work : image_works(spec, batch)) {
      add(0, work.tokens, work.attention_pairs, work.window_pairs);
    }
  }
  if (batch.contains("clip_frames")) {
    // The original computes what it pads; Entrain does not.
    const std::int64_t tokens = window_tokens(spec.encoders.front());
    for (std::int64_t clip = 0; clip < batch.at("clip_frames").numel(); ++clip) {
      add(0, tokens, tokens * tokens, 0);
    }
  }
  for (const std::int64_t length : numbers(batch.at("lengths"))) {
    add(spec.llm_module(), length, length * length, 0);
  }
  return {matrices, attention};
}

// What the reader of data makes of clips.
std::vector<NamedParameter> mel_of(const ModelSpec& model, const Tensors& batch) {
  std::vector<at::Tensor> mels;
  std::vector<std::int64_t> frames;
  std::vector<std::int64_t> features;
  for (const at::Tensor& clip :
       batch.at("clips").split_with_sizes(numbers(batch.at("clip_lengths")))) {
    const at::Tensor samples = clip.contiguous();
    mels.push_back(
        mel_window({samples.const_data_ptr<float>(), static_cast<std::size_t>(samples.numel())},
                   0,
                   model.encoders.front())
            .input);
    frames.push_back(mels.back().size(0));
    const std::int64_t real = (samples.numel() + kMelHop - 1) / kMelHop;
    features.push_back(clip_work(model, real).llm_tokens);
  }
  const at::TensorOptions whole(at::kLong);
  return {{"mel", at::cat(mels)},
          {"mel_frames", at::tensor(frames, whole)},
          {"features", at::tensor(features, whole)}};
}

// What the reader of data makes of a shard's images and videos.
std::vector<NamedParameter> pixels_of(const ModelSpec& model, const std::string& shard) {
  const Index index = build_index({shard}, shard + ".csv", {}).index;
  SampleReader reader(index, model, /*blank=*/false);
  std::vector<at::Tensor> pixels;
  std::vector<std::int64_t> grids;
  std::vector<std::int64_t> segments;
  for (int sample = 0; sample < std::ssize(index.samples); ++sample) {
    const SampleWork work = sample_work(model, index.samples[static_cast<std::size_t>(sample)]);
    segments.push_back(std::ssize(work.segments.at(0)));
    for (int segment = 0; segment < segments.back(); ++segment) {
      const SegmentData data = reader.segment(sample, 0, segment);
      pixels.push_back(data.input);
      grids.insert(grids.end(), {data.input.size(0) / data.columns, data.columns});
    }
  }
  const at::TensorOptions whole(at::kLong);
  return {{"pixels", at::cat(pixels)},
          {"grids", at::tensor(grids, whole).view({-1, 2})},
          {"segments", at::tensor(segments, whole)}};
}

struct Arguments {
  std::string folder;
  std::string input;
  std::string output;
  int split = 1;
  std::string adapter = {};  // empty: none
  std::string lora = {};
};

// Gradients by the names that tensors have in files.
void add_gradients(const Model& model,
                   const HfTensors& tensors,
                   const std::optional<AdapterFolder>& adapter,
                   std::vector<NamedParameter>& result) {
  for (const NamedParameter& parameter : model.all) {
    const at::Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined()) {
      continue;
    }
    if (is_adapter_name(parameter.name)) {
      result.push_back({"gradient " + adapter->names.at(parameter.name), gradient});
      continue;
    }
    const SafetensorsEntry& entry = tensors.entry(tensors.parameters.at(parameter.name));
    result.push_back({"gradient " + entry.name, gradient.reshape(entry.shape).contiguous()});
  }
}

int run(const Arguments& arguments) {
  const std::string& output = arguments.output;
  const HfModel hf = read_hf_model(arguments.folder);
  if (arguments.input.ends_with(".tar")) {
    // The package is not beside this program. It reads files of video.
    const char* python = std::getenv("ENTRAIN_PYTHON");
    set_python_program({python != nullptr ? python : "python3", ENTRAIN_PACKAGES});
    write_weights(output, pixels_of(hf.model, arguments.input));
    return 0;
  }
  Tensors batch;
  for (const NamedParameter& tensor : read_weights(arguments.input).tensors) {
    batch.emplace(tensor.name, tensor.tensor);
  }
  if (batch.contains("clips")) {
    write_weights(output, mel_of(hf.model, batch));
    return 0;
  }
  const HfTensors tensors = read_hf_tensors(arguments.folder, hf);
  ModelSpec spec = hf.model;
  std::optional<AdapterFolder> adapter;
  double scale = 0;
  if (!arguments.adapter.empty()) {
    const Json document = parse_json(arguments.lora, "LORA");
    ObjectReader reader(document, "LORA");
    const LoraSpec lora = read_lora(reader);
    reader.finish();
    add_lora(spec, lora, "LORA");
    scale = lora.scale();
    adapter = read_adapter_folder(arguments.adapter, spec, hf);
  }
  const Model model(spec, tensors, arguments.split, adapter);
  const auto value_of = [&](const std::string& name) {
    const auto named = [&](const NamedParameter& parameter) { return parameter.name == name; };
    const auto found = std::find_if(model.all.begin(), model.all.end(), named);
    return found == model.all.end() ? at::Tensor() : found->tensor.detach();
  };
  write_hf_folder(
      tensors,
      [&](const std::string& name) { return merged_value(value_of, name, scale); },
      output + ".folder");
  if (adapter.has_value()) {
    write_adapter_folder(spec, hf, value_of, arguments.folder, output + ".adapter");
  }
  const Packed packed = pack(model, batch);
  std::vector<NamedParameter> result = {{"positions", positions_of(packed)}};
  if (!batch.contains("targets")) {
    write_weights(output, result);
    return 0;
  }
  const at::Tensor hidden = hidden_of(model, batch, packed);
  const LlmStage& last = model.llm.back();
  const at::Tensor targets = batch.at("targets");
  const at::Tensor loss =
      last.loss_sum(hidden, batch.at("rows"), targets) / static_cast<double>(targets.size(0));
  result.push_back({"generated", generate(model, batch)});
  result.push_back(
      {"logits", last.logits(hidden.detach(), at::arange(hidden.size(0), at::kLong)).detach()});
  result.push_back({"loss", loss.detach().view({1})});
  result.push_back({"flops", at::tensor(counted_work(model.spec, batch), at::kDouble)});
  loss.backward();
  add_gradients(model, tensors, adapter, result);
  write_weights(output, result);
  return 0;
}

}  // namespace
}  // namespace entrain::engine

int main(int argc, char** argv) {
  try {
    if (argc < 4 || argc == 6 || argc > 7) {
      std::cerr << "usage: entrain_forward FOLDER BATCH OUTPUT [SPLIT [ADAPTER LORA]]\n";
      return 2;
    }
    entrain::engine::Arguments arguments = {argv[1], argv[2], argv[3]};
    arguments.split = argc > 4 ? std::stoi(argv[4]) : 1;
    if (argc == 7) {
      arguments.adapter = argv[5];
      arguments.lora = argv[6];
    }
    return entrain::engine::run(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
