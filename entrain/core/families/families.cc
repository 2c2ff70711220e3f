#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"
#include "entrain/core/families/family.h"
#include "entrain/core/families/processor.h"
#include "entrain/core/spec/video.h"

namespace entrain {

std::span<const Family> families() {
  static const std::array kFamilies = {qwen2_vl_family(),
                                       qwen2_5_vl_family(),
                                       qwen3_vl_family(),
                                       llava_family(),
                                       llava_next_family(),
                                       llava_onevision_family(),
                                       smolvlm_family(),
                                       internvl_family(),
                                       qwen2_audio_family(),
                                       gemma3_family(),
                                       whisper_family(),
                                       llama_family(),
                                       qwen2_family(),
                                       qwen3_family(),
                                       mistral_family()};
  return kFamilies;
}

HfConfig HfConfig::object(const std::string& key) {
  HfConfig inner(at(key), where(key));
  inner.outermost_ = false;
  inner.refused_ = refused_;
  return inner;
}

void HfConfig::expect(const std::string& key, const Json& value) {
  const Json* given = find(key);
  if (given != nullptr && *given != value) {
    refuse(key, fmt::format("{} given; only {} can be represented", given->dump(), value.dump()));
  }
}

void HfConfig::refuse(const std::string& key, const std::string& message) {
  refused_->push_back(fmt::format("{}: {}", where(key), message));
}

void HfConfig::harmless(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    has(key);
  }
}

void HfConfig::finish() {
  for (const auto& [key, value] : document_->items()) {
    if (value.is_null()) {
      has(key);
    }
  }
  // What to_dict() of transformers writes into every object.
  harmless({"_name_or_path",
            "architectures",
            "chunk_size_feed_forward",
            "dtype",
            "id2label",
            "is_encoder_decoder",
            "label2id",
            "model_type",
            "output_attentions",
            "output_hidden_states",
            "problem_type",
            "return_dict",
            "torch_dtype",
            "transformers_version"});
  ObjectReader::finish();
  if (outermost_ && !refused_->empty()) {
    throw InvalidInput(refused_->front());
  }
}

std::int64_t read_token_id(HfConfig& config, std::initializer_list<const char*> keys) {
  std::int64_t id = -1;
  for (const char* key : keys) {
    const auto given = config.optional(key, id);
    id = id < 0 ? given : id;
  }
  return id;
}

HfModel hf_model_from_json(const Json& config, const std::string& where) {
  HfConfig reader(config, where);
  std::vector<std::string> given = reader.list<std::string>("architectures");
  const bool by_type = given.empty();
  if (by_type) {
    given.push_back(reader.optional("model_type", std::string()));
  }
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    for (const std::string_view name : by_type ? family.model_types : family.architectures) {
      known.push_back(name);
      if (given.size() == 1 && given.front() == name) {
        HfModel result = family.read(std::move(reader));
        result.family = family.name;
        result.model.name = config.value("_name_or_path", std::string());
        if (result.model.name.empty()) {
          result.model.name = family.name;
        }
        validate(result.model, where);
        return result;
      }
    }
  }
  throw InvalidInput(fmt::format("{}: {} [{}] given; known: {}",
                                 where,
                                 by_type ? "no architectures, and model_type" : "architectures:",
                                 fmt::join(given, ", "),
                                 fmt::join(known, ", ")));
}

namespace {

struct ProcessorFile {
  Json document;
  std::string where;
};

// A processor's settings: one of `keys` of processor_config.json, as newer releases of transformers
// write it, else the first of `names` and preprocessor_config.json that is there.
std::optional<ProcessorFile> find_processor(const std::filesystem::path& folder,
                                            std::initializer_list<const char*> keys,
                                            std::vector<const char*> names) {
  const std::filesystem::path whole = folder / "processor_config.json";
  if (std::filesystem::is_regular_file(whole)) {
    const Json document = read_json_file(whole);
    for (const char* key : keys) {
      if (document.is_object() && document.contains(key)) {
        return ProcessorFile{document[key], fmt::format("{}: {}", whole.string(), key)};
      }
    }
  }
  names.push_back("preprocessor_config.json");
  for (const char* name : names) {
    if (std::filesystem::is_regular_file(folder / name)) {
      return ProcessorFile{read_json_file(folder / name), (folder / name).string()};
    }
  }
  return std::nullopt;
}

}  // namespace

HfModel read_hf_model(const std::filesystem::path& folder) {
  const std::filesystem::path config = folder / "config.json";
  if (!std::filesystem::is_regular_file(config)) {
    throw InvalidInput(fmt::format("{}: no config.json in this folder", folder.string()));
  }
  HfModel model = hf_model_from_json(read_json_file(config), config.string());
  if (model.model.encoders.empty()) {
    return model;
  }
  EncoderSpec& encoder = model.model.encoders.front();
  if (encoder.modality == Modality::kAudio) {
    if (const auto file = find_processor(folder, {"feature_extractor", "audio_processor"}, {})) {
      read_audio_processor(file->document, file->where, encoder);
    }
  } else {
    if (const auto file = find_processor(folder, {"image_processor"}, {})) {
      read_processor(file->document, file->where, encoder, model.tiling);
    }
    const auto video =
        find_processor(folder, {"video_processor"}, {"video_preprocessor_config.json"});
    if (reads_videos(encoder) && video) {
      read_video_processor(video->document, video->where, encoder);
    }
  }
  validate(model.model, folder.string());
  return model;
}

ModelSpec load_model(const std::filesystem::path& path) {
  std::error_code unreachable;
  if (std::filesystem::is_directory(path, unreachable)) {
    return read_hf_model(path).model;
  }
  if (path.extension() != ".toml" && !std::filesystem::exists(path, unreachable)) {
    throw InvalidInput(
        fmt::format("file '{0}' does not exist; a model file (.toml) or a folder with a "
                    "config.json is needed; one of the Hugging Face Hub has to be "
                    "downloaded first (hf download {0} --local-dir FOLDER)",
                    path.string()));
  }
  if (path.extension() == ".json") {
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    const auto lies_beside = [&](const char* name) {
      return std::filesystem::exists(folder / name, unreachable);
    };
    if (path.filename() == "config.json" &&
        (lies_beside("preprocessor_config.json") || lies_beside("processor_config.json"))) {
      return read_hf_model(folder).model;
    }
    ModelSpec model = hf_model_from_json(read_json_file(path), path.string()).model;
    validate(model, path.string());
    return model;
  }
  return read_model(path);
}

}  // namespace entrain
