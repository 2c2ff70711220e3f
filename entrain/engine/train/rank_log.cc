#include "entrain/engine/train/rank_log.h"

#include <array>
#include <ctime>
#include <system_error>

#include "entrain/core/base/text.h"

namespace entrain::engine {

RankLog::RankLog(const std::filesystem::path& run_folder, int rank) {
  const std::filesystem::path folder = run_folder / "logs";
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  file_.open(folder / concat("rank-", rank, ".log"), std::ios::app);
}

void RankLog::line(std::string_view text) {
  if (!file_.is_open()) {
    return;
  }
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> stamp{};
  std::strftime(stamp.data(), stamp.size(), "%Y-%m-%dT%H:%M:%SZ ", &parts);
  file_ << stamp.data() << text << std::endl;
}

}  // namespace entrain::engine
