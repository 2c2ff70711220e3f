// A run's samples with their work, and those of them that validate.
#pragma once

#include <cstdint>
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
  std::vector<std::string> notes;  // media that are ignored, as check_media() says it
};

// `ignored` are kMediaNames that the model may have no encoder for, `option` how they were named.
//
// Throws  InvalidInput when the index holds estimates only, was made with another tokenizer or
//         template, holds a sample longer than the model's max_tokens, media the engine cannot
//         read, or media that are neither for an encoder nor ignored.
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

// How many samples of `validation` (by id) are trained on, for people; empty for none.
std::string overlap_warning(const Index& train, const Index& validation);

}  // namespace entrain::engine
