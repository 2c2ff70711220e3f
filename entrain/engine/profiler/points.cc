#include "entrain/engine/profiler/points.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"

#include "entrain/engine/profiler/statistics.h"

namespace entrain::engine {
namespace {

constexpr int kVersion = 2;

std::vector<double> read_times(ObjectReader& reader, const std::string& key) {
  std::vector<double> times;
  for (const auto& [value, where] : reader.array(key)) {
    times.push_back(value_as<double>(*value, where));
    if (!(std::isfinite(times.back()) && times.back() > 0)) {
      throw InvalidInput(concat(where, ": ", times.back(), " ns given; times are above 0"));
    }
  }
  return times;
}

MeasuredPoint read_point(ObjectReader reader) {
  MeasuredPoint point;
  point.tokens = reader.required<double>("tokens");
  point.attention_pairs = reader.required<double>("attention_pairs");
  point.num_segments = reader.required<std::int64_t>("segments");
  point.forward = read_times(reader, "forward_ns");
  point.backward = read_times(reader, "backward_ns");
  point.backward_input = read_times(reader, "backward_input_ns");
  point.backward_halves = read_times(reader, "backward_halves_ns");
  point.recompute = read_times(reader, "recompute_ns");
  reader.find("spread");
  reader.find("outliers");
  reader.finish();
  if (point.backward.size() != point.forward.size() ||
      point.backward_input.size() != point.forward.size() ||
      point.backward_halves.size() != point.forward.size()) {
    reader.fail("backward_ns", "needs as many repeats as forward_ns");
  }
  return point;
}

MeasuredLayer read_layer(ObjectReader reader) {
  MeasuredLayer layer;
  layer.module = reader.required<std::string>("module");
  const auto kind = reader.required<std::string>("kind");
  const auto names = layer_kind_names();
  const auto found = std::ranges::find(names, kind);
  if (found == names.end()) {
    reader.fail("kind", concat("'", kind, "' is not a layer kind"));
  }
  layer.kind = static_cast<LayerKind>(found - names.begin());
  layer.tensor_parallel = reader.required<int>("tensor_parallel");
  layer.complete = reader.required<bool>("complete");
  layer.activation_bytes_per_token = reader.required<double>("activation_bytes_per_token");
  layer.output_bytes_per_token = reader.required<double>("output_bytes_per_token");
  layer.parameter_bytes = reader.required<double>("parameter_bytes");
  layer.parameters = reader.required<std::int64_t>("parameters");
  for (const auto& [point, where] : reader.array("points")) {
    layer.points.push_back(read_point(ObjectReader(*point, where)));
  }
  layer.skipped = reader.list<std::string>("skipped");
  reader.finish();
  return layer;
}

// Times, preceded by a summary for readers of the file.
Json point_json(const MeasuredPoint& point) {
  Json document = {{"tokens", point.tokens},
                   {"attention_pairs", point.attention_pairs},
                   {"segments", point.num_segments},
                   {"forward_ns", point.forward},
                   {"backward_ns", point.backward},
                   {"backward_input_ns", point.backward_input},
                   {"backward_halves_ns", point.backward_halves}};
  if (!point.recompute.empty()) {
    document["recompute_ns"] = point.recompute;
  }
  if (!point.forward.empty()) {
    document["spread"] = relative_spread(point.forward);
    Json marked = Json::array();
    const std::vector<char> outlier = outliers(point.forward);
    for (std::size_t i = 0; i < outlier.size(); ++i) {
      if (outlier[i] != 0) {
        marked.push_back(i);
      }
    }
    document["outliers"] = marked;  // positions in forward_ns
  }
  return document;
}

}  // namespace

Json to_json(const MeasuredPoints& points) {
  Json layers = Json::array();
  for (const MeasuredLayer& layer : points.layers) {
    Json measured = Json::array();
    for (const MeasuredPoint& point : layer.points) {
      measured.push_back(point_json(point));
    }
    layers.push_back({{"module", layer.module},
                      {"kind", name_of(layer.kind)},
                      {"tensor_parallel", layer.tensor_parallel},
                      {"complete", layer.complete},
                      {"activation_bytes_per_token", layer.activation_bytes_per_token},
                      {"output_bytes_per_token", layer.output_bytes_per_token},
                      {"parameter_bytes", layer.parameter_bytes},
                      {"parameters", layer.parameters},
                      {"points", measured},
                      {"skipped", layer.skipped}});
  }
  return {{"version", kVersion},
          {"settings", points.settings},
          {"seconds", points.seconds},
          {"layers", layers}};
}

MeasuredPoints points_from_json(const Json& document, const std::string& where) {
  ObjectReader reader(document, where);
  reader.check_version(kVersion);
  MeasuredPoints points;
  points.settings = reader.at("settings");
  points.seconds = reader.required<double>("seconds");
  for (const auto& [layer, layer_where] : reader.array("layers")) {
    points.layers.push_back(read_layer(ObjectReader(*layer, layer_where)));
  }
  reader.finish();
  return points;
}

MeasuredPoints resume_points(const std::filesystem::path& path, const Json& settings) {
  if (path.empty() || !std::filesystem::exists(path)) {
    return {settings, 0, {}};
  }
  MeasuredPoints points = points_from_json(read_json_file(path), path.string());
  for (const auto& [key, value] : settings.items()) {
    if (!points.settings.contains(key) || points.settings.at(key) != value) {
      const Json held = points.settings.value(key, Json());
      throw InvalidInput(concat("'",
                                path.string(),
                                "' holds the points of an unfinished profile with other settings: ",
                                key,
                                " ",
                                held.dump(),
                                ", now ",
                                value.dump(),
                                "; use those settings, or remove the file to start again"));
    }
  }
  return points;
}

}  // namespace entrain::engine
