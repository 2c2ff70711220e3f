// What building an index reports on its way: progress, and samples that are refused. The text of
// its summary (index.h) is made here too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "entrain/core/base/progress.h"
#include "entrain/core/dataset/index.h"

namespace entrain {

// Samples that a kRefuse rule rejects: all are counted before the run stops.
struct Refusals {
  std::map<std::string, std::vector<std::string>> ids;  // by reason

  // Throws  InvalidInput naming every reason with its first ids.
  void stop_if_any() const;
};

// Fills in rows and percentiles. `llm_tokens`: of each sample, with a model.
void summarise(const std::vector<SampleSizes>& samples,
               std::vector<std::int64_t> llm_tokens,
               IndexSummary& summary);

// Adds a note for every encoder that cannot train the samples' videos.
void note_videos(const ModelSpec& model,
                 const std::vector<SampleSizes>& samples,
                 IndexSummary& summary);

// Progress in bytes of the files that are read.
class ReadProgress {
 public:
  // `title`: what is done to the files.
  ReadProgress(const std::string& title, const std::vector<std::filesystem::path>& files);

  void begin_file(const std::filesystem::path& path);
  // `part` of the `whole` samples of the file are done, whatever became of them.
  void reach(std::int64_t part, std::int64_t whole);
  void finish() { progress_.finish(); }

 private:
  Progress progress_;
  std::int64_t begin_ = 0;  // bytes of the files before this one
  std::int64_t size_ = 0;
};

}  // namespace entrain
