// A run's samples with their work, and the validation samples among them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "entrain/core/dataset/index.h"
#include "entrain/core/spec/media.h"
#include "entrain/core/spec/model.h"
#include "entrain/core/spec/workload.h"

namespace entrain::engine {

// An index with the work of every sample under the run's model.
struct DataSet {
  Index index;
  std::vector<SampleWork> work;    // [sample]
  std::vector<std::string> notes;  // ignored media, as reported by check_media()
};

// `ignored` are kMediaNames that the model may lack an encoder for; `option` names the flag or key.
//
// Throws  InvalidInput if the index holds only estimates, was made with another version of the byte
//         tokenizer or with a tokenizer that has more ids than the model, if its token cache is
//         missing, damaged or of another index, or if it holds a sample longer than the model's
//         max_tokens, media the engine cannot read, or media that are neither ignored nor have an
//         encoder.
DataSet load_data_set(const std::string& path,
                      const ModelSpec& model,
                      const std::vector<std::string>& ignored = {},
                      const MediaOption& option = kIgnoreKey);

// Moves `fraction` of the samples, drawn by `seed` and at least one, out of `train`. Both keep the
// index's order. The same arguments always move the same samples.
//
// Requires  0 < fraction < 1.
// Throws    InvalidInput when that would leave no sample to train on.
DataSet split_validation(double fraction, std::uint64_t seed, DataSet& train);

// Throws  InvalidInput if one index is of bytes and the other of a tokenizer, or if their
// tokenizers or
//         templates differ.
void check_same_tokenizer(const Index& train, const Index& validation);

// Throws  InvalidInput naming the first file of samples that does not exist. Files that records
//         name are not looked at.
// Cost    a look at every file, not at every sample.
void check_files(const Index& index);

// Why the model of a Hugging Face folder should not train on an index of bytes: its tokenizer has
// other ids. Empty if it has no tokenizer, or the index was made with one.
std::string bytes_warning(const Index& index, const std::filesystem::path& model);

// A line on how many samples of `validation` (by id) are also trained on; empty if none.
std::string overlap_warning(const Index& train, const Index& validation);

}  // namespace entrain::engine
