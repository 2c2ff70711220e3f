#include "entrain/core/spec/model.h"

#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

constexpr const char* kModelToml = R"(
name = "small"

[vision]
num_layers = 2
hidden = 64
num_heads = 4
intermediate = 128
max_pixels = 200704
projector_frozen = true

[speech]
modality = "audio"
num_layers = 1
hidden = 32
num_heads = 2
intermediate = 48
pad_windows = true
frozen = true

[llm]
num_layers = 3
hidden = 96
num_heads = 6
num_kv_heads = 2
intermediate = 192
vocab_size = 264
)";

ModelSpec small_model() {
  return model_from_json(parse_toml(kModelToml, "small.toml"), "small.toml");
}

// The message for the file above after `--set change`.
std::string model_message_after(const std::string& change) {
  return error_of<InvalidInput>([&] {
    Json document = parse_toml(kModelToml, "small.toml");
    set_by_path(document, change);
    model_from_json(document, "small.toml");
  });
}

std::string message_without(const std::string& table, const std::string& key) {
  return error_of<InvalidInput>([&] {
    Json document = parse_toml(kModelToml, "small.toml");
    (table.empty() ? document : document[table]).erase(key);
    model_from_json(document, "small.toml");
  });
}

TEST(ReadModel, TakesFileOrderDefaultsAndGivenValues) {
  const auto path = std::filesystem::temp_directory_path() / "entrain-model-test.toml";
  write_file(path, kModelToml);
  const ModelSpec model = read_model(path);
  std::filesystem::remove(path);
  EXPECT_EQ(model.name, "small");
  ASSERT_EQ(model.encoders.size(), 2U);
  EXPECT_EQ(module_name(model, 0), "vision");
  EXPECT_EQ(module_name(model, 1), "speech");
  EXPECT_EQ(module_name(model, 2), "llm");
  EXPECT_EQ(model.encoders[0].modality, Modality::kVision);
  EXPECT_EQ(model.encoders[1].modality, Modality::kAudio);
  EXPECT_EQ(model.encoders[0].patch_size, 14);
  EXPECT_EQ(model.encoders[0].merge_size, 2);
  EXPECT_EQ(model.encoders[0].min_pixels, 3136);
  EXPECT_EQ(model.encoders[0].max_pixels, 200704);
  EXPECT_EQ(model.encoders[1].window_seconds, 30.0);
  EXPECT_TRUE(model.encoders[1].pad_windows);
  EXPECT_EQ(model.llm.head_dim, 16) << "hidden / num_heads";
  EXPECT_EQ(model.llm.rope_theta, 10000.0);
  EXPECT_EQ(model.llm.max_tokens, 8192);
  EXPECT_FALSE(model.llm.frozen);
}

TEST(ReadModel, AllowsATextOnlyModel) {
  Json document = parse_toml(kModelToml, "small.toml");
  document.erase("vision");
  document.erase("speech");
  const ModelSpec model = model_from_json(document, "small.toml");
  EXPECT_EQ(model.num_modules(), 1);
  EXPECT_EQ(model.llm_module(), 0);
  EXPECT_EQ(layer_kind(model, 0, 0), LayerKind::kTokenEmbedding);
}

TEST(ReadModel, NamesFileAndKeyOfEveryMistake) {
  EXPECT_EQ(model_message_after("vision.num_layer=3"),
            "small.toml: vision.num_layer: unknown key, did you mean 'num_layers'?");
  EXPECT_EQ(model_message_after("nam=1"), "small.toml: nam: unknown key, did you mean 'name'?");
  EXPECT_EQ(model_message_after("vision.hidden=\"wide\""),
            "small.toml: vision.hidden: \"wide\" is a string, but an integer is needed");
  EXPECT_EQ(model_message_after("vision.num_layers=0"),
            "small.toml: vision.num_layers: 0 given; allowed: 1 to 10000");
  EXPECT_EQ(model_message_after("vision.num_heads=5"),
            "small.toml: vision.hidden: 64 is not divisible by num_heads 5");
  EXPECT_EQ(model_message_after("llm.num_kv_heads=4"),
            "small.toml: llm.num_heads: 6 is not divisible by num_kv_heads 4");
  EXPECT_EQ(message_without("llm", "hidden"), "small.toml: llm.hidden: missing");
  EXPECT_EQ(message_without("", "llm"), "small.toml: llm: missing");
  EXPECT_EQ(message_without("", "name"), "small.toml: name: missing");
}

TEST(ReadModel, RefusesValuesOutOfRange) {
  for (const char* change : {"vision.num_heads=0",
                             "vision.num_heads=32",  // hidden / num_heads = 2
                             "vision.intermediate=0",
                             "vision.patch_size=0",
                             "vision.merge_size=0",
                             "vision.min_pixels=0",
                             "vision.min_pixels=200705",
                             "vision.max_pixels=783",
                             "vision.frames_per_second=0",
                             "vision.frames_per_second=-1.5",
                             "vision.default_frame_width=0",
                             "speech.window_seconds=0.0",
                             "speech.mel_bands=0",
                             "speech.masked_padding=true",  // beside pad_windows
                             "speech.key_bias=false",       // of one matrix for all
                             "llm.key_bias=false",          // without qkv_bias
                             "llm.num_layers=0",
                             "llm.num_heads=0",
                             "llm.num_kv_heads=0",
                             "llm.head_dim=15",
                             "llm.head_dim=-2",
                             "llm.intermediate=-1",
                             "llm.vocab_size=0",
                             "llm.rope_theta=0",
                             "llm.max_tokens=0",
                             "llm.hidden=2000000",
                             "llm.hidden=2147483648",  // no int
                             "llm.num_layers=1000000000",
                             "vision.num_layers=1000000000"}) {
    const std::string message = model_message_after(change);
    const std::string key = std::string(change).substr(0, std::string(change).find('.'));
    EXPECT_EQ(message.rfind("small.toml: " + key + ".", 0), 0U) << change << ": " << message;
  }
}

TEST(ReadModel, RefusesProductsThatNoIntegerHolds) {
  Json merged = parse_toml(kModelToml, "small.toml");
  set_by_path(merged, "vision.hidden=1048576");
  set_by_path(merged, "vision.merge_size=64");
  EXPECT_NE(error_of<InvalidInput>([&] {
              model_from_json(merged, "small.toml");
            }).find("small.toml: vision.merge_size: merge_size² * hidden is 4294967296"),
            std::string::npos);
  Json heads = parse_toml(kModelToml, "small.toml");
  set_by_path(heads, "llm.num_heads=1048576");
  set_by_path(heads, "llm.head_dim=1024");
  EXPECT_NE(error_of<InvalidInput>([&] {
              model_from_json(heads, "small.toml");
            }).find("small.toml: llm.head_dim: num_heads * head_dim is 1073741824"),
            std::string::npos);
  Json deep = parse_toml(kModelToml, "small.toml");
  set_by_path(deep, "llm.hidden=1048576");
  set_by_path(deep, "llm.intermediate=1048576");
  set_by_path(deep, "llm.num_heads=8");
  set_by_path(deep, "llm.num_kv_heads=8");
  set_by_path(deep, "llm.num_layers=10");
  EXPECT_EQ(layer_parameters(model_from_json(deep, "small.toml"), 2, 1) / 1'000'000'000, 7'696);
  set_by_path(deep, "llm.num_layers=10000");
  EXPECT_EQ(error_of<InvalidInput>([&] {
              model_from_json(deep, "small.toml");
            }).find("small.toml: the model has more than 1,000,000,000,000,000 parameters"),
            0U);
}

TEST(ReadModel, NeedsTheModalityOfOtherNames) {
  const std::string missing = message_without("speech", "modality");
  EXPECT_EQ(missing.rfind("small.toml: speech.modality: missing", 0), 0U) << missing;
  EXPECT_EQ(model_message_after("speech.modality=sound"),
            "small.toml: speech.modality: 'sound' is not a modality; allowed: vision, audio");
  Json document = parse_toml(kModelToml, "small.toml");
  document["vison"] = document["vision"];
  const std::string typo = error_of<InvalidInput>([&] { model_from_json(document, "small.toml"); });
  EXPECT_NE(typo.find("did you mean 'vision'?"), std::string::npos) << typo;
}

TEST(ReadModel, RefusesKeysOfTheOtherModality) {
  EXPECT_NE(model_message_after("vision.window_seconds=10.0").find("unknown key"),
            std::string::npos);
  EXPECT_NE(model_message_after("speech.patch_size=14").find("unknown key"), std::string::npos);
}

TEST(ReadModel, RefusesNamesThatCannotBeModules) {
  for (const char* name : {"Vision", "gap", "makespan_s", "2d", "a-b"}) {
    Json document = parse_toml(kModelToml, "small.toml");
    document[name] = document["speech"];
    const std::string message =
        error_of<InvalidInput>([&] { model_from_json(document, "small.toml"); });
    EXPECT_NE(message.find("cannot name an encoder"), std::string::npos) << message;
  }
  ModelSpec twice = small_model();
  twice.encoders[1].name = "vision";
  EXPECT_NE(error_of<InvalidInput>([&] { validate(twice, "m"); }).find("two encoders"),
            std::string::npos);
}

TEST(ModelSpec, ListsLayersFromInputToOutput) {
  const ModelSpec model = small_model();
  using K = LayerKind;
  const std::vector<std::vector<LayerKind>> expected = {
      {K::kPatchEmbedding, K::kEncoderTransformer, K::kEncoderTransformer, K::kProjector},
      {K::kAudioEmbedding, K::kEncoderTransformer, K::kProjector},
      {K::kTokenEmbedding, K::kDecoder, K::kDecoder, K::kDecoder, K::kOutputHead}};
  for (int module = 0; module < model.num_modules(); ++module) {
    std::vector<LayerKind> kinds;
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      kinds.push_back(layer_kind(model, module, layer));
    }
    EXPECT_EQ(kinds, expected[static_cast<std::size_t>(module)]) << module;
  }
  EXPECT_THROW(layer_kind(model, 0, 4), InternalError);
  EXPECT_THROW(layer_kind(model, 0, -1), InternalError);
  EXPECT_THROW(num_layers(model, 3), InternalError);
}

TEST(ModelSpec, AttendsWithinWindowsButInNamedLayers) {
  Json document = parse_toml(kModelToml, "small.toml");
  set_by_path(document, "vision.num_layers=3");
  set_by_path(document, "vision.window_size=56");
  set_by_path(document, "vision.full_attention_layers=[1]");
  const ModelSpec model = model_from_json(document, "m");
  EXPECT_EQ(model.encoders[0].window_size, 56);
  EXPECT_EQ(layer_kind(model, 0, 0), LayerKind::kPatchEmbedding);
  EXPECT_EQ(layer_kind(model, 0, 1), LayerKind::kWindowedTransformer);
  EXPECT_EQ(layer_kind(model, 0, 2), LayerKind::kEncoderTransformer);
  EXPECT_EQ(layer_kind(model, 0, 3), LayerKind::kWindowedTransformer);
  EXPECT_EQ(layer_kind(model, 0, 4), LayerKind::kProjector);
  EXPECT_EQ(layer_parameters(model, 0, 1), layer_parameters(model, 0, 2));
  EXPECT_EQ(digest(model_from_json(to_json(model), "again")), digest(model));
  EXPECT_NE(digest(model), digest(small_model()));
}

TEST(ReadModel, RefusesWindowsThatCannotBe) {
  EXPECT_EQ(model_message_after("vision.window_size=42"),
            "small.toml: vision.window_size: 42 is not divisible by patch_size * merge_size, 28");
  EXPECT_EQ(model_message_after("vision.full_attention_layers=[1]"),
            "small.toml: vision.full_attention_layers: given without window_size: every layer "
            "attends fully");
  Json document = parse_toml(kModelToml, "small.toml");
  set_by_path(document, "vision.window_size=56");
  set_by_path(document, "vision.full_attention_layers=[1, 0]");
  EXPECT_EQ(error_of<InvalidInput>([&] { model_from_json(document, "m"); }),
            "m: vision.full_attention_layers: 0 given; allowed: 2 to 1");
}

TEST(ModelSpec, FreezesByModuleAndProjector) {
  ModelSpec model = small_model();
  const auto trainable = [&](int module) {
    std::string flags;
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      flags += layer_trainable(model, module, layer) ? 't' : 'f';
    }
    return flags;
  };
  EXPECT_EQ(trainable(0), "tttf");
  EXPECT_EQ(trainable(1), "fft");
  EXPECT_EQ(trainable(2), "ttttt");
  model.llm.frozen = true;
  EXPECT_EQ(trainable(2), "fffff");
}

// By hand: d = 96 is the LLM's width.
TEST(ModelSpec, CountsParametersFromShapes) {
  const ModelSpec model = small_model();
  EXPECT_EQ(layer_parameters(model, 0, 0), 3 * 14 * 14 * 64);
  EXPECT_EQ(layer_parameters(model, 0, 1), 2 * 64 + 64 * 192 + 64 * 64 + 3 * 64 * 128);
  EXPECT_EQ(layer_parameters(model, 0, 3), 64 + 256 * 256 + 256 + 256 * 96 + 96);
  EXPECT_EQ(layer_parameters(model, 1, 0), 80 * 3 * 32 + 32 + 32 * 3 * 32 + 32);
  EXPECT_EQ(layer_parameters(model, 1, 2), 32 + 64 * 64 + 64 + 64 * 96 + 96);
  EXPECT_EQ(layer_parameters(model, 2, 0), 264 * 96);
  EXPECT_EQ(layer_parameters(model, 2, 1), 2 * 96 + 96 * 96 + 2 * 96 * 32 + 96 * 96 + 3 * 96 * 192);
  EXPECT_EQ(layer_parameters(model, 2, 4), 96 + 264 * 96);
}

TEST(ModelSpec, RoundTripsThroughJson) {
  const ModelSpec model = small_model();
  const Json document = to_json(model);
  EXPECT_EQ(to_json(model_from_json(document, "again")).dump(), document.dump());
  EXPECT_EQ(digest(model_from_json(document, "again")), digest(model));
}

Json deepstack_document() {
  Json document = parse_toml(kModelToml, "small.toml");
  document["vision"]["num_layers"] = 3;
  document["vision"]["deepstack_layers"] = {0, 1};
  document["llm"]["deepstack"] = 2;
  return document;
}

// Vision layers: patches, three transformers, projector. LLM: tokens, three decoders, head.
TEST(OutputWidth, GrowsByTheFeaturesThatTravelBesideTheRows) {
  const ModelSpec usual = small_model();
  const ModelSpec model = model_from_json(deepstack_document(), "m");
  const auto widths = [](const ModelSpec& of, int module, int layers) {
    std::vector<std::int64_t> result;
    for (int layer = 0; layer < layers; ++layer) {
      result.push_back(output_width(of, module, layer));
    }
    return result;
  };
  EXPECT_EQ(widths(usual, 0, 4), (std::vector<std::int64_t>{64, 64, 64, 96}));
  EXPECT_EQ(widths(usual, 2, 4), (std::vector<std::int64_t>{96, 96, 96, 96}));
  EXPECT_EQ(widths(model, 0, 5), (std::vector<std::int64_t>{64, 128, 192, 192, 288}));
  EXPECT_EQ(widths(model, 1, 3), (std::vector<std::int64_t>{32, 32, 96}));  // speech
  EXPECT_EQ(widths(model, 2, 4), (std::vector<std::int64_t>{288, 192, 96, 96}));
}

TEST(ReadModel, ChecksDeepStackOfBothModules) {
  const auto message_after = [](const char* change) {
    return error_of<InvalidInput>([&] {
      Json document = deepstack_document();
      set_by_path(document, change);
      model_from_json(document, "m");
    });
  };
  EXPECT_NE(message_after("llm.deepstack=1").find("llm.deepstack is 1"), std::string::npos);
  EXPECT_NE(message_after("llm.num_layers=1").find("llm.deepstack: 2"), std::string::npos);
  EXPECT_NE(message_after("vision.deepstack_layers=[1, 0]").find("deepstack_layers: 0"),
            std::string::npos);
  EXPECT_NE(message_after("vision.deepstack_layers=[0, 3]").find("deepstack_layers: 3"),
            std::string::npos);
}

// Images of 28 patches a side, 392 pixels, cut into tiles; videos in pairs of frames.
Json tiled_document() {
  Json document = parse_toml(kModelToml, "small.toml");
  document["vision"]["table_side"] = 28;
  document["vision"]["resize_filter"] = "lanczos";
  document["vision"]["tiling"] = {{"kind", "longest_edge"}, {"longest_edge", 1568}};
  return document;
}

Json canvases_document() {
  Json document = tiled_document();
  document["vision"]["merge_size"] = 1;
  document["vision"]["unused_pixels"] = 6;
  document["vision"]["tiling"] = {
      {"kind", "any_resolution"}, {"canvases", {{1, 2}, {3, 1}}}, {"single_image", true}};
  return document;
}

Json video_document() {
  Json document = parse_toml(kModelToml, "small.toml");
  document["vision"]["temporal_patch_size"] = 2;
  document["vision"]["video"] = {{"sampling", "stride"}, {"tokens_per_second", 2.0}};
  return document;
}

TEST(ReadModel, TakesTilingAndVideo) {
  const ModelSpec tiled = model_from_json(tiled_document(), "m");
  EXPECT_EQ(tiled.encoders[0].resize_filter, ResizeFilter::kLanczos);
  EXPECT_EQ(tiled.encoders[0].tiling.kind, TilingSpec::Kind::kLongestEdge);
  EXPECT_EQ(tiled.encoders[0].tiling.longest_edge, 1568);
  EXPECT_TRUE(tiled.encoders[0].tiling.split);
  const ModelSpec canvases = model_from_json(canvases_document(), "m");
  EXPECT_EQ(canvases.encoders[0].tiling.canvases,
            (std::vector<std::array<int, 2>>{{1, 2}, {3, 1}}));
  EXPECT_TRUE(canvases.encoders[0].tiling.single_image);
  EXPECT_EQ(image_side(canvases.encoders[0]), 28 * 14 + 6);
  const ModelSpec video = model_from_json(video_document(), "m");
  EXPECT_EQ(video.encoders[0].video.sampling, VideoSpec::Sampling::kStride);
  EXPECT_EQ(video.encoders[0].video.max_frames, 768);
  for (const ModelSpec& model : {tiled, canvases, video}) {
    EXPECT_EQ(digest(model_from_json(to_json(model), "again")), digest(model));
  }
}

TEST(ReadModel, RefusesTilingAndVideoThatCannotBe) {
  const auto message = [](Json document, const char* change) {
    return error_of<InvalidInput>([&] {
      set_by_path(document, change);
      model_from_json(document, "m");
    });
  };
  const auto expect_said = [](const std::string& found, const char* said) {
    EXPECT_NE(found.find(said), std::string::npos) << found;
  };
  expect_said(message(tiled_document(), "vision.tiling.max_tiles=9"),
              "vision.tiling.max_tiles: unknown key");
  expect_said(message(tiled_document(), "vision.tiling.kind=spiral"),
              "'spiral' given; allowed: none, longest_edge, best_canvas");
  expect_said(message(tiled_document(), "vision.tiling.longest_edge=5000"),
              "vision.tiling.longest_edge: 5000 given; allowed: 1 to 4096");
  expect_said(message(tiled_document(), "vision.table_side=2"),
              "vision.tiling.longest_edge: 1568 pixels are up to 3250 tiles of 28");
  expect_said(message(tiled_document(), "vision.table_side=0"), "vision.tiling: given");
  expect_said(message(tiled_document(), "vision.center_crop=true"), "vision.tiling: given");
  Json canvas = tiled_document();
  canvas["vision"]["tiling"] = {{"kind", "best_canvas"}, {"min_tiles", 4}};
  expect_said(message(canvas, "vision.tiling.max_tiles=3"),
              "vision.tiling.min_tiles: 4 given; allowed: 1 to 3");
  expect_said(message(canvas, "vision.tiling.max_tiles=4000"), "allowed: 1 to 1023");
  expect_said(message(canvases_document(), "vision.merge_size=2"), "any_resolution given");
  expect_said(message(canvases_document(), "vision.tiling.canvases=[]"), "canvases: [] given");
  expect_said(message(canvases_document(), "vision.tiling.canvases=[[1, 2, 3]]"),
              "[1,2,3] given; [rows, columns] is needed");
  expect_said(message(canvases_document(), "vision.tiling.canvases=[[40, 40]]"),
              "vision.tiling.canvases: 40 given; allowed: 1 to 25");
  Json wide = canvases_document();
  wide["vision"]["patch_size"] = 1024;
  wide["vision"]["max_pixels"] = 2'000'000;
  expect_said(message(wide, "vision.tiling.canvases=[[1, 600]]"),
              "the longer side in pixels is 17206800; allowed: up to 16777216");
  expect_said(message(canvases_document(), "vision.unused_pixels=14"), "allowed: 0 to 13");
  expect_said(message(video_document(), "vision.unused_pixels=1"), "allowed: 0 to 0");
  expect_said(message(video_document(), "vision.video.frame=3"), "unknown key");
  expect_said(message(video_document(), "vision.temporal_patch_size=1"),
              "vision.video.sampling: allowed with");
  expect_said(message(video_document(), "vision.video.max_frames=2"), "vision.video.max_frames: 2");
  expect_said(message(video_document(), "vision.video.min_pixels=9000000"),
              "vision.video.min_pixels: 9000000");
}

TEST(ModelDigest, SeesEveryField) {
  const std::string base = digest(small_model());
  for (const char* change : {"name=other",
                             "vision.num_layers=3",
                             "vision.min_pixels=784",
                             "vision.frozen=true",
                             "vision.resize_filter=lanczos",
                             "vision.video.max_frames=16",
                             "speech.window_seconds=15.0",
                             "speech.mel_bands=128",
                             "speech.stored_positions=true",
                             "speech.projector.average=true",
                             "llm.max_tokens=100",
                             "llm.rope_theta=5e5",
                             "llm.tie_word_embeddings=true"}) {
    Json document = parse_toml(kModelToml, "small.toml");
    set_by_path(document, change);
    EXPECT_NE(digest(model_from_json(document, "m")), base) << change;
  }
}

TEST(ShapeDigest, SeesShapesAlone) {
  const auto digest_after = [](const char* change) {
    Json document = parse_toml(kModelToml, "small.toml");
    set_by_path(document, change);
    return shape_digest(model_from_json(document, "m"));
  };
  const std::string base = shape_digest(small_model());
  for (const char* change : {"name=other",
                             "vision.frozen=true",
                             "vision.projector_frozen=false",
                             "llm.frozen=true",
                             "vision.max_pixels=100352",
                             "vision.resize_filter=lanczos",
                             "vision.video.max_frames=16",
                             "speech.pad_windows=false",
                             "llm.max_tokens=100"}) {
    EXPECT_EQ(digest_after(change), base) << change;
  }
  for (const char* change : {"vision.num_layers=3",
                             "vision.hidden=128",
                             "vision.patch_size=7",
                             "speech.intermediate=64",
                             "speech.mel_bands=128",
                             "speech.stored_positions=true",
                             "speech.projector.average=true",
                             "llm.num_kv_heads=3",
                             "llm.head_dim=32",
                             "llm.vocab_size=512"}) {
    EXPECT_NE(digest_after(change), base) << change;
  }
}

TEST(NameOf, SpellsKindsAndModalities) {
  const std::set<std::string_view> names(layer_kind_names().begin(), layer_kind_names().end());
  EXPECT_EQ(names.size(), 8U) << "each kind once";
  EXPECT_EQ(name_of(LayerKind::kPatchEmbedding), "patch_embedding");
  EXPECT_EQ(name_of(LayerKind::kAudioEmbedding), "audio_embedding");
  EXPECT_EQ(name_of(LayerKind::kEncoderTransformer), "encoder_transformer");
  EXPECT_EQ(name_of(LayerKind::kWindowedTransformer), "windowed_transformer");
  EXPECT_EQ(name_of(LayerKind::kProjector), "projector");
  EXPECT_EQ(name_of(LayerKind::kTokenEmbedding), "token_embedding");
  EXPECT_EQ(name_of(LayerKind::kDecoder), "decoder");
  EXPECT_EQ(name_of(LayerKind::kOutputHead), "output_head");
  EXPECT_EQ(name_of(Modality::kVision), "vision");
  EXPECT_EQ(name_of(Modality::kAudio), "audio");
}

}  // namespace
}  // namespace entrain
