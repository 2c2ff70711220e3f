#include "entrain/core/spec/profile.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/text.h"

namespace entrain {
namespace {

constexpr int kProfileVersion = 1;

LayerKind read_kind(ObjectReader& reader) {
  const auto given = reader.required<std::string>("kind");
  const std::vector<std::string> names(layer_kind_names().begin(), layer_kind_names().end());
  const auto found = std::ranges::find(names, given);
  if (found == names.end()) {
    reader.fail("kind", fmt::format("'{}' is not a layer kind{}", given, suggestion(given, names)));
  }
  return static_cast<LayerKind>(found - names.begin());
}

// A measurement that was no number becomes null in JSON, which otherwise counts as a missing key.
void refuse_nulls(const Json& value, const std::string& where, const std::string& path) {
  if (value.is_null()) {
    throw InvalidInput(fmt::format(
        "{}: {}: null given; a number is needed (null means NaN or infinity)", where, path));
  }
  std::size_t position = 0;
  for (const auto& [key, element] : value.items()) {
    const std::string inner = value.is_array() ? fmt::format("{}[{}]", path, position++)
                              : path.empty()   ? key
                                               : fmt::format("{}.{}", path, key);
    if (element.is_structured() || element.is_null()) {
      refuse_nulls(element, where, inner);
    }
  }
}

// A cost is a finite number that is not negative.
double cost(ObjectReader& reader, const std::string& key, double fallback) {
  const double value = reader.optional(key, fallback);
  if (!(std::isfinite(value) && value >= 0)) {
    reader.fail(key, fmt::format("{} given; a finite number of at least 0 is needed", value));
  }
  return value;
}

CostCurve read_curve(ObjectReader reader) {
  CostCurve curve;
  curve.per_pair_ns = cost(reader, "per_pair_ns", 0);
  curve.per_token_ns = cost(reader, "per_token_ns", 0);
  curve.per_launch_ns = cost(reader, "per_launch_ns", 0);
  curve.fit_error = cost(reader, "fit_error", 0);
  curve.fit_median = cost(reader, "fit_median", 0);
  reader.finish();
  return curve;
}

Json curve_json(const CostCurve& curve) {
  return {{"per_pair_ns", curve.per_pair_ns},
          {"per_token_ns", curve.per_token_ns},
          {"per_launch_ns", curve.per_launch_ns},
          {"fit_error", curve.fit_error},
          {"fit_median", curve.fit_median}};
}

MeasuredRange read_range(ObjectReader reader) {
  MeasuredRange range;
  range.least_tokens = cost(reader, "least_tokens", 0);
  range.most_tokens = cost(reader, "most_tokens", 0);
  range.most_pairs = cost(reader, "most_pairs", 0);
  reader.finish();
  return range;
}

bool holds_times(const CostCurve& curve) {
  return curve.per_pair_ns + curve.per_token_ns + curve.per_launch_ns > 0;
}

LayerProfile read_layer(ObjectReader reader) {
  LayerProfile layer;
  layer.module = reader.required<std::string>("module");
  layer.kind = read_kind(reader);
  layer.tensor_parallel = reader.optional("tensor_parallel", 1);
  layer.context_parallel = reader.optional("context_parallel", 1);
  layer.forward = read_curve(reader.object("forward"));
  layer.backward_input = read_curve(reader.object("backward_input"));
  layer.backward_weight = read_curve(reader.object("backward_weight"));
  layer.split = read_curve(reader.optional_object("split"));
  layer.recompute = read_curve(reader.optional_object("recompute"));
  layer.activation_bytes_per_token = cost(reader, "activation_bytes_per_token", 0);
  layer.output_bytes_per_token = cost(reader, "output_bytes_per_token", 0);
  layer.parameter_bytes = cost(reader, "parameter_bytes", 0);
  layer.optimizer_bytes = cost(reader, "optimizer_bytes", 0);
  layer.range = read_range(reader.optional_object("range"));
  layer.spread = cost(reader, "spread", 0);
  reader.finish();
  return layer;
}

// Measured-only values come after the rest, if they were measured.
void add_measured(const LayerProfile& layer, Json& document) {
  if (holds_times(layer.split)) {
    document["split"] = curve_json(layer.split);
  }
  if (holds_times(layer.recompute)) {
    document["recompute"] = curve_json(layer.recompute);
  }
  const auto add = [&](const char* key, double value) {
    if (value > 0) {
      document[key] = value;
    }
  };
  add("parameter_bytes", layer.parameter_bytes);
  add("optimizer_bytes", layer.optimizer_bytes);
  if (layer.range.known()) {
    document["range"] = {{"least_tokens", layer.range.least_tokens},
                         {"most_tokens", layer.range.most_tokens},
                         {"most_pairs", layer.range.most_pairs}};
  }
  add("spread", layer.spread);
}

Json layer_json(const LayerProfile& layer) {
  Json document = {{"module", layer.module},
                   {"kind", name_of(layer.kind)},
                   {"tensor_parallel", layer.tensor_parallel},
                   {"context_parallel", layer.context_parallel},
                   {"forward", curve_json(layer.forward)},
                   {"backward_input", curve_json(layer.backward_input)},
                   {"backward_weight", curve_json(layer.backward_weight)},
                   {"activation_bytes_per_token", layer.activation_bytes_per_token},
                   {"output_bytes_per_token", layer.output_bytes_per_token}};
  add_measured(layer, document);
  return document;
}

// Tensor and context parallelism.
using Degrees = std::pair<int, int>;

Degrees degrees_of(const LayerProfile& layer) {
  return {layer.tensor_parallel, layer.context_parallel};
}

std::string text_of(const Degrees& degrees) {
  return fmt::format("tensor_parallel {}, context_parallel {}", degrees.first, degrees.second);
}

// In rising order; with a kind, only those of that kind.
std::set<Degrees> degrees_of_module(const Profile& profile,
                                    const std::string& module,
                                    std::optional<LayerKind> kind = std::nullopt) {
  std::set<Degrees> result;
  for (const LayerProfile& layer : profile.layers) {
    if (layer.module == module && layer.kind == kind.value_or(layer.kind)) {
      result.insert(degrees_of(layer));
    }
  }
  return result;
}

std::string no_entry(const std::string& module, LayerKind kind, const Degrees& degrees) {
  return fmt::format(
      "no entry for layer kind {} of module '{}' at {}", name_of(kind), module, text_of(degrees));
}

[[noreturn]] void refuse(const std::string& where, const std::string& message) {
  throw InvalidInput(fmt::format("{}: {}", where, message));
}

void check_layer(const LayerProfile& layer, const std::string& where) {
  const std::string name = fmt::format("{} of '{}'", name_of(layer.kind), layer.module);
  if (layer.tensor_parallel < 1 || layer.context_parallel < 1) {
    refuse(where,
           fmt::format("{}: {} given; at least 1 is needed", name, text_of(degrees_of(layer))));
  }
  const auto check = [&](const char* key, double value) {
    if (!(std::isfinite(value) && value >= 0)) {
      refuse(where,
             fmt::format(
                 "{}: {} {} given; a finite number of at least 0 is needed", name, key, value));
    }
  };
  for (const CostCurve* curve : {&layer.forward,
                                 &layer.backward_input,
                                 &layer.backward_weight,
                                 &layer.split,
                                 &layer.recompute}) {
    check("per_pair_ns", curve->per_pair_ns);
    check("per_token_ns", curve->per_token_ns);
    check("per_launch_ns", curve->per_launch_ns);
  }
  if (!holds_times(layer.forward)) {
    refuse(where, fmt::format("{}: the forward takes no time; a cost above 0 is needed", name));
  }
  check("activation_bytes_per_token", layer.activation_bytes_per_token);
  check("output_bytes_per_token", layer.output_bytes_per_token);
}

}  // namespace

const LayerProfile& find_layer(const Profile& profile,
                               const std::string& module,
                               LayerKind kind,
                               int tensor_parallel,
                               int context_parallel) {
  const Degrees degrees{tensor_parallel, context_parallel};
  for (const LayerProfile& layer : profile.layers) {
    if (layer.kind == kind && degrees_of(layer) == degrees && layer.module == module) {
      return layer;
    }
  }
  std::vector<std::string> held;
  for (const Degrees& other : degrees_of_module(profile, module, kind)) {
    held.push_back(fmt::format("{} × {}", other.first, other.second));
  }
  throw InvalidInput(fmt::format(
      "the profile of '{}' has {}; {}",
      profile.device,
      no_entry(module, kind, degrees),
      held.empty() ? "it has none at all"
                   : fmt::format("it has tensor × context {} (a profile holds the degrees that "
                                 "it was made for and that divide heads, key and value heads, "
                                 "MLP and vocabulary)",
                                 join(held))));
}

Profile read_profile(const std::filesystem::path& path) {
  return profile_from_json(read_json_file(path), path.string());
}

Profile profile_from_json(const Json& document, const std::string& where) {
  refuse_nulls(document, where, "");
  if (document.contains("replicas") && !document.contains("device")) {
    throw InvalidInput(where + ": a plan; a profile is needed (entrain profile -o profile.json)");
  }
  ObjectReader reader(document, where);
  reader.check_version(kProfileVersion);
  Profile profile;
  profile.device = reader.required<std::string>("device");
  reader.optional("machine", std::string());  // see profile_machine()
  profile.dtype = reader.optional("dtype", profile.dtype);
  profile.source = reader.required<std::string>("source");
  if (profile.source != "measured" && profile.source != "analytic") {
    reader.fail("source", fmt::format("'{}' given; allowed: measured, analytic", profile.source));
  }
  profile.model_digest = reader.optional("model_digest", std::string());
  profile.command = reader.optional("command", std::string());
  profile.software = reader.optional("software", std::string());
  profile.threads = reader.optional("threads", profile.threads);
  if (profile.threads < 1) {
    reader.fail("threads", fmt::format("{} given; at least 1 is needed", profile.threads));
  }
  reader.at("layers");
  for (const auto& [layer, layer_where] : reader.array("layers")) {
    profile.layers.push_back(read_layer(ObjectReader(*layer, layer_where)));
  }
  ObjectReader link = reader.optional_object("link");
  const auto latency = link.optional<std::int64_t>("latency_ns", 0);
  if (latency < 0) {
    link.fail("latency_ns", fmt::format("{} given; at least 0 is needed", latency));
  }
  profile.link.latency = std::chrono::nanoseconds(latency);
  profile.link.bytes_per_second = cost(link, "bytes_per_second", 0);
  link.finish();
  profile.reduce_bytes_per_second = cost(reader, "reduce_bytes_per_second", 0);
  profile.optimizer_ns_per_parameter = cost(reader, "optimizer_ns_per_parameter", 0);
  reader.finish();
  return profile;
}

Json to_json(const Profile& profile) {
  Json layers = Json::array();
  for (const LayerProfile& layer : profile.layers) {
    layers.push_back(layer_json(layer));
  }
  return {{"version", kProfileVersion},
          {"device", profile.device},
          {"dtype", profile.dtype},
          {"source", profile.source},
          {"model_digest", profile.model_digest},
          {"command", profile.command},
          {"software", profile.software},
          {"threads", profile.threads},
          {"layers", layers},
          {"link",
           {{"latency_ns", profile.link.latency.count()},
            {"bytes_per_second", profile.link.bytes_per_second}}},
          {"reduce_bytes_per_second", profile.reduce_bytes_per_second},
          {"optimizer_ns_per_parameter", profile.optimizer_ns_per_parameter}};
}

void validate(const Profile& profile, const ModelSpec& model, const std::string& where) {
  if (!profile.model_digest.empty() && profile.model_digest != shape_digest(model)) {
    refuse(key_path(where, "model_digest"),
           fmt::format("the profile was made for layers with other shapes than model '{}' "
                       "({} given, {} needed); make a new one",
                       model.name,
                       profile.model_digest,
                       shape_digest(model)));
  }
  const std::string layers = key_path(where, "layers");
  std::set<std::tuple<std::string, LayerKind, Degrees>> seen;
  for (const LayerProfile& layer : profile.layers) {
    check_layer(layer, layers);
    if (!seen.emplace(layer.module, layer.kind, degrees_of(layer)).second) {
      refuse(layers,
             fmt::format("two entries for layer kind {} of module '{}' at {}",
                         name_of(layer.kind),
                         layer.module,
                         text_of(degrees_of(layer))));
    }
  }
  for (int module = 0; module < model.num_modules(); ++module) {
    const std::string name = module_name(model, module);
    std::set<Degrees> needed = degrees_of_module(profile, name);
    if (needed.empty()) {
      needed.emplace(1, 1);
    }
    for (const Degrees& degrees : needed) {
      for (int layer = 0; layer < num_layers(model, module); ++layer) {
        const LayerKind kind = layer_kind(model, module, layer);
        if (!seen.contains({name, kind, degrees})) {
          refuse(layers, no_entry(name, kind, degrees));
        }
      }
    }
  }
}

}  // namespace entrain
