// A multimodal model's shape: encoders with their projectors, and one LLM.
//
// Read first: ModelSpec. Modules are numbered: encoders in file order 0 … E-1, the LLM is module E.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrain/core/base/json.h"

namespace entrain {

enum class LayerKind : std::uint8_t {
  kPatchEmbedding,       // layer 0 of a vision encoder: pixels of a patch → hidden
  kAudioEmbedding,       // layer 0 of an audio encoder: two convolutions over mel frames
  kEncoderTransformer,   // full attention within a segment
  kWindowedTransformer,  // attention within square windows of a vision segment, or the LLM's last
                         // sliding_window tokens
  kProjector,            // merge and map to the LLM's width: the last layer of an encoder
  kTokenEmbedding,       // layer 0 of the LLM
  kDecoder,              // causal attention within a sample
  kOutputHead,           // final norm, logits and loss at target tokens: the LLM's last layer
};
std::string_view name_of(LayerKind kind);              // "patch_embedding", "decoder", …
std::span<const std::string_view> layer_kind_names();  // [LayerKind]
bool has_attention(LayerKind kind);

enum class Modality : std::uint8_t { kVision, kAudio };
std::string_view name_of(Modality modality);  // "vision", "audio"

inline constexpr int kMelKernel = 3;  // frames that a convolution of the audio embedding spans

enum class NormKind : std::uint8_t {
  kRms,    // a gain
  kLayer,  // LayerNorm: a gain and a bias
};
enum class Activation : std::uint8_t {
  kSilu,
  kGelu,       // exact
  kGeluTanh,   // its approximation by tanh
  kQuickGelu,  // x · sigmoid(1.702 x), of CLIP
};

// Low-rank adapters (LoRA): y = x Wᵀ + (alpha / rank) · (x Aᵀ) Bᵀ with A [rank, in], B [out, rank].
// What is trained beside them: training.h. Source: arXiv 2106.09685.
struct LoraSpec {
  int rank = 0;                      // 0: no adapters
  double alpha = 0.0;                // of the scale alpha / rank; read as the rank where absent
  std::vector<std::string> targets;  // patterns: matrices that have an adapter
  std::vector<std::string> train;    // patterns and module names: parameters trained themselves
  [[nodiscard]] double scale() const { return alpha / rank; }
  bool operator==(const LoraSpec&) const = default;
};

// A module's transformer layers, all alike: x += scale1 · attention(norm(x)), then
// x += scale2 · mlp(norm(x)). The MLP is down(act(gate) · up), or down(act(up)) if it is not gated.
// Defaults are those of Llama, and of all models before families of Hugging Face models were read
// (core/families).
struct BlockSpec {
  int num_layers = 0;  // >= 1; the module has num_layers + 2 layers
  int hidden = 0;
  int num_heads = 0;     // >= 1
  int num_kv_heads = 0;  // divides num_heads; 0: num_heads
  int head_dim = 0;      // even; 0: hidden / num_heads
  int intermediate = 0;  // width of the MLP, >= 1
  NormKind norm = NormKind::kRms;
  double norm_epsilon = 1e-6;   // Qwen2-VL's; Llama 3's is 1e-5
  double rope_theta = 10000.0;  // base of rotary frequencies
  bool packed_qkv = false;      // one matrix of queries, keys and values; the encoders' default
  bool qkv_bias = false;
  bool key_bias = true;      // false: of qkv_bias's the keys' is left out (Whisper)
  bool output_bias = false;  // of attention's output matrix
  bool qk_norm = false;      // RMSNorm of every head's query and key before rotation (Qwen3)
  bool gated_mlp = true;
  Activation activation = Activation::kSilu;
  bool mlp_bias = false;     // of all its matrices
  bool layer_scale = false;  // a gain for each of both sums (InternVL); else 1
  bool post_norm = false;    // the norm also of what both sums add (Gemma 3)
  bool frozen = false;       // encoders: embedding and transformer layers get no weight gradient
  std::vector<std::string> frozen_parameters;  // patterns (training.h): these get none either
  LoraSpec lora;                               // what is not frozen above gets adapters

  [[nodiscard]] int kv_heads() const { return num_kv_heads > 0 ? num_kv_heads : num_heads; }
  [[nodiscard]] int width_of_head() const { return head_dim > 0 ? head_dim : hidden / num_heads; }
};

// An encoder's last layer: from its tokens to the LLM's width, blocks of merged_tokens() as one.
struct ProjectorSpec {
  bool norm_tokens = true;    // the block's norm, of every token before merging
  bool norm_merged = false;   // the same, of every merged row
  bool rms_merged = false;    // that one is RMSNorm, whatever the block's
  double norm_epsilon = 0.0;  // 0: the block's
  bool average = false;       // a merged row is the mean of its tokens; else they are side by side
  int num_matrices = 2;       // 1 or 2, with the activation between; 0: features are the tokens
  int intermediate = 0;       // width between two; 0: that of a merged row
  Activation activation = Activation::kGelu;
  bool bias = true;
  bool operator==(const ProjectorSpec&) const = default;
};

// Which dimensions of an encoder's head rotate together, by the patch's row or its column.
enum class RotaryLayout : std::uint8_t {
  // The first half of the head by rows, the second by columns; within a half of width d, dimension
  // i with i + d / 2.
  kSpans,
  // Dimension i with i + d / 2 of the whole head (the rotate-half convention of Qwen2-VL); of these
  // pairs the first half by rows, the second by columns.
  kHalves,
};

enum class ResizeFilter : std::uint8_t { kBicubic, kLanczos, kBilinear };

// How an image becomes several tiles, each of the one size that the encoder takes. Read with
// image_tiles() in vision_sizes.h.
inline constexpr int kLongestTiledEdge = 4096;  // pixels: the original shrinks longer ones again
struct TilingSpec {
  enum class Kind : std::uint8_t {
    kNone,         // an image is one segment
    kLongestEdge,  // Idefics3, SmolVLM: every tile is a segment
    kBestCanvas,   // InternVL: likewise
    // LLaVA-NeXT, LLaVA-OneVision: an image is one segment, whose tiles attend to themselves alone.
    // The projector arranges their features by the image's rows, with a learned vector, the
    // newline, after each (feature_canvas()).
    kAnyResolution,
  };
  Kind kind = Kind::kNone;
  // kLongestEdge: an image is resized so that its longest edge has so many pixels, then to whole
  // tiles. 1 to 4096.
  int longest_edge = 0;
  bool split = true;  // false: the whole image alone is resized twice
  // kBestCanvas: tiles of the canvas, of which the aspect ratio is nearest to the image's.
  int min_tiles = 1;
  int max_tiles = 12;
  // kAnyResolution: the canvases that there are, {rows, columns} of tiles. The image keeps its
  // aspect ratio; the rest of the canvas is black.
  std::vector<std::array<int, 2>> canvases;
  // > 0: an image with more features than so many tiles' (by a tenth along a side) has its features
  // resized to that area.
  int feature_tiles = 0;
  bool single_image = false;  // images of samples with several are not cut, but padded to squares
  bool operator==(const TilingSpec&) const = default;
};

// Which frames of a video are read, their size and their positions. Read with video.h.
struct VideoSpec {
  enum class Sampling : std::uint8_t {
    kRate,    // ⌈seconds · frames_per_second⌉, for studies: cannot be trained
    kAll,     // every frame
    kStride,  // Qwen2-VL: an even number of them, at equal steps from the first
    kSpread,  // Qwen3-VL: equally spread from the first to the last
  };
  Sampling sampling = Sampling::kRate;
  // kStride, kSpread: number of frames that are read, if the video has that many.
  int min_frames = 4;
  int max_frames = 768;
  // Pixels of a frame, or of all its frames together if `shared_pixels`; 0: those of an image.
  std::int64_t min_pixels = 0;
  std::int64_t max_pixels = 0;
  bool shared_pixels = false;
  // M-RoPE: positions in time that a second takes; 0: every temporal patch is a grid of its own.
  double tokens_per_second = 0.0;
  bool operator==(const VideoSpec&) const = default;
};

// hidden is divisible by num_heads, and hidden / num_heads by 4 if heads are rotated; num_kv_heads
// and head_dim are not used.
struct EncoderSpec : BlockSpec {
  EncoderSpec() { packed_qkv = true; }

  std::string name;  // module name, e.g. "vision"; unique, not "llm"
  Modality modality = Modality::kVision;
  // Vision: sides become multiples of patch_size * merge_size, pixels stay in [min_pixels,
  // max_pixels] (Qwen's smart_resize); merge_size² patches make one LLM token.
  int patch_size = 14;
  int merge_size = 2;
  // Frames that a patch spans, 1 or 2. An image is two equal frames then.
  int temporal_patch_size = 1;
  // A pixel in [0, 1] becomes (pixel - mean) / deviation, by channel.
  std::array<double, 3> pixel_mean = {0.5, 0.5, 0.5};
  std::array<double, 3> pixel_deviation = {0.5, 0.5, 0.5};
  std::int64_t min_pixels = 56 * 56;
  std::int64_t max_pixels = 28 * 28 * 1280;
  RotaryLayout rotary = RotaryLayout::kSpans;
  // Vision: > 0: instead of rotations a table of learned positions of table_side² patches is added
  // to the embedded patches. Every image then has table_side patches a side.
  int table_side = 0;
  // Pixels of such an image to the right and below of its last patches, which nothing reads: 384
  // pixels are 27 patches of 14 and 6 more.
  int unused_pixels = 0;
  // Images keep their own sizes and rotations; the table is resized to each, corner on corner,
  // linearly along both sides.
  bool table_interpolated = false;
  // With a table: an image is resized by its shorter side and cut to its centre; else both sides
  // are resized.
  bool center_crop = false;
  ResizeFilter resize_filter = ResizeFilter::kBicubic;
  TilingSpec tiling;         // with table_side, not interpolated
  bool class_token = false;  // one more token before an image's patches, which the projector drops
  bool patch_bias = false;   // of the patch embedding
  bool embedding_norm = false;  // the block's norm, after the embedding
  ProjectorSpec projector;
  // Vision: side in pixels of the windows that attention stays within, a multiple of patch_size *
  // merge_size, tiled from the top left (those at the right and lower edge may be smaller);
  // 0: full attention in every layer.
  int window_size = 0;
  std::vector<int> full_attention_layers;  // transformers (from 0, rising) with full attention
  // DeepStack: transformers (from 0, rising) whose output the last layer projects too, each by a
  // projector of its own that norms the merged row. Source: arXiv 2406.04334, Qwen3-VL.
  std::vector<int> deepstack_layers;
  double frames_per_second = 2.0;  // video sampling; two frames make one temporal patch and segment
  int default_frame_width = 640;   // pixels, for videos whose size is unknown
  int default_frame_height = 360;
  VideoSpec video;
  // Audio: 100 mel frames a second, halved by the second convolution.
  double window_seconds = 30.0;  // length of a segment
  bool pad_windows = false;      // true: every window is as long as a full one
  // Windows are padded, but attention masks the padding (Qwen2-Audio): tokens are those of the
  // sound, whose convolutions see the frames after it. Else they see zeros. Not with pad_windows.
  bool masked_padding = false;
  // The sinusoidal positions are a tensor of the weights, which is never trained.
  bool stored_positions = false;
  int mel_bands = 80;             // values of a mel frame
  bool projector_frozen = false;  // the last layer likewise
};

// Slower rotations for samples longer than those of the first training.
struct RopeScaling {
  enum class Kind : std::uint8_t { kNone, kLinear, kLlama3 };
  Kind kind = Kind::kNone;
  double factor = 1.0;  // > 0: kLinear divides every frequency by it
  // kLlama3: wavelengths above original / low_freq_factor are divided, those below original /
  // high_freq_factor are not, between them by a part. Source: Llama 3.1's reference code.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct LlmSpec : BlockSpec {
  int vocab_size = 0;  // >= 1
  RopeScaling rope_scaling;
  // M-RoPE: of a head's pairs, as many rotate by time, by row and by column; their sum is half of
  // head_dim. Empty: all by the token's index. See multimodal_positions() in positions.h.
  std::vector<int> mrope_sections;
  // Which pairs these are: pair 1, 4, 7, … by row, 2, 5, 8, … by column (Qwen3-VL), instead of runs
  // one after another.
  bool mrope_interleaved = false;
  // DeepStack: after each of the first so many decoder layers, features of an earlier vision layer
  // are added to the tokens of the image. Until then they travel beside the hidden states.
  int deepstack = 0;
  std::int64_t max_tokens = 8192;    // longest sample, modality features included
  bool tie_word_embeddings = false;  // the output head's matrix is the token embedding's table
  int position_rows = 0;             // of a table of learned positions, added to tokens (Whisper)
  // > 0: a token attends to itself and the sliding_window - 1 before it, except in these decoders
  // (from 0, rising), which attend to all before it.
  int sliding_window = 0;
  std::vector<int> full_attention_layers;
  bool full_image_attention = false;  // tokens of an image also attend to those after them
  // Encoders' features are no tokens of the sequence: every decoder attends to them, after itself
  // (Whisper). Their width is `hidden`.
  bool cross_attention = false;
};

struct ModelSpec {
  std::string name;
  std::vector<EncoderSpec> encoders;  // may be empty: a text-only model
  LlmSpec llm;

  [[nodiscard]] int num_modules() const { return static_cast<int>(encoders.size()) + 1; }
  [[nodiscard]] int llm_module() const { return static_cast<int>(encoders.size()); }
};

// Layers of a module from input to output: embedding, transformers, projector or head.
int num_layers(const ModelSpec& model, int module);
// Encoder tokens that the projector merges into one LLM token: merge_size² patches, two of audio;
// without matrices one.
std::int64_t merged_tokens(const EncoderSpec& encoder);
// Numbers in a vision encoder's patch: 3 · temporal_patch_size · patch_size².
std::int64_t patch_values(const EncoderSpec& encoder);
// Tokens of a segment beside its patches: 1 with a class token, else 0.
int extra_tokens(const EncoderSpec& encoder);
// Width of a merged row, and between the projector's two matrices.
std::int64_t merged_width(const EncoderSpec& encoder);
std::int64_t projector_width(const EncoderSpec& encoder);
// What a row of a layer's result holds: hidden states or features, and beside them what DeepStack
// carries to a later layer. Not of the output head.
std::int64_t output_width(const ModelSpec& model, int module, int layer);
// Projections of an encoder's last layer: 1 without DeepStack. Level 0 is the encoder's own output.
int feature_levels(const EncoderSpec& encoder);
ProjectorSpec projector_of_level(const ProjectorSpec& projector, int level);
// Vision: whether heads are rotated, and whether every image gets the same size.
bool has_rotations(const EncoderSpec& encoder);
bool has_one_size(const EncoderSpec& encoder);
// Of such an image: pixels a side.
int image_side(const EncoderSpec& encoder);
// For a module's layer 1 … num_layers: whether it is a kWindowedTransformer.
bool attends_in_windows(const EncoderSpec& encoder, int layer);
bool attends_in_windows(const LlmSpec& llm, int layer);
LayerKind layer_kind(const ModelSpec& model, int module, int layer);
// Whether any of its parameters is trainable.
bool layer_trainable(const ModelSpec& model, int module, int layer);
// All numbers of parameters_of() (parameters.h), frozen or not. A tied output head counts its
// matrix like any other: a stage without the embedding holds a copy.
std::int64_t layer_parameters(const ModelSpec& model, int module, int layer);
std::string module_name(const ModelSpec& model, int module);    // encoder's name or "llm"
std::vector<std::string> module_names(const ModelSpec& model);  // [module]

// File: `name`, `[llm]`, and one table per encoder, called by the module's name; its key `modality`
// may be omitted if that name is `vision` or `audio`. Other keys are the fields above.
// Throws  InvalidInput with file, key path, what was given and what is allowed.
ModelSpec read_model(const std::filesystem::path& path);
ModelSpec model_from_json(const Json& document, const std::string& where);
Json to_json(const ModelSpec& model);
void validate(const ModelSpec& model, const std::string& where);
std::string digest(const ModelSpec& model);
// Digest of the layers' shapes only, without name, freezing, adapters, pixel, window and length
// limits, so that a profile stays valid when these change.
std::string shape_digest(const ModelSpec& model);

}  // namespace entrain
