// The log of one process of a run: logs/rank-N.log in the run folder.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace entrain::engine {

// Appends lines that begin with the time (UTC); every start of the run adds a first line. A log
// that cannot be written does not stop the run.
class RankLog {
 public:
  RankLog() = default;  // writes nothing: ranks that are threads share metrics.jsonl
  RankLog(const std::filesystem::path& run_folder, int rank);

  void line(std::string_view text);

 private:
  std::ofstream file_;
};

}  // namespace entrain::engine
