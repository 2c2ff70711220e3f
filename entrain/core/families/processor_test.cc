#include "entrain/core/families/processor.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/families/family.h"
#include "entrain/core/spec/video.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/hf_folders.h"
#include "tests/oracle/shards.h"

namespace entrain {
namespace {

using oracle::expect_refused;
using oracle::tiny_qwen_audio_config;
using oracle::tiny_qwen_config;

TEST(Processor, OfAudioHasToBeWhispersWithTheModelsWindows) {
  const EncoderSpec audio =
      hf_model_from_json(tiny_qwen_audio_config(), "config.json").model.encoders[0];
  const Json good = {{"chunk_length", 0.4},
                     {"feature_extractor_type", "WhisperFeatureExtractor"},
                     {"feature_size", 128},
                     {"hop_length", 160},
                     {"n_fft", 400},
                     {"n_samples", 6400},
                     {"nb_max_frames", 40},
                     {"padding_side", "right"},
                     {"padding_value", 0.0},
                     {"processor_class", "Qwen2AudioProcessor"},
                     {"return_attention_mask", true},
                     {"sampling_rate", 16000}};
  read_audio_processor(good, "preprocessor_config.json", audio);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, Json>>{{"feature_size", 80},
                                                 {"chunk_length", 30},
                                                 {"nb_max_frames", 3000},
                                                 {"hop_length", 320},
                                                 {"n_fft", 512},
                                                 {"sampling_rate", 8000},
                                                 {"padding_side", "left"},
                                                 {"dither", 1e-4},
                                                 {"do_normalize", true},
                                                 {"feature_extractor_type", "Other"},
                                                 {"loudness", 1}}) {
    Json bad = good;
    bad[key] = value;
    expect_refused([&] { read_audio_processor(bad, "preprocessor_config.json", audio); }, {key});
  }
}

TEST(Processor, GivesSizesMeanAndDeviation) {
  EncoderSpec vision = hf_model_from_json(tiny_qwen_config(), "config.json").model.encoders[0];
  EXPECT_DOUBLE_EQ(vision.pixel_mean[0], kClipMean[0]);
  read_processor({{"min_pixels", 3136},
                  {"max_pixels", 100352},
                  {"image_mean", {0.1, 0.2, 0.3}},
                  {"resample", 3},
                  {"patch_size", 14},
                  {"rescale_factor", 0.00392156862745098},
                  {"image_processor_type", "Qwen2VLImageProcessor"}},
                 "preprocessor_config.json",
                 vision);
  EXPECT_EQ(vision.max_pixels, 100352);
  EXPECT_DOUBLE_EQ(vision.pixel_mean[2], 0.3);
}

// A vision encoder of one size, 364 pixels.
EncoderSpec square_encoder() {
  EncoderSpec vision;
  vision.patch_size = 14;
  vision.table_side = 26;
  return vision;
}

// SmolVLM-256M's file, with our size of a tile.
Json idefics3_processor() {
  return {{"do_convert_rgb", true},
          {"do_image_splitting", true},
          {"do_normalize", true},
          {"do_pad", true},
          {"do_rescale", true},
          {"do_resize", true},
          {"image_mean", {0.5, 0.5, 0.5}},
          {"image_processor_type", "Idefics3ImageProcessor"},
          {"image_std", {0.5, 0.5, 0.5}},
          {"max_image_size", {{"longest_edge", 364}}},
          {"processor_class", "Idefics3Processor"},
          {"resample", 1},
          {"rescale_factor", 0.00392156862745098},
          {"size", {{"longest_edge", 2048}}},
          {"video_sampling", {{"fps", 1}, {"max_frames", 64}}}};
}

TEST(Processor, CutsTilesOfIdefics3) {
  EncoderSpec vision = square_encoder();
  Json document = idefics3_processor();
  read_processor(document, "p.json", vision, TilingSpec::Kind::kLongestEdge);
  EXPECT_EQ(vision.tiling.kind, TilingSpec::Kind::kLongestEdge);
  EXPECT_EQ(vision.tiling.longest_edge, 2048);
  EXPECT_TRUE(vision.tiling.split);
  EXPECT_EQ(vision.resize_filter, ResizeFilter::kLanczos);
  document["do_image_splitting"] = false;
  read_processor(document, "p.json", vision, TilingSpec::Kind::kLongestEdge);
  EXPECT_FALSE(vision.tiling.split);
  for (const auto& [change, said] : std::vector<std::pair<Json, std::string>>{
           {{{"max_image_size", {{"longest_edge", 512}}}},
            "p.json: max_image_size: tiles of 512 pixels given; the model's images have 364"},
           {{{"size", {{"height", 364}}}}, "size"},
           {{{"resample", 2}}, "resample: 2 given; allowed: 1 (Lanczos), 3 (bicubic)"},
           {{{"do_center_crop", true}}, "do_center_crop"},
           {{{"crop_to_patches", true}}, "crop_to_patches"},
           {{{"tile_overlap", 8}}, "tile_overlap"}}) {
    Json bad = idefics3_processor();
    bad.update(change);
    EncoderSpec spoiled = square_encoder();
    expect_refused([&] { read_processor(bad, "p.json", spoiled, TilingSpec::Kind::kLongestEdge); },
                   {said});
  }
}

TEST(Processor, CutsTilesOfGotOcr2) {
  // InternVL3's file; its processor cuts tiles whatever the file says.
  Json document = {{"crop_to_patches", false},
                   {"do_pad", nullptr},
                   {"max_patches", 6},
                   {"min_patches", 2},
                   {"processor_class", "InternVLProcessor"},
                   {"resample", 3},
                   {"size", {{"height", 364}, {"width", 364}}}};
  const auto read = [&] {
    EncoderSpec vision = square_encoder();
    read_processor(document, "p.json", vision, TilingSpec::Kind::kBestCanvas);
    return vision;
  };
  EXPECT_EQ(read().tiling.kind, TilingSpec::Kind::kBestCanvas);
  EXPECT_EQ(read().tiling.min_tiles, 2);
  EXPECT_EQ(read().tiling.max_tiles, 6);
  EXPECT_EQ(read().resize_filter, ResizeFilter::kBicubic);
  document.erase("processor_class");
  EXPECT_EQ(read().tiling.kind, TilingSpec::Kind::kNone);
  document["crop_to_patches"] = true;
  EXPECT_EQ(read().tiling.kind, TilingSpec::Kind::kBestCanvas);
  document["size"]["width"] = 448;
  expect_refused(read, {"size.width: 448"});
}

// LLaVA-NeXT's file: tiles of the model's canvases, which nothing resizes or crops again.
TEST(Processor, CutsTilesOfTheModelsCanvases) {
  EncoderSpec vision = square_encoder();
  vision.merge_size = 1;
  vision.tiling.kind = TilingSpec::Kind::kAnyResolution;
  vision.tiling.canvases = {{1, 2}, {2, 1}};
  const Json document = {{"aspect_ratio_setting", "anyres"},
                         {"crop_size", {{"height", 364}, {"width", 364}}},
                         {"do_center_crop", true},
                         {"do_pad", true},
                         {"image_grid_pinpoints", {{364, 728}, {728, 364}}},
                         {"image_mean", kClipMean},
                         {"image_processor_type", "LlavaNextImageProcessor"},
                         {"resample", 3},
                         {"size", {{"shortest_edge", 364}}}};
  EncoderSpec read = vision;
  read_processor(document, "p.json", read, TilingSpec::Kind::kAnyResolution);
  EXPECT_FALSE(read.center_crop);
  EXPECT_DOUBLE_EQ(read.pixel_mean[0], kClipMean[0]);
  EXPECT_EQ(read.tiling, vision.tiling);
  for (const auto& [key, value, said] : std::vector<std::tuple<std::string, Json, std::string>>{
           {"image_grid_pinpoints",
            {{364, 728}},
            "the model's config.json has those of [[1,2],[2,1]] tiles"},
           {"image_processor_type",
            "LlavaOnevisionImageProcessor",
            "'LlavaOnevisionImageProcessor' given; allowed: LlavaNextImageProcessor"},
           {"image_grid_pinpoints", {{364, 700}}, "multiples of 364"},
           {"size", {{"shortest_edge", 336}}, "size.shortest_edge: 336"},
           {"aspect_ratio_setting", "pad", "aspect_ratio_setting"},
           {"crop_to_patches", true, "crop_to_patches"}}) {
    Json spoiled = document;
    spoiled[key] = value;
    expect_refused(
        [&] { read_processor(spoiled, "p.json", read, TilingSpec::Kind::kAnyResolution); },
        {"p.json", said});
  }
}

TEST(Processor, GivesLimitsAndSamplingOfVideos) {
  const EncoderSpec vision =
      hf_model_from_json(tiny_qwen_config(), "config.json").model.encoders[0];
  EXPECT_EQ(vision.video.sampling, VideoSpec::Sampling::kStride);
  EncoderSpec read = vision;
  Json document = {{"size", {{"shortest_edge", 4096}, {"longest_edge", 25165824}}},
                   {"image_mean", kClipMean},
                   {"image_std", kClipDeviation},
                   {"min_frames", 6},
                   {"fps", 1.5},
                   {"video_processor_type", "Qwen2VLVideoProcessor"}};
  read_video_processor(document, "v.json", read);
  EXPECT_EQ(read.video.min_pixels, 4096);
  EXPECT_EQ(read.video.max_pixels, 25165824);
  EXPECT_EQ(read.video.min_frames, 6);
  EXPECT_EQ(read.frames_per_second, 1.5);
  EXPECT_EQ(read.max_pixels, vision.max_pixels);
  read_video_processor({{"do_sample_frames", false}}, "v.json", read);
  EXPECT_EQ(read.video.sampling, VideoSpec::Sampling::kAll);
  for (const auto& [bad, said] : std::vector<std::pair<Json, std::string>>{
           {{{"cap_pixels_per_frame", true}}, "cap_pixels_per_frame"},
           {{{"image_mean", {0.5, 0.5, 0.5}}}, "v.json: image_mean"},
           {{{"num_frames", 8}}, "num_frames"},
           {{{"patch_size", 16}}, "patch_size"},
           {{{"speed", 2}}, "speed"}}) {
    EncoderSpec spoiled = vision;
    expect_refused([&, &bad = bad] { read_video_processor(bad, "v.json", spoiled); }, {said});
  }
}

TEST(Processor, RefusesWhatItCannotDo) {
  const EncoderSpec vision =
      hf_model_from_json(tiny_qwen_config(), "config.json").model.encoders[0];
  for (const auto& [document, said] :
       std::vector<std::pair<Json, std::string>>{{{{"resample", 2}}, "resample: 2"},
                                                 {{{"do_normalize", false}}, "do_normalize"},
                                                 {{{"patch_size", 16}}, "patch_size"},
                                                 {{{"do_image_splitting", true}}, "splitting"},
                                                 {{{"crop_to_patches", true}}, "crop_to_patches"},
                                                 {{{"rescale_factor", 0.5}}, "rescale_factor"},
                                                 {{{"image_mean", {0.5}}}, "image_mean"},
                                                 {{{"sharpen", 1}}, "sharpen"}}) {
    EncoderSpec spoiled = vision;
    expect_refused(
        [&, &document = document] {
          read_processor(document, "preprocessor_config.json", spoiled);
        },
        {said});
  }
}

TEST(Processor, MayBePartOfAnotherFile) {
  const oracle::TemporaryFolder folder;
  folder.write("config.json", tiny_qwen_config().dump());
  const auto limit = [&] { return read_hf_model(folder.path()).model.encoders[0].max_pixels; };
  folder.write("preprocessor_config.json", Json{{"max_pixels", 200704}}.dump());
  EXPECT_EQ(limit(), 200704);
  folder.write("processor_config.json", Json{{"processor_class", "Qwen2_5_VLProcessor"}}.dump());
  EXPECT_EQ(limit(), 200704);
  folder.write("processor_config.json", Json{{"image_processor", {{"max_pixels", 100352}}}}.dump());
  EXPECT_EQ(limit(), 100352) << "as transformers reads it";
  folder.write("processor_config.json", Json{{"image_processor", {{"loudness", 1}}}}.dump());
  expect_refused([&] { limit(); }, {"processor_config.json: image_processor.loudness"});
}

TEST(LoadModel, TakesTheProcessorBesideAConfig) {
  const oracle::TemporaryFolder folder;
  folder.write("config.json", tiny_qwen_config().dump());
  const auto limit = [&] {
    return load_model(folder.path() / "config.json").encoders[0].max_pixels;
  };
  const auto own = limit();
  folder.write("preprocessor_config.json", Json{{"max_pixels", 200704}}.dump());
  EXPECT_NE(own, 200704);
  EXPECT_EQ(limit(), 200704);
}

}  // namespace
}  // namespace entrain
