#include "entrain/engine/profiler/points.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/files.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;

MeasuredPoints some_points() {
  MeasuredPoint point;
  point.tokens = 64;
  point.attention_pairs = 1024;
  point.num_segments = 4;
  point.forward = {100, 101, 250, 99, 100};
  point.backward = {200, 201, 202, 203, 204};
  point.backward_input = {120, 121, 122, 123, 124};
  point.backward_halves = {210, 211, 212, 213, 214};
  MeasuredLayer layer;
  layer.module = "llm";
  layer.kind = LayerKind::kDecoder;
  layer.tensor_parallel = 2;
  layer.points = {point};
  layer.skipped = {"8192 tokens, segments 1: more time than is left"};
  layer.parameters = 12;
  return {{{"device", "cpu"}, {"tokens", {64, 128}}}, 1.5, {layer}};
}

TEST(MeasuredPoints, RoundTripWithOutliersMarked) {
  const Json document = to_json(some_points());
  const MeasuredPoints again = points_from_json(document, "p");
  EXPECT_EQ(to_json(again).dump(), document.dump());
  EXPECT_EQ(again.layers[0].points[0].forward, some_points().layers[0].points[0].forward);
  EXPECT_EQ(document["layers"][0]["points"][0]["outliers"], Json::array({2}));
  EXPECT_DOUBLE_EQ(document["layers"][0]["points"][0]["spread"].get<double>(), 0.01);
}

TEST(MeasuredPoints, RefuseImpossibleTimesAndOtherVersions) {
  const auto refused = [](const char* pointer, const Json& value) {
    Json document = to_json(some_points());
    document[Json::json_pointer(pointer)] = value;
    return error_of<InvalidInput>([&] { points_from_json(document, "p.json"); });
  };
  EXPECT_EQ(refused("/layers/0/points/0/forward_ns/1", 0),
            "p.json: layers[0].points[0].forward_ns[1]: 0 ns given; times are above 0");
  EXPECT_NE(refused("/layers/0/points/0/backward_ns/0", -5).find("-5 ns given"), std::string::npos);
  EXPECT_NE(refused("/layers/0/points/0/backward_ns", {1, 2}).find("as many repeats"),
            std::string::npos);
  EXPECT_NE(refused("/layers/0/kind", "decodr").find("'decodr' is not a layer kind"),
            std::string::npos);
  EXPECT_EQ(refused("/version", 1), "p.json: version: 1 given; this program reads 2");
}

TEST(ResumePoints, GoesOnUnderEqualSettingsOnly) {
  const oracle::TemporaryFolder folder;
  const Json settings = some_points().settings;
  EXPECT_TRUE(resume_points(folder.path() / "none.json", settings).layers.empty());
  EXPECT_TRUE(resume_points("", settings).layers.empty());
  const auto path = folder.write("p.json", to_json(some_points()).dump());
  EXPECT_EQ(resume_points(path, settings).layers.size(), 1U);
  Json other = settings;
  other["tokens"] = {64, 256};
  const std::string message = error_of<InvalidInput>([&] { resume_points(path, other); });
  EXPECT_NE(message.find("other settings: tokens [64,128], now [64,256]"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace entrain::engine
