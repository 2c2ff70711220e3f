// How fast a run's samples are decoded, and how fast the model takes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "entrain/core/base/json.h"

#include "entrain/engine/data/step_data.h"

namespace entrain::engine {

// What all ranks decoded for a step. A sample counts on each rank that decodes it.
struct DecodedData {
  std::int64_t images = 0;  // frames of videos included
  std::int64_t clips = 0;
  std::int64_t patches = 0;  // of the images
  double seconds = 0;        // of all threads that decode images and clips, beside other work
  int threads = 0;           // of the ranks that decode any
  std::int64_t pieces = 0;   // segments and texts that the ranks need
  std::int64_t fed = 0;      // of these, by feeds
  std::int64_t shared = 0;   // of these, by another rank of their lane

  // Of the pieces, in [0, 1].
  [[nodiscard]] double share_of(std::int64_t some) const;

  void add(const DataTimes& rank, int rank_threads);
};

Json to_json(const DecodedData& decoded);

// Sums steps up for one line. A run's first step is not to be added: its decoding includes the
// start of Python processes.
class DataRates {
 public:
  // `computing_s`: of the step, without waiting for data.
  void add(const DecodedData& step, double computing_s);
  // After four steps with images or clips, or at the run's `last` step after at least one; then
  // never again.
  std::optional<std::string> line_once(bool last);

 private:
  DecodedData sum_;
  double computing_s_ = 0;
  int steps_ = 0;
  bool shown_ = false;
};

}  // namespace entrain::engine
