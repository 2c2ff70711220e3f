#include "entrain/core/report/run_rows.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"

namespace entrain {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{4} << 20U;

template <class T>
std::optional<T> value_of(ObjectReader& reader, const char* key) {
  const Json* value = reader.find(key);
  return value == nullptr ? std::nullopt : std::optional(value_as<T>(*value, reader.where(key)));
}

std::vector<LaneRow> read_lanes(ObjectReader& reader) {
  std::vector<LaneRow> lanes;
  for (const auto& [value, where] : reader.array("lanes")) {
    ObjectReader entry(*value, where);
    LaneRow lane;
    lane.replica = entry.required<int>("replica");
    lane.lane = entry.required<int>("lane");
    lane.busy_s = entry.required<double>("busy_s");
    lane.predicted_busy_s = entry.required<double>("predicted_busy_s");
    lane.processor_s = value_of<double>(entry, "processor_s");
    lane.peak_bytes = value_of<std::int64_t>(entry, "peak_bytes");
    lane.predicted_peak_bytes = value_of<std::int64_t>(entry, "predicted_peak_bytes");
    lanes.push_back(lane);
  }
  return lanes;
}

RunRow read_row(ObjectReader& reader, std::int64_t step) {
  RunRow row;
  row.step = step;
  row.skipped = value_of<std::string>(reader, "skipped");
  row.detail = reader.optional<std::string>("detail", "");
  for (const auto& [key, number] : {std::pair("loss", &row.loss),
                                    std::pair("grad_norm", &row.grad_norm),
                                    std::pair("learning_rate", &row.learning_rate),
                                    std::pair("step_s", &row.step_s),
                                    std::pair("predicted_step_s", &row.predicted_step_s),
                                    std::pair("expected_step_s", &row.expected_step_s),
                                    std::pair("lower_bound_s", &row.lower_bound_s),
                                    std::pair("gap_s", &row.gap_s),
                                    std::pair("data_wait_s", &row.data_wait_s),
                                    std::pair("bubble", &row.bubble),
                                    std::pair("predicted_bubble", &row.predicted_bubble),
                                    std::pair("fed", &row.fed)}) {
    *number = value_of<double>(reader, key);
  }
  for (const auto& [key, count] : {std::pair("steps", &row.steps),
                                   std::pair("samples", &row.samples),
                                   std::pair("llm_tokens", &row.llm_tokens),
                                   std::pair("deferred", &row.deferred)}) {
    *count = value_of<std::int64_t>(reader, key);
  }
  if (reader.find("drift") != nullptr) {
    row.drift_warning = reader.object("drift").optional<std::string>("warning", "");
  }
  row.lanes = read_lanes(reader);
  return row;
}

// Closes a file at the end of a scope.
class File {
 public:
  explicit File(const std::filesystem::path& path)
      : handle_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    const int reason = errno;
    if (handle_ < 0 && (reason == ENOENT || reason == ENOTDIR)) {
      throw InvalidInput(fmt::format("'{}' does not exist", path.string()));
    }
    if (handle_ < 0) {
      throw SystemFailure(fmt::format("cannot read '{}': {}", path.string(), strerror(reason)));
    }
  }
  ~File() { ::close(handle_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] int handle() const { return handle_; }

 private:
  int handle_;
};

}  // namespace

RunRowsReader::RunRowsReader(std::filesystem::path path) : path_(std::move(path)) {}

RunRowsReader::News RunRowsReader::read() {
  const File file(path_);
  struct stat state {};
  if (::fstat(file.handle(), &state) != 0) {
    throw SystemFailure(fmt::format("cannot read '{}': {}", path_.string(), strerror(errno)));
  }
  if (!S_ISREG(state.st_mode)) {
    throw InvalidInput(fmt::format("'{}' is not a file of a run's metrics", path_.string()));
  }
  News news;
  if (offset_ > 0 &&
      (state.st_dev != device_ || state.st_ino != inode_ || state.st_size < offset_)) {
    news.replaced = true;
    offset_ = 0;
    line_ = 0;
    cut_.clear();
  }
  device_ = state.st_dev;
  inode_ = state.st_ino;
  std::string block(kBlockBytes, '\0');
  const ssize_t got = ::pread(file.handle(), block.data(), block.size(), offset_);
  if (got < 0) {
    throw SystemFailure(fmt::format("cannot read '{}': {}", path_.string(), strerror(errno)));
  }
  offset_ += got;
  news.more = offset_ < state.st_size && got > 0;
  std::string_view rest(block.data(), static_cast<std::size_t>(got));
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    cut_.append(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    add(cut_, news.rows);
    cut_.clear();
  }
  cut_.append(rest);
  news.rows.cut_lines = cut_.empty() ? 0 : 1;
  return news;
}

void RunRowsReader::add(std::string_view line, RunRows& rows) {
  ++line_;
  const std::string where = fmt::format("{} line {}", path_.string(), line_);
  const Json document = parse_json(line, where);
  if (!document.is_object()) {
    throw InvalidInput(fmt::format("{}: not a row of a run's metrics, but {}",
                                   where,
                                   document.is_array() ? "a list" : "a single value"));
  }
  const auto has = [&](const char* key) { return document.contains(key); };
  if (!has("step") || !(has("loss") || has("skipped") || has("validation_loss"))) {
    throw InvalidInput(fmt::format(
        "{}: not a row of a run's metrics: those have \"step\" and one of \"loss\", \"skipped\" "
        "and \"validation_loss\"; this line was written by another program or version",
        where));
  }
  ObjectReader reader(document, where);
  const auto step = reader.required<std::int64_t>("step");
  if (step < 0) {
    reader.fail("step", fmt::format("{} given; allowed: 0 or more", step));
  }
  if (has("validation_loss")) {
    rows.validations.push_back({step, value_of<double>(reader, "validation_loss")});
  } else {
    rows.steps.push_back(read_row(reader, step));
  }
}

RunRows read_run_rows(const std::filesystem::path& path) {
  RunRowsReader reader(path);
  RunRows all;
  for (bool more = true; more;) {
    RunRowsReader::News news = reader.read();
    if (news.replaced) {
      all = {};
    }
    std::ranges::move(news.rows.steps, std::back_inserter(all.steps));
    std::ranges::move(news.rows.validations, std::back_inserter(all.validations));
    all.cut_lines = news.rows.cut_lines;
    more = news.more;
  }
  return all;
}

}  // namespace entrain
