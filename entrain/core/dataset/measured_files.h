// The samples of many files, measured on threads of their own and taken in the files' order.
//
// Read first: MeasuredFiles.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "entrain/core/dataset/columns.h"
#include "entrain/core/dataset/text.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// The text's lengths in characters and in byte tokens, exact ones and estimates.
void set_text_lengths(const SampleText& text, SampleSizes& sample);

struct MeasuredSample {
  SampleSizes sizes;   // id, media, lengths of the text where it is bytes; the place in its file
  std::string damage;  // why it cannot be read, naming file and place; then only the id is set
  std::string where;   // names its text in messages
  std::string json;    // the text, if it is kept
  std::vector<std::string> ignored;  // extensions of members that are no text, image or clip
  bool scattered = false;
};

struct FileToMeasure {
  std::filesystem::path path;
  ColumnMap columns = {};                  // what its samples' parts are called
  std::filesystem::path image_sizes = {};  // Energon's media metadata; empty: images are opened
};

// A file as a whole.
struct MeasuredFile {
  std::int64_t num_samples = 0;
  std::int64_t bytes_of_a_row = 0;  // as SampleSource has it
  std::map<std::string, std::int64_t> skipped;
  std::vector<std::string> notes;  // likewise
  std::string damage;              // why none of it can be read
};

class MeasuredFiles {
 public:
  struct Options {
    std::filesystem::path media;  // folder of the files that records name; empty: each file's own
    bool verify = false;          // decode every image and clip
    bool bytes = true;            // texts are bytes, whose lengths are measured
    bool keep_json = false;
    int threads = 1;  // >= 1
  };

  // Begins to read the first files. Samples that are not taken yet are held, some thousands a
  // thread.
  MeasuredFiles(std::vector<FileToMeasure> files, Options options);
  ~MeasuredFiles();  // stops reading
  MeasuredFiles(const MeasuredFiles&) = delete;
  MeasuredFiles& operator=(const MeasuredFiles&) = delete;

  // The next file; all samples of the one before have been taken.
  //
  // Throws  SystemFailure when reading fails; InvalidInput for a table without the columns that are
  //         read.
  MeasuredFile next_file();
  // The next sample of that file, num_samples times.
  //
  // Throws  SystemFailure when reading fails.
  MeasuredSample next_sample();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace entrain
