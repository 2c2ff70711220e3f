#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"
#include "entrain/core/dataset/energon.h"
#include "entrain/core/dataset/index.h"
#include "entrain/core/dataset/index_builder.h"
#include "entrain/core/dataset/index_reports.h"
#include "entrain/core/dataset/measured_files.h"
#include "entrain/core/dataset/partial_index.h"
#include "entrain/core/dataset/shard_list.h"

namespace entrain {
namespace {

namespace fs = std::filesystem;

// What is given, in the order in which it is read.
struct DataFile {
  FileToMeasure file;  // of an index the path alone counts
  std::string name;    // that ids begin with
};

std::vector<DataFile> list_files(const std::vector<fs::path>& data,
                                 const IndexOptions& options,
                                 std::vector<std::string>& notes) {
  if (options.verify && options.trust_metadata) {
    throw InvalidInput("images are either decoded (--verify) or not opened (--trust-metadata)");
  }
  std::vector<DataFile> files;
  for (const fs::path& given : data) {
    const NamedData named = named_data(given);
    FileToMeasure of_given = {{}, options.columns, {}};
    const bool energon = is_energon_folder(named.path);
    if (energon && options.columns.empty()) {
      EnergonFields fields = energon_fields(named.path);
      of_given.columns = std::move(fields.columns);
      notes.insert(notes.end(), fields.notes.begin(), fields.notes.end());
    }
    if (energon && options.trust_metadata) {
      of_given.image_sizes = energon_media_metadata(named.path);
    }
    for (fs::path& path : list_data({named.path}, options.split)) {
      of_given.path = std::move(path);
      files.push_back({of_given, named.name});
    }
  }
  if (files.empty()) {
    list_data({});  // refuses
  }
  return files;
}

std::vector<fs::path> paths_of(const std::vector<DataFile>& files) {
  std::vector<fs::path> paths;
  for (const DataFile& file : files) {
    paths.push_back(file.file.path);
  }
  return paths;
}

// The files in their order: measured now, or by an earlier run of the same command.
class FileSamples {
 public:
  FileSamples(const std::vector<DataFile>& files,
              const IndexBuilder& builder,
              PartialIndex* partial)
      : settings_(builder.settings()), partial_(partial), kept_(files.size()) {
    std::vector<FileToMeasure> left;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (is_index_file(files[i].file.path)) {
        continue;
      }
      if (partial_ != nullptr) {
        kept_[i] = partial_->read(files[i].file, settings_);
      }
      if (kept_[i]) {
        ++num_kept_;
      } else {
        left.push_back(files[i].file);
      }
    }
    measured_ = std::make_unique<MeasuredFiles>(std::move(left), builder.measuring());
  }

  [[nodiscard]] std::int64_t num_kept() const { return num_kept_; }

  // Adds the file at that position, which is no index.
  void add(std::size_t position,
           const DataFile& file,
           IndexBuilder& builder,
           ReadProgress& progress) {
    const std::unique_ptr<KeptFile> kept = std::move(kept_[position]);
    const MeasuredFile facts = kept ? kept->file() : measured_->next_file();
    builder.begin_file(
        file.file,
        file.name,
        facts,
        kept || partial_ == nullptr ? nullptr : partial_->write(file.file, settings_, facts));
    for (std::int64_t i = 0; i < facts.num_samples; ++i) {
      if (kept) {
        KeptFile::Sample sample = kept->next();
        builder.add_sample(std::move(sample.measured), std::move(sample.tokens));
      } else {
        builder.add_sample(measured_->next_sample());
      }
      progress.reach(i + 1, facts.num_samples);
    }
    if (facts.num_samples == 0) {
      progress.reach(1, 1);
    }
    builder.end_file();
  }

 private:
  std::string settings_;
  PartialIndex* partial_;
  std::vector<std::unique_ptr<KeptFile>> kept_;  // [file]
  std::int64_t num_kept_ = 0;
  std::unique_ptr<MeasuredFiles> measured_;
};

IndexResult build(const std::vector<DataFile>& files,
                  const fs::path& output,
                  const IndexOptions& options,
                  PartialIndex* partial) {
  IndexBuilder builder(output, options);
  FileSamples samples(files, builder, partial);
  const std::vector<fs::path> paths = paths_of(files);
  const std::string reused =
      samples.num_kept() == 0
          ? ""
          : fmt::format("{} of {} were measured by an earlier run of this command",
                        samples.num_kept(),
                        counted(std::ssize(files), "file"));
  ReadProgress progress(reused.empty() ? "indexing" : fmt::format("indexing ({})", reused), paths);
  for (std::size_t i = 0; i < files.size(); ++i) {
    progress.begin_file(paths[i]);
    if (is_index_file(paths[i])) {
      builder.add_index(paths[i], files[i].name, progress);
    } else {
      samples.add(i, files[i], builder, progress);
    }
  }
  progress.finish();
  IndexResult result = builder.finish(paths);
  if (!reused.empty()) {
    result.summary.notes.push_back(reused);
  }
  builder.write_tokens(output, result.index);
  write_index(result.index, output);
  return result;
}

}  // namespace

IndexResult build_index(const std::vector<fs::path>& data,
                        const fs::path& output,
                        const IndexOptions& options) {
  std::vector<std::string> notes;
  const std::vector<DataFile> files = list_files(data, options, notes);
  const auto noted = [&](IndexResult result) {
    notes.insert(notes.end(), result.summary.notes.begin(), result.summary.notes.end());
    result.summary.notes = notes;
    return result;
  };
  const auto num_measured = std::count_if(files.begin(), files.end(), [](const DataFile& file) {
    return !is_index_file(file.file.path);
  });
  if (is_stream(output) || num_measured < 2) {  // nothing could be reused
    return noted(build(files, output, options, nullptr));
  }
  PartialIndex partial(output);
  IndexOptions chosen = options;
  if (chosen.tokenizer) {
    chosen.tokenizer->time = partial.begun();
  }
  try {
    IndexResult result = build(files, output, chosen, &partial);
    partial.remove();
    return noted(std::move(result));
  } catch (const InvalidInput& error) {
    if (!partial.holds_files()) {
      partial.remove();
      throw;
    }
    throw InvalidInput(fmt::format("{} (what was measured is kept in '{}', for this command again)",
                                   error.what(),
                                   partial.folder().string()));
  }
}

}  // namespace entrain
