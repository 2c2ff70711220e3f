// Whether a sample is what an index says of it.
#pragma once

#include <string>

#include "entrain/core/dataset/sample_source.h"
#include "entrain/core/spec/sample.h"

namespace entrain {

// Decodes every image, frame, clip and video of the sample, which was read from `file`.
//
// Throws  InvalidInput naming sample and file: a medium that is damaged, or of another size than
//         `sample` has.
void verify_sample(const SampleSizes& sample, const RawSample& raw, const std::string& file);

}  // namespace entrain
