// Forty samples on disk, as a cost table and as an index with a model, in a folder of their own.
#pragma once

#include <filesystem>

#include "entrain/core/study/study.h"

namespace entrain::oracle {

class StudyFiles {
 public:
  // Writes costs.csv, index.csv and model.toml; every fourth sample is text-only.
  StudyFiles();
  ~StudyFiles();
  StudyFiles(const StudyFiles&) = delete;
  StudyFiles& operator=(const StudyFiles&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  // Global batches of 8.
  [[nodiscard]] StudyInputs table_inputs() const;
  [[nodiscard]] StudyInputs index_inputs() const;

 private:
  std::filesystem::path folder_;
};

}  // namespace entrain::oracle
