// Families of Hugging Face models: from a folder's config.json to our description of the model, and
// from our parameters to the tensors of its files.
//
// Read first: Family. How to add one: docs/add-a-family.md. A family refuses, by name, whatever it
// cannot represent: nothing in a config is left out silently.
#pragma once

#include <array>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/json.h"
#include "entrain/core/spec/media_text.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// A model as its family's file describes it.
struct HfModel {
  ModelSpec model;
  std::string family;  // e.g. "Qwen2.5-VL"
  // How the family's processor cuts images. Without preprocessor_config.json none are cut.
  TilingSpec::Kind tiling = TilingSpec::Kind::kNone;
  // How files spell parameters' names. Of the prefixes the longest that fits is replaced; of
  // encoders' names then every part that occurs, once. A folder has one spelling throughout. The
  // last is that of the class's modules in transformers 5, which adapters are named by.
  struct Spelling {
    std::vector<std::pair<std::string, std::string>> prefixes = {};  // {ours, theirs}
    std::vector<std::pair<std::string, std::string>> parts = {};
  };
  std::vector<Spelling> spellings = {{}};
  // Shapes of tensors that files hold in other axes than our parameters do, by our name.
  std::map<std::string, std::vector<std::int64_t>> shapes = {};
  // Parts of names of tensors that take no part: stored frequencies, layers after the feature
  // layer. They are kept as they are.
  std::vector<std::string> no_parameters = {};
  // How texts mark images, videos and clips; nothing where the family has none.
  std::optional<MediaText> image_text = std::nullopt;
  std::optional<MediaText> video_text = std::nullopt;
  std::optional<MediaText> audio_text = std::nullopt;
};

// Beginnings of names in files of a model with encoders.
struct HfRoots {
  std::string root;  // of encoders and projectors
  std::string llm;
  std::string head;
};
// Those of earlier releases of transformers, and of newer ones.
inline const std::array<HfRoots, 2> kHfRoots = {
    HfRoots{"", "language_model.model.", "language_model.lm_head."},
    HfRoots{"model.", "model.language_model.", "lm_head."}};

// A config.json, or one of its objects, of which every key has to be read or named harmless. Keys
// that are null are as good as absent.
class HfConfig : private ObjectReader {
 public:
  HfConfig(const Json& object, const std::string& where)
      : ObjectReader(object, where), document_(&object) {}

  using ObjectReader::array;
  using ObjectReader::at;
  using ObjectReader::fail;
  using ObjectReader::find;
  using ObjectReader::list;
  using ObjectReader::optional;  // the fallback is the default of the family's own class
  using ObjectReader::required;
  HfConfig object(const std::string& key);

  // The key, if it is there, has this value: another one changes what the model computes. The outer
  // finish() throws if not.
  void expect(const std::string& key, const Json& value);
  // For a value that may be at odds with a default because a key is misspelt: the outer finish()
  // throws it, after unknown keys.
  void refuse(const std::string& key, const std::string& message);
  // Keys that change nothing that training computes.
  void harmless(std::initializer_list<const char*> keys);
  // Call last, on inner objects before their outer one.
  // Throws  InvalidInput naming a key that was neither read nor named; of the outermost object then
  //         the first key and value that were refused, and what is allowed.
  void finish();

 private:
  const Json* document_;
  bool outermost_ = true;
  // Of the outermost object and those inside.
  std::shared_ptr<std::vector<std::string>> refused_ = std::make_shared<std::vector<std::string>>();
};

struct Family {
  std::string_view name;
  std::vector<std::string_view> architectures;  // of config.json
  // Of a config.json without architectures.
  std::vector<std::string_view> model_types;
  // Throws  InvalidInput naming file and key.
  HfModel (*read)(HfConfig config);
};

// All of them, in the order of the table in docs/models.md.
std::span<const Family> families();

// The model of a folder with a config.json; its processor_config.json or preprocessor_config.json,
// if there is one, says how pixels are made (processor.h).
//
// Throws  InvalidInput naming the folder: no config.json, an architecture of no family (with those
//         that there are), whatever the family refuses.
HfModel read_hf_model(const std::filesystem::path& folder);
// The same from the document; `where` names it.
HfModel hf_model_from_json(const Json& config, const std::string& where);

// A model file (read_model()), a folder with a config.json, or that file, which stands for its
// folder where a processor's file lies beside it. Alone, pixels are made as by the family's
// default.
ModelSpec load_model(const std::filesystem::path& path);

// Parts that families share.

// Reads the keys that Llama, Qwen and Mistral text models have in common into the LLM, those of
// rotary positions included, and names their harmless ones. A model with a sliding window may have
// rotations for each kind of layers; those of full attention are taken. Keys that are absent have
// the values that the LLM came with, and what its family's code fixes (mrope_interleaved) may not
// differ.
void read_text_config(HfConfig& config, LlmSpec& llm);
// Qwen's switch for sliding windows, which has to be off.
void expect_full_attention(HfConfig& config, const LlmSpec& llm);
// The `text_config` of a model: one of Llama, Qwen2, Qwen3, Mistral by its model_type.
LlmSpec read_text_model(HfConfig config);
// The id of a placeholder under the first of `keys` that the config has; -1 without any.
std::int64_t read_token_id(HfConfig& config, std::initializer_list<const char*> keys);
// Whether head and embedding are tied, for models with a text_config: their own key decides, else
// the text model's.
void read_tied(HfConfig& config, LlmSpec& llm);

// The `vision_config` of CLIP, SigLIP and their like into an encoder called "vision": LayerNorm,
// plain MLP, biases, learned positions. Keys that are absent have the encoder's values.
// `image_size`: the class's default.
void read_vit_config(HfConfig& config, EncoderSpec& vision, int image_size);
Activation read_activation(HfConfig& config, const std::string& key, Activation fallback);
// The canvases of image_grid_pinpoints, in tiles of `side` pixels.
// Throws  InvalidInput: none, pixels that are no whole tiles.
std::vector<std::array<int, 2>> read_canvases(HfConfig& config, int side);
// CLIP's and SigLIP's names of a layer's parts.
std::vector<std::pair<std::string, std::string>> vit_parts();
// [hidden, 3, patch_size, patch_size]
std::vector<std::int64_t> patch_kernel_shape(const EncoderSpec& vision);

// The keys of Whisper's encoder into an encoder called "audio". Keys that are absent have the
// encoder's values.
void read_whisper_encoder(HfConfig& config, EncoderSpec& audio);

// The `vision_config` keys of Qwen's encoders with rotations; those of one family stay unread.
// Keys that are absent have the encoder's values.
void read_qwen_vision(HfConfig& config, EncoderSpec& vision);
// [hidden, 3, temporal_patch_size, patch_size, patch_size]
std::vector<std::int64_t> qwen_patch_kernel_shape(const EncoderSpec& vision);
// How their texts mark images and videos; reads the placeholders' ids.
MediaText read_qwen_image_text(HfConfig& config);
MediaText read_qwen_video_text(HfConfig& config);
// A model of Qwen2 with M-RoPE and an encoder that `read_vision` reads, in both forms of configs
// and both spellings of tensors. `parts`: of the encoder's names (Spelling).
HfModel read_qwen2_vision_language(HfConfig config,
                                   EncoderSpec (*read_vision)(HfConfig config, const LlmSpec& llm),
                                   const std::vector<std::pair<std::string, std::string>>& parts);

Family qwen2_vl_family();
Family qwen2_5_vl_family();
Family qwen3_vl_family();
Family llava_family();
Family llava_next_family();
Family llava_onevision_family();
Family smolvlm_family();
Family internvl_family();
Family qwen2_audio_family();
// Known for costs alone (check_trainable() in training.h).
Family gemma3_family();
Family whisper_family();
Family llama_family();
Family qwen2_family();
Family qwen3_family();
Family mistral_family();

}  // namespace entrain
