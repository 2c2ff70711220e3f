// Global batches of real manifests, one or two encoders before an LLM.
#pragma once

#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/sample.h"

namespace entrain::record {

// Images, audio, or both in turn.
struct Manifest {
  std::string name;
  ModelSpec model;
  std::vector<SampleSizes> samples;  // drawn
};

// `count` samples of each; empty without manifests.
std::vector<Manifest> draw_manifests(int count);

}  // namespace entrain::record
