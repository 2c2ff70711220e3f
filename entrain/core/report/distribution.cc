#include "entrain/core/report/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/at.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/workload.h"

namespace entrain {
namespace {

// 12,345 or 1.25.
std::string number(double value) {
  return value >= 100 || value == std::floor(value)
             ? format_count(static_cast<std::int64_t>(std::llround(value)))
             : fmt::format("{:.3g}", value);
}

double share(const Bin& bin, const Distribution& of) {
  return static_cast<double>(bin.count) / static_cast<double>(of.values.size());
}

std::int64_t most(const std::vector<Bin>& bins) {
  std::int64_t result = 1;
  for (const Bin& bin : bins) {
    result = std::max(result, bin.count);
  }
  return result;
}

}  // namespace

std::vector<Distribution> distributions_of(const std::vector<SampleSizes>& samples,
                                           const ModelSpec* model) {
  std::vector<Distribution> all = {{"tokens of a sample's text", {}, {}},
                                   {"images of a sample", {}, {}},
                                   {"pixels of an image", {}, {}},
                                   {"seconds of a clip", {}, {}},
                                   {"seconds of a video", {}, {}},
                                   {"LLM tokens of a sample", {}, {}}};
  for (std::size_t row = 0; row < samples.size(); ++row) {
    const SampleSizes& sample = samples[row];
    const auto add = [&](std::size_t which, double value) {
      all[which].values.push_back(value);
      all[which].samples.push_back(static_cast<int>(row));
    };
    add(0,
        static_cast<double>(sample.prompt_tokens.value_or(sample.prompt_tokens_estimate) +
                            sample.response_tokens.value_or(sample.response_tokens_estimate)));
    if (!sample.images.empty()) {
      add(1, static_cast<double>(sample.images.size()));
    }
    for (const ImageSize& size : sample.images) {
      add(2, static_cast<double>(size.width) * size.height);
    }
    for (const double seconds : sample.audio_seconds) {
      add(3, seconds);
    }
    for (const VideoSize& video : sample.videos) {
      add(4, video.seconds);
    }
    if (model != nullptr) {
      add(5, static_cast<double>(sample_work(*model, sample).llm_tokens));
    }
  }
  std::erase_if(all, [](const Distribution& one) { return one.values.empty(); });
  return all;
}

std::vector<Bin> bins_of(const Distribution& distribution) {
  const auto bin_of = [](double value) {
    return value < 1 ? 0 : 1 + static_cast<int>(std::floor(std::log2(value)));
  };
  const auto [least, greatest] =
      std::minmax_element(distribution.values.begin(), distribution.values.end());
  if (least == distribution.values.end()) {
    return {};
  }
  const int first = bin_of(*least);
  std::vector<Bin> bins;
  for (int bin = first; bin <= bin_of(*greatest); ++bin) {
    bins.push_back({bin == 0 ? 0 : std::ldexp(1.0, bin - 1), std::ldexp(1.0, bin), 0});
  }
  for (const double value : distribution.values) {
    ++bins[at(bin_of(value) - first)].count;
  }
  return bins;
}

std::string range_of(const Bin& bin, const Distribution& of) {
  const bool whole = std::all_of(
      of.values.begin(), of.values.end(), [](double value) { return value == std::floor(value); });
  const double last = whole ? bin.to - 1 : bin.to;
  return last == bin.from ? number(bin.from)
                          : fmt::format("{} to {}", number(bin.from), number(last));
}

FarOut far_out(const Distribution& distribution) {
  constexpr double kTimes = 3;
  constexpr std::size_t kNamed = 5;
  const std::vector<double>& values = distribution.values;
  if (values.empty()) {
    return {};
  }
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return values[a] > values[b];
  });
  const double limit = kTimes * values[order[values.size() / 100]];
  const auto end = std::find_if(
      order.begin(), order.end(), [&](std::size_t place) { return values[place] <= limit; });
  FarOut result;
  result.count = end - order.begin();
  result.largest.assign(order.begin(),
                        std::min(end, order.begin() + std::min(kNamed, order.size())));
  return result;
}

std::string to_text(const Distribution& distribution, const std::vector<SampleSizes>& samples) {
  constexpr double kWidth = 40;
  const std::vector<Bin> bins = bins_of(distribution);
  std::size_t widest = 0;
  for (const Bin& bin : bins) {
    widest = std::max(widest, range_of(bin, distribution).size());
  }
  std::string text =
      fmt::format("{} ({})\n", distribution.name, format_count(std::ssize(distribution.values)));
  for (const Bin& bin : bins) {
    const double part = static_cast<double>(bin.count) / static_cast<double>(most(bins));
    const auto bar = static_cast<int>(std::ceil(kWidth * part));
    std::string drawn;
    for (int i = 0; i < bar; ++i) {
      drawn += "█";
    }
    text += fmt::format("  {:>{}}  {} {} ({:.1f} %)\n",
                        range_of(bin, distribution),
                        widest,
                        drawn,
                        format_count(bin.count),
                        100 * share(bin, distribution));
  }
  const FarOut out = far_out(distribution);
  if (out.count > 0) {
    std::vector<std::string> named;
    for (const std::size_t place : out.largest) {
      named.push_back(fmt::format("'{}' {}",
                                  samples[at(distribution.samples[place])].id,
                                  number(distribution.values[place])));
    }
    text += fmt::format("  far out, over three times the 99th percentile: {}, {}{}\n",
                        format_count(out.count),
                        join(named),
                        std::cmp_greater(out.count, named.size()) ? " …" : "");
  }
  return text;
}

std::string to_svg(const std::vector<Distribution>& distributions) {
  constexpr int kWidth = 720;
  constexpr int kLabel = 190;
  constexpr int kBar = 380;
  constexpr int kLine = 18;
  std::string body;
  int y = 10;
  for (const Distribution& one : distributions) {
    const std::vector<Bin> bins = bins_of(one);
    y += 2 * kLine;
    body += fmt::format("<text x=\"10\" y=\"{}\" class=\"name\">{} ({})</text>\n",
                        y,
                        one.name,
                        format_count(std::ssize(one.values)));
    for (const Bin& bin : bins) {
      y += kLine;
      const double width = kBar * static_cast<double>(bin.count) / static_cast<double>(most(bins));
      body += fmt::format(
          "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{}\" y=\"{}\" "
          "width=\"{:.1f}\" height=\"{}\"/><text x=\"{:.1f}\" y=\"{}\">{} ({:.1f} %)</text>\n",
          kLabel,
          y,
          range_of(bin, one),
          kLabel + 8,
          y - 12,
          width,
          kLine - 4,
          kLabel + 14 + width,
          y,
          format_count(bin.count),
          100 * share(bin, one));
    }
  }
  return fmt::format(
      "<svg data-entrain=\"index\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"13\">\n<style>text{{fill:#222}}"
      ".name{{font-weight:bold}}rect{{fill:#3b76c4}}@media(prefers-color-scheme:dark)"
      "{{text{{fill:#ddd}}rect{{fill:#6ea1e6}}}}</style>\n{2}</svg>\n",
      kWidth,
      y + kLine,
      body);
}

}  // namespace entrain
