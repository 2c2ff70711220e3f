// How sizes of samples are distributed: bars on a terminal, a drawing, and what is far out.
//
// Read first: distributions_of().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

struct Distribution {
  std::string name;            // "pixels of an image"
  std::vector<double> values;  // > 0 or 0
  std::vector<int> samples;    // [value] whose it is
};

// Tokens of a sample's text, images of a sample, pixels of an image, seconds of a clip and of a
// video; with a model also the LLM's tokens of a sample. Those without any value are left out.
std::vector<Distribution> distributions_of(const std::vector<SampleSizes>& samples,
                                           const ModelSpec* model);

// Values in [from, to) of a bin; bins double from one to the next, the first is [0, 1).
struct Bin {
  double from = 0;
  double to = 0;
  std::int64_t count = 0;
};
// From the first bin with a value to the last.
std::vector<Bin> bins_of(const Distribution& distribution);

// "8 to 15" where all values are whole, else "8 to 16".
std::string range_of(const Bin& bin, const Distribution& of);

// Values more than three times the 99th percentile: the largest five, with how many there are.
struct FarOut {
  std::int64_t count = 0;
  std::vector<std::size_t> largest;  // positions in values, the largest first
};
FarOut far_out(const Distribution& distribution);

// A line a bin with a bar of at most 40 characters, then what is far out by the samples' ids.
std::string to_text(const Distribution& distribution, const std::vector<SampleSizes>& samples);

// An SVG file of all of them, one below the other, readable on light and dark grounds.
std::string to_svg(const std::vector<Distribution>& distributions);

}  // namespace entrain
