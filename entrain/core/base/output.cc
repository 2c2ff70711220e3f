#include "entrain/core/base/output.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <span>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHeadBytes = 64U << 10U;

// The beginning of a file of a kind, without blanks, and further content of its first line.
struct Mark {
  OutputKind kind;
  std::string_view name;
  std::string_view begin;
  std::array<std::string_view, 2> first_line = {};
};

constexpr std::array kMarks = {
    Mark{OutputKind::kIndex, "an index (CSV)", "sample_id,n_images,image_sizes,"},
    Mark{OutputKind::kSegmentCosts,
         "costs of segments (CSV)",
         "sample_id,module,segment,tokens,forward_s,backward_s"},
    Mark{OutputKind::kCosts, "costs of samples (CSV)", "sample_id,", {"_forward_s", "_backward_s"}},
    Mark{OutputKind::kCases, "cases of `simulate` (CSV)", "policy,schedule,step,"},
    Mark{OutputKind::kPlan, "a plan (JSON)", "{\"version\":N,\"replicas\":"},
    Mark{OutputKind::kAssignment, "an assignment (JSON)", "{\"version\":N,\"policy\":"},
    Mark{OutputKind::kProfile, "a profile (JSON)", "{\"version\":N,\"device\":"},
    Mark{OutputKind::kPoints, "measured points (JSON)", "{\"version\":N,\"settings\":"},
    Mark{OutputKind::kTrace,
         "a trace (JSON)",
         "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"label\":"},
    Mark{OutputKind::kTorchOrder, "an order for torch (CSV)", "0F0,"},
    Mark{OutputKind::kAnswers, "answers (JSON lines)", "{\"id\":", {"\"expected\":", "\"given\":"}},
    Mark{OutputKind::kWeights,
         "weights written by Entrain (safetensors)",
         "{\"__metadata__\":{\"format\":\"pt\",\"writer\":\"entrain\"}"},
    Mark{OutputKind::kTokens, "tokens of an index", "etokens1"},
    Mark{OutputKind::kPage,
         "a page of `audit` or a report (HTML)",
         "<!doctypehtml>",
         {"<title>Entrain"}},
    Mark{OutputKind::kPlot, "a plot of `index` (SVG)", "<svgdata-entrain="},
    Mark{OutputKind::kEpochOrder,
         "an order of `export` (JSON lines)",
         "{\"step\":N,\"microbatch\":N,\"rank\":"},
    Mark{OutputKind::kNumpy, "an array (numpy)", "\x93", {"NUMPY"}},
    Mark{OutputKind::kPaths, "paths (a JSON list)", "[\"", {"\"]"}},
    Mark{OutputKind::kFeedKey, "a key of `feed`", "#entrainfeedkey"},
    Mark{OutputKind::kExposition, "figures of `train` (Prometheus)", "#HELPentrain_"}};

const Mark& mark_of(OutputKind kind) {
  return *std::find_if(
      kMarks.begin(), kMarks.end(), [&](const Mark& mark) { return mark.kind == kind; });
}

// Whether `text`, without blanks, begins with `begin`, in which N means a number.
bool begins_with(std::string_view text, std::string_view begin) {
  std::size_t at = 0;
  const auto is = [&](int (*kind)(int)) {
    return at < text.size() && kind(static_cast<unsigned char>(text[at])) != 0;
  };
  for (const char wanted : begin) {
    while (is(std::isspace)) {
      ++at;
    }
    if (wanted == 'N') {
      if (!is(std::isdigit)) {
        return false;
      }
      while (is(std::isdigit)) {
        ++at;
      }
    } else if (at == text.size() || text[at++] != wanted) {
      return false;
    }
  }
  return true;
}

bool is_readable(const fs::path& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

// For the superuser too, who could write every file.
bool is_read_only(const fs::path& path) {
  struct stat status {};
  constexpr unsigned kWriteBits = S_IWUSR | S_IWGRP | S_IWOTH;
  return ::access(path.c_str(), W_OK) != 0 ||
         (::stat(path.c_str(), &status) == 0 && (status.st_mode & kWriteBits) == 0);
}

std::string head_of(const fs::path& path) {
  std::string head(kHeadBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return head;
}

// Whether `path` is `folder` or in it.
bool is_within(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  fs::path current = fs::weakly_canonical(path, error);
  for (; current.has_relative_path(); current = current.parent_path()) {
    if (fs::equivalent(current, folder, error)) {
      return true;
    }
  }
  return false;
}

// The folder on the way to `path` that is a checkpoint, or holds those of a run; or empty.
fs::path checkpoint_around(const fs::path& path) {
  std::error_code error;
  const auto is_step = [](std::string_view name) {
    constexpr std::string_view kStep = "step-";
    name.remove_prefix(name.starts_with('.') ? 1 : 0);
    return name.starts_with(kStep) && name.size() > kStep.size() &&
           std::isdigit(static_cast<unsigned char>(name[kStep.size()])) != 0;
  };
  fs::path folder = fs::weakly_canonical(path, error).parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    const std::string name = folder.filename().string();
    if (is_step(name) && (name.starts_with('.') || fs::exists(folder / "manifest.json", error))) {
      return folder;
    }
    if (is_step(head_of(folder / "latest"))) {
      return folder;
    }
  }
  return {};
}

[[noreturn]] void refuse(const std::string& option, const fs::path& path, std::string_view why) {
  throw InvalidInput(fmt::format("{}: '{}' {}", option, path.string(), why));
}

// That a file could be made at `target`, where nothing is: its folder or the nearest one there is.
void check_place(const std::string& option, const fs::path& path, const fs::path& target) {
  constexpr std::size_t kLongestName = 255 - 24;  // less what a temporary name has more
  if (target.filename().string().size() > kLongestName) {
    refuse(option, path, "has a name that is too long");
  }
  std::error_code error;
  fs::path folder = fs::absolute(target, error).parent_path();
  while (folder.has_relative_path() && !fs::exists(folder, error)) {
    folder = folder.parent_path();
  }
  if (!fs::is_directory(folder, error)) {
    refuse(option, path, fmt::format("cannot be written: '{}' is not a folder", folder.string()));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse(option,
           path,
           fmt::format("cannot be written: the folder '{}' is not writable", folder.string()));
  }
}

}  // namespace

std::string_view name_of(OutputKind kind) {
  return mark_of(kind).name;
}

bool is_kind(OutputKind kind, std::string_view head) {
  if (kind == OutputKind::kWeights) {
    constexpr std::size_t kLengthBytes = 8;
    head.remove_prefix(std::min(kLengthBytes, head.size()));
  }
  // Pages of earlier versions have their title after a comment.
  if (kind == OutputKind::kPage &&
      begins_with(head, "<!doctypehtml><!--Thepageof`entrainreport`.")) {
    return true;
  }
  const Mark& mark = mark_of(kind);
  const std::string_view line = head.substr(0, head.find('\n'));
  const auto holds = [&](std::string_view part) {
    return line.find(part) != std::string_view::npos;
  };
  if (kind == OutputKind::kTorchOrder && !holds("B0") && !holds("I0")) {
    return false;  // no backward of the first microbatch
  }
  return begins_with(head, mark.begin) && std::ranges::all_of(mark.first_line, holds);
}

std::string content_of(const fs::path& path) {
  const std::string head = head_of(path);
  for (const Mark& mark : kMarks) {
    if (is_kind(mark.kind, head)) {
      return std::string(mark.name);
    }
  }
  constexpr std::size_t kTarMagic = 257;
  std::string_view what = "a file of another kind";
  if (head.size() > kTarMagic && std::string_view(head).substr(kTarMagic).starts_with("ustar")) {
    what = "a tar archive";
  } else if (head.starts_with("\x89PNG")) {
    what = "a PNG image";
  }
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  return fmt::format("{} ({})", what, format_bytes(error ? 0 : static_cast<std::int64_t>(bytes)));
}

void check_outside_checkpoints(const std::string& option, const fs::path& path) {
  if (const fs::path folder = checkpoint_around(follow_links(path)); !folder.empty()) {
    refuse(option,
           path,
           fmt::format("is among the checkpoints in '{}', which training thins out; name a place "
                       "elsewhere",
                       folder.string()));
  }
}

void Output::write(std::string_view content) const {
  if (named()) {
    write_file(path_, content);
  }
}

void Output::write(const std::function<void(std::ostream&)>& produce) const {
  if (named()) {
    write_file(path_, produce);
  }
}

Outputs::Outputs(std::vector<fs::path> inputs, bool force)
    : inputs_(std::move(inputs)), force_(force) {}

void Outputs::check_file(const std::string& option, const fs::path& path, OutputKind kind) const {
  std::error_code error;
  const bool known = fs::file_size(path, error) == 0 || is_kind(kind, head_of(path));
  const std::string what =
      is_readable(path) ? "holds " + content_of(path) : std::string("exists and cannot be read");
  for (const fs::path& input : inputs_) {
    if (fs::equivalent(path, input, error)) {
      refuse(option, path, "is an input of this command; name another file");
    }
    if (!known && fs::is_directory(input, error) && is_within(path, input)) {
      refuse(option,
             path,
             fmt::format("{}, in the folder '{}' that this command reads; name another file",
                         what,
                         input.string()));
    }
  }
  if (force_) {
    return;
  }
  constexpr std::string_view kWayOut = "name another file, or replace it with --force";
  if (!known) {
    refuse(option, path, fmt::format("{}, not {}; {}", what, name_of(kind), kWayOut));
  }
  if (is_read_only(path)) {
    refuse(option, path, fmt::format("is read-only; {}", kWayOut));
  }
}

Output Outputs::open(const std::string& option, const fs::path& path, OutputKind kind) {
  if (path.empty()) {
    return {};
  }
  if (path == "-") {
    refuse(option, path, "is no file; /dev/stdout writes to the standard output, ./- to a file");
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none || status.type() == fs::file_type::unknown) {
    refuse(option, path, fmt::format("cannot be written: {}", error.message()));
  }
  if (!path.has_filename() || fs::is_directory(status)) {
    refuse(option, path, "is a folder; name a file in it");
  }
  if (fs::is_block_file(status) || fs::is_socket(status)) {
    refuse(option, path, "is a block device or a socket; name a file");
  }
  if (is_stream(path)) {
    return Output(path);
  }
  const fs::path target = follow_links(path);
  check_outside_checkpoints(option, path);
  if (fs::exists(status)) {
    check_file(option, path, kind);
  }
  check_place(option, path, target);
  const fs::path full = fs::weakly_canonical(target, error);
  for (const Opened& other : opened_) {
    if (full == other.target || fs::equivalent(full, other.target, error)) {
      throw InvalidInput(
          fmt::format("{} and {} name the same file: '{}'", other.option, option, path.string()));
    }
  }
  opened_.push_back({option, full});
  return Output(path);
}

}  // namespace entrain
