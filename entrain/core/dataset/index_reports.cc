#include "entrain/core/dataset/index_reports.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/spec/video.h"

namespace entrain {
namespace {

// 0 for a path that is not a file; reading it reports that.
std::int64_t file_bytes(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

std::int64_t total_bytes(const std::vector<std::filesystem::path>& files) {
  std::int64_t total = 0;
  for (const std::filesystem::path& file : files) {
    total += file_bytes(file);
  }
  return total;
}

}  // namespace

void Refusals::stop_if_any() const {
  if (ids.empty()) {
    return;
  }
  std::string message = "samples are refused:";
  for (const auto& [reason, names] : ids) {
    message +=
        fmt::format(" {} ({}): '{}'",
                    reason,
                    names.size(),
                    join(std::span(names).first(std::min<std::size_t>(3, names.size())), "', '"));
    message += names.size() > 3 ? " …;" : ";";
  }
  throw InvalidInput(message + " leave them out or truncate them (--too-long, --empty-response)");
}

ReadProgress::ReadProgress(const std::string& title,
                           const std::vector<std::filesystem::path>& files)
    : progress_(title, total_bytes(files), ProgressUnit::kBytes) {}

void ReadProgress::begin_file(const std::filesystem::path& path) {
  begin_ += size_;
  size_ = file_bytes(path);
}

void ReadProgress::reach(std::int64_t part, std::int64_t whole) {
  const double share = static_cast<double>(part) / static_cast<double>(whole);
  progress_.reach(begin_ + static_cast<std::int64_t>(static_cast<double>(size_) * share));
}

void summarise(const std::vector<SampleSizes>& samples,
               std::vector<std::int64_t> llm_tokens,
               IndexSummary& summary) {
  std::vector<std::int64_t> text;
  std::vector<std::int64_t> images;
  std::vector<std::int64_t> pixels;
  std::vector<std::int64_t> milliseconds;
  for (const SampleSizes& sample : samples) {
    text.push_back(sample.prompt_tokens.value_or(sample.prompt_tokens_estimate) +
                   sample.response_tokens.value_or(sample.response_tokens_estimate));
    images.push_back(static_cast<std::int64_t>(sample.images.size()));
    for (const ImageSize& size : sample.images) {
      pixels.push_back(std::int64_t{size.width} * size.height);
    }
    summary.videos += std::ssize(sample.videos);
    summary.text_only +=
        sample.images.empty() && sample.audio_seconds.empty() && sample.videos.empty() ? 1 : 0;
    for (const double seconds : sample.audio_seconds) {
      milliseconds.push_back(std::llround(seconds * 1e3));
    }
  }
  summary.rows = static_cast<std::int64_t>(samples.size());
  summary.text_tokens = percentiles(std::move(text));
  summary.images = percentiles(std::move(images));
  summary.pixels = percentiles(std::move(pixels));
  summary.audio_milliseconds = percentiles(std::move(milliseconds));
  if (!llm_tokens.empty()) {
    summary.llm_tokens = percentiles(std::move(llm_tokens));
  }
}

void note_videos(const ModelSpec& model,
                 const std::vector<SampleSizes>& samples,
                 IndexSummary& summary) {
  const bool videos = std::any_of(samples.begin(), samples.end(), [](const SampleSizes& sample) {
    return !sample.videos.empty();
  });
  for (const EncoderSpec& encoder : model.encoders) {
    if (videos && encoder.modality == Modality::kVision && !reads_videos(encoder)) {
      summary.notes.push_back(fmt::format(
          "the videos can be studied, not trained: encoder '{}' has sampling \"rate\", which "
          "knows "
          "only lengths ([vision.video] sampling = \"stride\" or \"spread\", docs/models.md)",
          encoder.name));
    }
  }
}

std::string to_string(const IndexSummary& summary) {
  std::string out =
      fmt::format("{}, {}, {}{}{}\n",
                  counted(summary.rows, "sample"),
                  counted(summary.images.total, "image"),
                  counted(summary.audio_milliseconds.count, "audio clip"),
                  summary.videos == 0 ? "" : ", " + counted(summary.videos, "video"),
                  summary.text_only == 0 || summary.text_only == summary.rows
                      ? ""
                      : fmt::format("; {} of text only", counted(summary.text_only, "sample")));
  const auto line = [&](std::string_view name, const Percentiles& values) {
    if (values.count > 0) {
      out += fmt::format("  {:<24} p50 {:>9}   p90 {:>9}   p99 {:>9}   max {:>9}\n",
                         name,
                         format_count(values.p50),
                         format_count(values.p90),
                         format_count(values.p99),
                         format_count(values.max));
    }
  };
  line("images per sample", summary.images);
  line("pixels per image", summary.pixels);
  line("milliseconds per clip", summary.audio_milliseconds);
  line("text tokens per sample", summary.text_tokens);
  if (summary.llm_tokens) {
    line("LLM tokens per sample", *summary.llm_tokens);
  }
  out += fmt::format("  left out {}, truncated {}\n",
                     format_count(std::ssize(summary.left_out)),
                     format_count(summary.truncated));
  for (const auto& [reason, count] : summary.reasons) {
    out += fmt::format("  {}: {}\n", reason, format_count(count));
  }
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(kShown, summary.left_out.size()); ++i) {
    out += fmt::format("    '{}': {}\n", summary.left_out[i].id, summary.left_out[i].reason);
  }
  if (summary.left_out.size() > kShown) {
    out += fmt::format("    and {} more; --json lists all\n",
                       format_count(static_cast<std::int64_t>(summary.left_out.size() - kShown)));
  }
  if (summary.scattered > 0) {
    out += fmt::format(
        "  members of other samples lie between those of {}: they are read more slowly "
        "(tar "
        "--sort=name makes them neighbours)\n",
        counted(summary.scattered, "sample"));
  }
  for (const auto& [extension, count] : summary.ignored_members) {
    out += fmt::format("  members ignored, {}: {}\n", extension, format_count(count));
  }
  return out;
}

}  // namespace entrain
