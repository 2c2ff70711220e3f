// Outputs named by the user (-o, --csv, --trace, …): which paths may be written, and how.
//
// Read first: Outputs. A command opens its outputs before the long work, so that a path where data
// would be lost is refused at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace entrain {

// What a command writes; each is recognised by the first bytes of a file.
enum class OutputKind : std::uint8_t {
  kIndex,         // CSV of `index`
  kCosts,         // CSV of `cost`
  kSegmentCosts,  // CSV of `cost --segments`
  kCases,         // CSV of `simulate`
  kPlan,          // JSON
  kAssignment,    // JSON
  kProfile,       // JSON
  kPoints,        // JSON, measured points of `profile`
  kTrace,         // Chrome trace JSON
  kTorchOrder,    // CSV of `simulate --torch-csv`
  kAnswers,       // JSON lines of `eval`
  kWeights,       // safetensors of `checkpoint export`
  kTokens,        // token cache of `index`
  kPage,          // HTML of `audit` and of reports
  kPlot,          // SVG of `index`
  kEpochOrder,    // JSON lines of `export`
  kNumpy,         // arrays of `export`
  kPaths,         // JSON of `export --xtuner`
  kFeedKey,       // key of `feed --new-key`
  kExposition,    // text format of Prometheus, of `train`
};

// "an index (CSV)"
std::string_view name_of(OutputKind kind);

// Whether a file that begins with `head` is of this kind. `head` may be cut anywhere; a few
// KiB are enough.
bool is_kind(OutputKind kind, std::string_view head);

// What the first bytes of the file say: "a plan (JSON)", "a PNG image (12 KiB)", else "a file of
// another kind (12 KiB)".
std::string content_of(const std::filesystem::path& path);

// Refuses a file or folder in a checkpoint, or beside those of a run: training removes what lies
// there.
// Throws  InvalidInput beginning with the option or key, and saying where the checkpoints are.
void check_outside_checkpoints(const std::string& option, const std::filesystem::path& path);

// One output, made by Outputs::open(). A default-constructed one is unnamed; its write() does
class Output {
 public:
  Output() = default;

  [[nodiscard]] bool named() const { return !path_.empty(); }
  // The path as given.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // As write_file() does.
  void write(std::string_view content) const;
  void write(const std::function<void(std::ostream&)>& produce) const;

 private:
  friend class Outputs;
  explicit Output(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

// The outputs of one command.
class Outputs {
 public:
  // `inputs`: files and folders that the command reads; empty paths and missing files are ignored.
  // `force`: --force was given.
  explicit Outputs(std::vector<std::filesystem::path> inputs = {}, bool force = false);

  // If `path` is empty the output is unnamed. Nothing is written yet.
  //
  //   there is …                                        then it is
  //   nothing, or an empty file                         created
  //   a writable file of the same kind                  replaced
  //   a file of another kind, or a read-only one        replaced with `force`, otherwise refused
  //   an input, another output, part of a checkpoint    refused
  //   a file of another kind in a folder that is an input    refused
  //   a character device, a pipe                        written to as a stream
  //   a folder, a block device, a socket                refused
  //   `-`                                               refused: /dev/stdout is the standard output
  // Symbolic links are followed.
  //
  // Throws  InvalidInput naming `option`, the path and what is there.
  Output open(const std::string& option, const std::filesystem::path& path, OutputKind kind);

 private:
  void check_file(const std::string& option,
                  const std::filesystem::path& path,
                  OutputKind kind) const;

  std::vector<std::filesystem::path> inputs_;
  bool force_ = false;
  struct Opened {
    std::string option;
    std::filesystem::path target;
  };
  std::vector<Opened> opened_;
};

}  // namespace entrain
