// What one process of a run has to tell: logs/rank-N.log in the run folder.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

namespace entrain::engine {

// Appends lines with the time (UTC) in front; every start of the run begins with one. A log that
// cannot be written is no reason to stop.
class RankLog {
 public:
  RankLog() = default;  // writes nothing: ranks that are threads share metrics.jsonl
  RankLog(const std::filesystem::path& run_folder, int rank);

  void line(std::string_view text);

 private:
  std::ofstream file_;
};

}  // namespace entrain::engine
