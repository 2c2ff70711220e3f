#include "entrain/core/dataset/index_reports.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

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

ReadProgress::ReadProgress(const std::vector<std::filesystem::path>& files)
    : progress_("indexing", total_bytes(files), ProgressUnit::kBytes) {}

void ReadProgress::begin_file(const std::filesystem::path& path) {
  begin_ += size_;
  size_ = file_bytes(path);
}

void ReadProgress::reach(std::int64_t part, std::int64_t whole) {
  const double share = static_cast<double>(part) / static_cast<double>(whole);
  progress_.reach(begin_ + static_cast<std::int64_t>(static_cast<double>(size_) * share));
}

}  // namespace entrain
