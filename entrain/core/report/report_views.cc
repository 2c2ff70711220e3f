#include "entrain/core/report/report_views.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/output.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/version.h"
#include "entrain/core/report/step_view.h"
#include "entrain/core/report/table.h"

namespace entrain {
namespace {

constexpr int kWholePercent = 100;
constexpr const char* kAllowed =
    "a run's folder, its step.json, what `simulate --json` printed, or an index (CSV)";

void add_fact(Json& view, const std::string& name, const std::string& value) {
  view["facts"].push_back({name, value});
}

// By step, as `simulate --json` prints them; null of a single step, which is no curve.
Json curves_from(const Json& curves, const std::string& where) {
  ObjectReader reader(curves, where);
  const std::size_t steps = reader.array("step").size();
  for (const auto& [name, list] : curves.items()) {
    for (const auto& [value, place] : reader.array(name.c_str())) {
      if (!value->is_null() && !value->is_number()) {
        throw InvalidInput(concat(place, ": neither a number nor null"));
      }
    }
    if (list.size() != steps) {
      reader.fail(name.c_str(), concat(list.size(), " given; allowed: as many as steps, ", steps));
    }
  }
  return steps > 1 ? curves : Json();
}

// Of one row that `simulate --json` prints: figures, without a timeline.
Json view_of_case(const Json& row, const std::string& where) {
  ObjectReader reader(row, where);
  Json view = view_of_nothing(concat(
      reader.required<std::string>("policy"), " with ", reader.required<std::string>("schedule")));
  if (!row.contains("step_s") && reader.optional<std::int64_t>("refused", 0) > 0) {
    view["warnings"].push_back(
        concat("Refused: ", reader.optional<std::string>("reason", "nothing fits")));
    return view;
  }
  const double step_s = reader.required<double>("step_s");
  const double bound_s = reader.required<double>("lower_bound_s");
  view["headline"].push_back(
      fmt::format("The step is predicted to take {}, {:.2f} times its lower bound.",
                  format_seconds(step_s),
                  bound_s > 0 ? step_s / bound_s : 0.0));
  add_fact(view, "median step", format_seconds(step_s));
  add_fact(view, "95th percentile", format_seconds(reader.required<double>("step_p95_s")));
  add_fact(view, "lower bound", format_seconds(bound_s));
  add_fact(view, "over the best", fmt::format("{:.3f}", reader.required<double>("vs_best")));
  add_fact(
      view, "bubble", fmt::format("{:.0f} %", kWholePercent * reader.required<double>("bubble")));
  add_fact(view, "slots", fmt::format("{:.4g}", reader.required<double>("num_slots")));
  add_fact(
      view, "peak memory of a lane", format_bytes(reader.required<std::int64_t>("peak_bytes")));
  if (const Json* curves = reader.find("curves"); curves != nullptr) {
    view["steps"] = curves_from(*curves, reader.where("curves"));
  }
  if (const Json* causes = reader.find("gap_causes"); causes != nullptr) {
    ObjectReader shares(*causes, reader.where("gap_causes"));
    Json list = Json::array();
    double sum = 0;
    for (const auto& [name, share] : causes->items()) {
      const auto of_bound = shares.required<double>(name);
      sum += name == "in_bound" ? -of_bound : of_bound;
      if (name != "in_bound") {
        list.push_back({{"cause", name}, {"ns", std::llround(1e9 * bound_s * of_bound)}});
      }
    }
    // Causes are means over steps, and so is the step that they make up.
    view["gap"] = {{"step_ns", std::llround(1e9 * bound_s * (1 + sum))},
                   {"bound_ns", std::llround(1e9 * bound_s)},
                   {"causes", list}};
  }
  return view;
}

// Whether the file begins as a CSV with columns of an index does; gzip is looked into.
bool may_be_index(std::string_view content) {
  const std::string_view header = content.substr(0, content.find('\n'));
  return header.find("sample_id") != std::string_view::npos &&
         header.find("n_images") != std::string_view::npos;
}

Json views_of_document(const Json& document, const std::string& where) {
  if (document.is_object() && document.contains("timelines")) {
    return Json::array({view_of_step(document, where)});
  }
  if (document.is_object() && document.contains("num_slots") && document.contains("lanes")) {
    throw InvalidInput(
        concat(where, ": a plan, which `entrain plan --report` draws; a report is of ", kAllowed));
  }
  if (!document.is_object() || !document.contains("rows")) {
    throw InvalidInput(concat(where, ": JSON, but of something else; a report is of ", kAllowed));
  }
  ObjectReader reader(document, where);
  Json views = Json::array();
  for (const auto& [row, place] : reader.array("rows")) {
    views.push_back(view_of_case(*row, place));
  }
  if (views.empty()) {
    throw InvalidInput(concat(where, ": no rows"));
  }
  return views;
}

}  // namespace

Json view_of_nothing(const std::string& name) {
  return {{"name", name},
          {"headline", Json::array()},
          {"warnings", Json::array()},
          {"facts", Json::array()},
          {"steps", nullptr},
          {"timelines", Json::array()},
          {"gap", nullptr},
          {"balance", nullptr},
          {"lanes", Json::array()},
          {"plan", nullptr},
          {"drift", Json::array()},
          {"distributions", nullptr}};
}

Json views_of(const std::filesystem::path& path,
              const ModelSpec* model,
              const std::vector<std::string>& ignored) {
  if (path.filename() == "metrics.jsonl") {
    throw InvalidInput(
        fmt::format("'{}': name the run's folder, which has its plan, too", path.string()));
  }
  if (std::filesystem::is_directory(path)) {
    return Json::array({view_of_run(path)});
  }
  const std::string content = read_file(path);
  const std::size_t begin = content.find_first_not_of(" \t\r\n");
  const char first = begin == std::string::npos ? ' ' : content[begin];
  if (first == '{' || first == '[') {
    return views_of_document(parse_json(content, path.string()), path.string());
  }
  if (!may_be_index(content)) {
    throw InvalidInput(
        concat("'", path.string(), "' holds ", content_of(path), "; a report is of ", kAllowed));
  }
  return Json::array({view_of_index(path, model, ignored)});
}

Json view_of_step(Json step, const std::string& name) {
  ObjectReader reader(step, name);
  if (const int version = reader.required<int>("version"); version != kStepViewVersion) {
    reader.fail("version",
                fmt::format("{}; this program reads version {}", version, kStepViewVersion));
  }
  for (const char* key : {"headline", "facts", "timelines", "lanes"}) {
    reader.array(key);
  }
  Json view = view_of_nothing(name);
  for (const char* key : {"headline", "facts", "timelines", "gap", "balance", "lanes"}) {
    if (step.contains(key)) {
      view[key] = std::move(step[key]);
    }
  }
  return view;
}

Json view_of_plan(const Json& plan) {
  Json lanes = Json::array();
  int number = 0;
  for (const Json& lane : plan.at("lanes")) {
    Json stages = Json::array();
    std::string devices;
    for (const Json& ref : lane) {
      const Json& module = plan.at("modules").at(ref.at(0).get<std::string>());
      const Json& layers = module.at("stages").at(ref.at(1).get<std::size_t>());
      stages.push_back({{"module", ref.at(0)},
                        {"stage", ref.at(1)},
                        {"begin", layers.at(0)},
                        {"end", layers.at(1)}});
      devices = fmt::format("TP {}", module.at("tensor_parallel").get<int>());
      if (const int context = module.at("context_parallel").get<int>(); context > 1) {
        devices += fmt::format(" CP {}", context);
      }
    }
    const Json& limits = plan.at("limits");
    const auto limit =
        limits.contains("lane_bytes")
            ? limits["lane_bytes"].at(static_cast<std::size_t>(number)).get<std::int64_t>()
            : limits.at("bytes_per_lane").get<std::int64_t>();
    lanes.push_back({{"lane", number++},
                     {"stages", stages},
                     {"devices", devices},
                     {"state_bytes", nullptr},
                     {"peak_bytes", nullptr},
                     {"limit_bytes", limit > 0 ? Json(limit) : Json()}});
  }
  Json sentences = Json::array();
  const Json& certificate = plan.at("certificate");
  if (const double ratio = certificate.at("ratio").get<double>(); ratio > 0) {
    sentences.push_back(
        fmt::format("When it was made its step was simulated to take {}, {:.3f} times the lower "
                    "bound of {} over all plans that were searched.",
                    format_seconds(certificate.at("simulated_s").get<double>()),
                    ratio,
                    format_seconds(certificate.at("lower_bound_s").get<double>())));
    if (const int further = certificate.at("further_batches").get<int>(); further > 0) {
      sentences.push_back(
          fmt::format("{} further global batches were found to fit in memory.", further));
    }
  }
  return {{"lanes", lanes}, {"certificate", sentences}, {"runners_up", Json::array()}};
}

Json report_of_views(Json views, const std::string& title) {
  std::map<std::string, int> seen;
  for (Json& view : views) {
    const auto name = view.at("name").get<std::string>();
    if (const int before = seen[name]++; before > 0) {
      view["name"] = fmt::format("{} ({})", name, before + 1);
    }
  }
  return {{"made_by", made_by()}, {"title", title}, {"views", std::move(views)}};
}

}  // namespace entrain
