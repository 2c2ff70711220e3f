// The view of an index: how the sizes of its samples are distributed.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "entrain/core/base/at.h"
#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/report/distribution.h"
#include "entrain/core/report/report_views.h"
#include "entrain/core/report/statistics.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/workload.h"

namespace entrain {
namespace {

Json json_of(const Distribution& of, const std::vector<SampleSizes>& samples) {
  std::vector<double> sorted = of.values;
  std::sort(sorted.begin(), sorted.end());
  Json bins = Json::array();
  for (const Bin& bin : bins_of(of)) {
    bins.push_back(
        {{"from", bin.from}, {"to", bin.to}, {"count", bin.count}, {"range", range_of(bin, of)}});
  }
  const FarOut out = far_out(of);
  Json largest = Json::array();
  for (const std::size_t place : out.largest) {
    largest.push_back({{"id", samples[at(of.samples[place])].id}, {"value", of.values[place]}});
  }
  return {{"name", of.name},
          {"count", sorted.size()},
          {"total", std::accumulate(sorted.begin(), sorted.end(), 0.0)},
          {"p50", percentile(sorted, 0.5)},
          {"p90", percentile(sorted, 0.9)},
          {"p99", percentile(sorted, 0.99)},
          {"max", sorted.back()},
          {"bins", bins},
          {"far_out", {{"count", out.count}, {"largest", largest}}}};
}

struct IndexCounts {
  std::int64_t images = 0;
  std::int64_t clips = 0;
  std::int64_t videos = 0;
  std::int64_t estimated = 0;  // samples without exact lengths
  std::int64_t placeless = 0;  // without a place in a file
  std::int64_t too_long = 0;   // for the model
  std::int64_t lossless = 0;   // without a response
};

IndexCounts counts_of(const std::vector<SampleSizes>& samples, const ModelSpec* model) {
  IndexCounts counts;
  for (const SampleSizes& sample : samples) {
    counts.images += std::ssize(sample.images);
    counts.clips += std::ssize(sample.audio_seconds);
    counts.videos += std::ssize(sample.videos);
    counts.estimated += sample.response_tokens.has_value() ? 0 : 1;
    counts.placeless += sample.location.has_value() ? 0 : 1;
    counts.lossless +=
        sample.response_tokens.value_or(sample.response_tokens_estimate) == 0 ? 1 : 0;
    counts.too_long += model != nullptr && model->llm.max_tokens > 0 &&
                               sample_work(*model, sample).llm_tokens > model->llm.max_tokens
                           ? 1
                           : 0;
  }
  return counts;
}

void add_warnings(const IndexCounts& counts, const ModelSpec* model, Json& view) {
  const auto warn = [&](std::int64_t count, const std::string& what) {
    if (count > 0) {
      view["warnings"].push_back(concat(counted(count, "sample"), " ", what));
    }
  };
  warn(counts.estimated,
       "with estimated text lengths: good for studies; training refuses them, `entrain index` of "
       "the data itself counts tokens.");
  if (counts.estimated == 0) {
    warn(counts.placeless, "without a place in a file: training cannot read them.");
  }
  warn(counts.lossless, "without a token of response: nothing to learn from.");
  if (model != nullptr) {
    warn(counts.too_long,
         concat("longer than the ",
                format_count(model->llm.max_tokens),
                " tokens that the model takes (`entrain index --too-long`)."));
  }
}

}  // namespace

Json view_of_index(const std::filesystem::path& path,
                   const ModelSpec* model,
                   const std::vector<std::string>& ignored) {
  const Index index = read_index(path);
  const std::vector<SampleSizes>& samples = index.samples;
  if (samples.empty()) {
    throw InvalidInput(fmt::format("index '{}' has no samples", path.string()));
  }
  Json view = view_of_nothing(path.string());
  if (model != nullptr) {
    view["warnings"] = check_media(
        *model, samples, ignored, fmt::format("index '{}'", path.string()), kIgnoreOption);
  }
  const IndexCounts counts = counts_of(samples, model);
  Json distributions = Json::array();
  for (const Distribution& distribution : distributions_of(samples, model)) {
    distributions.push_back(json_of(distribution, samples));
  }
  view["facts"].push_back({"samples", format_count(std::ssize(samples))});
  std::vector<std::string> media;
  for (const auto& [count, name] : {std::pair(counts.images, "image"),
                                    std::pair(counts.clips, "clip"),
                                    std::pair(counts.videos, "video")}) {
    if (count > 0) {
      media.push_back(counted(count, name));
    }
    view["facts"].push_back({concat(name, "s"), format_count(count)});
  }
  std::string sentence = counted(std::ssize(samples), "sample");
  sentence += media.empty() ? " of text" : concat(" with ", join(media));
  const Json& length = model != nullptr ? distributions.back() : distributions.front();
  sentence += fmt::format("; {}: {} at the median, {} at the most.",
                          model != nullptr ? "LLM tokens" : "tokens of text",
                          format_count(length["p50"].get<std::int64_t>()),
                          format_count(length["max"].get<std::int64_t>()));
  view["headline"].push_back(sentence);
  view["facts"].push_back({"lengths", counts.estimated == 0 ? "exact" : "estimated"});
  view["facts"].push_back({"digest", digest(index)});
  add_warnings(counts, model, view);
  view["distributions"] = std::move(distributions);
  return view;
}

bool is_of_index(const Json& view) {
  return !view.at("distributions").is_null();
}

std::string other_data(const std::filesystem::path& index,
                       std::span<const std::filesystem::path> runs) {
  const std::string given = digest(read_index(index));
  std::vector<std::string> others;
  for (const std::filesystem::path& run : runs) {
    const std::filesystem::path file = run / "config.json";
    const Json config = read_json_file(file);
    ObjectReader data(ObjectReader(config, file.string()).object("data"));
    for (const char* key : {"train", "validation"}) {
      const auto path = data.optional<std::string>(key, "");
      if (!std::filesystem::is_regular_file(path)) {
        continue;
      }
      if (digest(read_index(path)) == given) {
        return {};
      }
      if (key == std::string_view("train")) {
        others.push_back(fmt::format("run '{}' ('{}')", run.string(), path));
      }
    }
  }
  return others.size() < runs.size() || runs.empty()
             ? std::string()
             : fmt::format("index '{}' is not the data of {}", index.string(), join(others));
}

}  // namespace entrain
