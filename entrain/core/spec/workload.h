// From sizes to lengths: how many tokens and attention pairs a sample has in each module.
//
// Read first: sample_work(). The rules are those of the original processors, to the token; the
// engine checks its real tensors against them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"
#include "entrain/core/spec/video.h"
#include "entrain/core/spec/vision_sizes.h"

namespace entrain {

// One segment: an image or a tile of it, a temporal patch of a video, an audio window.
struct SegmentWork {
  std::int64_t tokens = 0;           // in the encoder, before merging
  std::int64_t attention_pairs = 0;  // tokens², of each tile
  std::int64_t llm_tokens = 0;       // features in the LLM's sequence
  // Patches of a vision segment's grid: rows * columns + extra_tokens() = tokens of each of its
  // canvas.tiles.count() tiles; 0 for audio.
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t window_pairs = 0;  // Σ tokens² over its windows, if the encoder has any
  FeatureCanvas canvas = {};      // kAnyResolution; else one tile
  bool operator==(const SegmentWork&) const = default;
};

struct SampleWork {
  std::vector<std::vector<SegmentWork>> segments;  // [encoder][segment]
  std::vector<std::vector<VideoWork>> videos;      // [encoder][video]; may be empty
  std::int64_t llm_tokens = 0;                     // text and features
  std::int64_t llm_attention_pairs = 0;            // llm_tokens² / 2, rounded down (causal)
  std::int64_t llm_window_pairs = 0;               // likewise within the LLM's sliding window
  std::int64_t target_tokens = 0;                  // tokens with loss
  bool operator==(const SampleWork&) const = default;
};

// Text: exact tokens if both counts are present, estimates otherwise.
// Image: a segment, or with tiling one for each tile (tile_segments()); tokens = patches after
//        smart_resize; merge_size² of them make an LLM token. With kAnyResolution a segment of
//        image_tiles(), of which the features are as in feature_canvas().
//        Attention windows: the grid cut into squares of window_size / patch_size patches from its
//        top left; those at its right and lower edge are smaller if it does not divide.
// Video: frames as in video_work(), by default ⌈seconds · frames_per_second⌉; two make a segment
//        (⌈frames / 2⌉ of them), which has the patches of one frame.
// Audio: mel frames = ⌈100 · seconds⌉, cut into windows of ⌈100 · window_seconds⌉; the second
//        convolution (stride 2, padding 1) leaves ⌈frames / 2⌉ of a window: its tokens. With
//        pad_windows every window has the tokens of a full one. LLM tokens = ⌊real tokens / 2⌋,
//        real meaning without padding: 30 s are 3,000 mel frames, 1,500 tokens, 750 LLM tokens.
// LLM:   with full_image_attention an image of n features has n² / 2 pairs more. With cross
//        attention features are no tokens of it, and every feature has llm_tokens + hidden pairs
//        more: as many FLOPs as its key and value take in each decoder are hidden pairs.
// Products within 1e-12 of a whole number count as whole (1.1 s are 110 mel frames). Modalities
// that the model has no encoder for are left out (their text remains). A vision encoder takes
// images first, then videos.
//
// Throws  InvalidInput naming the sample when a size is impossible.
SampleWork sample_work(const ModelSpec& model, const SampleSizes& sizes);

// What a segment is of: images are counted first, then videos, then clips.
struct SegmentPlace {
  std::size_t medium = 0;
  std::int64_t part = 0;  // tile, audio window or temporal patch
  bool operator==(const SegmentPlace&) const = default;
};

// Shapes  result: [segments of the encoder], in their order.
// Throws  InvalidInput as sample_work() does, but without the sample's name.
std::vector<SegmentPlace> segment_places(const EncoderSpec& encoder, const SampleSizes& sizes);

// Of a clip: ⌈100 · seconds⌉; of a full window of an audio encoder.
std::int64_t mel_frames(double seconds);
std::int64_t window_frames(const EncoderSpec& encoder);
// Tokens of a full window.
std::int64_t window_tokens(const EncoderSpec& encoder);
// Mel frames of a window that its tokens are computed from, if `real` of them hold sound: all of a
// padded one; with masked_padding up to one after the two of every token, which the last token's
// convolutions see.
std::int64_t input_frames(const EncoderSpec& encoder, std::int64_t real);
// Whether `rows` patches or mel frames are the input of a segment of so many tokens. Tiles of one
// size have a class token each.
bool fits_input(const EncoderSpec& encoder, std::int64_t rows, std::int64_t tokens);

// Attention pairs of a grid of patches cut into windows of `window` patches a side, from the top
// left. Requires  rows, columns >= 0; window >= 1.
std::int64_t window_pairs(std::int64_t rows, std::int64_t columns, std::int64_t window);

// The earliest token of the LLM's sequence at which a segment's features can begin: behind those of
// the images (or videos, or clips) of its encoder that are before it, which texts have in this
// order. Media of other encoders may be anywhere. So waiting for it is always sufficient.
//
// A segment belongs to the chunk with this token, even if its features extend into the next.
std::int64_t first_feature_token(const SampleWork& work, int encoder, int segment);

}  // namespace entrain
