#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
                                       smolvlm_family(),
                                       internvl_family(),
                                       qwen2_audio_family(),
                                       llama_family(),
                                       qwen2_family(),
                                       qwen3_family(),
                                       mistral_family()};
  return kFamilies;
}

void HfConfig::expect(const std::string& key, const Json& value) {
  const Json* given = reader_.find(key);
  if (given != nullptr && *given != value) {
    reader_.fail(key,
                 fmt::format("{} given; only {} can be represented", given->dump(), value.dump()));
  }
}

void HfConfig::harmless(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    reader_.has(key);
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
  std::vector<std::string> given;
  for (const auto& [name, place] : reader.reader().array("architectures")) {
    given.push_back(value_as<std::string>(*name, place));
  }
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    for (const std::string_view architecture : family.architectures) {
      known.push_back(architecture);
      if (given.size() == 1 && given.front() == architecture) {
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
  throw InvalidInput(fmt::format("{}: architectures: [{}] given; known: {}",
                                 where,
                                 fmt::join(given, ", "),
                                 fmt::join(known, ", ")));
}

HfModel read_hf_model(const std::filesystem::path& folder) {
  const std::filesystem::path config = folder / "config.json";
  if (!std::filesystem::is_regular_file(config)) {
    throw InvalidInput(fmt::format("{}: no config.json in this folder", folder.string()));
  }
  HfModel model = hf_model_from_json(read_json_file(config), config.string());
  const std::filesystem::path processor = folder / "preprocessor_config.json";
  if (!model.model.encoders.empty() && std::filesystem::is_regular_file(processor)) {
    EncoderSpec& encoder = model.model.encoders.front();
    if (encoder.modality == Modality::kAudio) {
      read_audio_processor(read_json_file(processor), processor.string(), encoder);
    } else {
      read_processor(read_json_file(processor), processor.string(), encoder, model.tiling);
    }
    if (reads_videos(encoder)) {
      const std::filesystem::path video = folder / "video_preprocessor_config.json";
      const std::filesystem::path& file =
          std::filesystem::is_regular_file(video) ? video : processor;
      read_video_processor(read_json_file(file), file.string(), encoder);
    }
    validate(model.model, processor.string());
  }
  return model;
}

ModelSpec load_model(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path) ? read_hf_model(path).model : read_model(path);
}

}  // namespace entrain
