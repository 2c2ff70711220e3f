// Measures a profile: layer costs, memory and machine rates of a model on the device at hand.
//
// Read first: measure_profile(). The layers run through EncoderStage and LlmStage themselves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "entrain/core/spec/model.h"
#include "entrain/core/spec/profile.h"

#include "entrain/engine/profiler/layer_cases.h"
#include "entrain/engine/profiler/points.h"
#include "entrain/engine/profiler/stopwatch.h"

namespace entrain::engine {

struct ProfileOptions {
  CaseGrid grid;
  std::vector<int> tensor_parallel = {
      1};                         // degrees; those that do not divide a module are left out
  int repeats = 15;               // most measurements per point, >= 3
  double seconds = 60;            // for the layers together, > 0; a busy machine takes longer
  std::int64_t memory_bytes = 0;  // activations of the largest point; 0 = any
  int lanes = 1;                  // that run at once on the machine, >= 1; see measure_profile()
  bool recompute = true;          // time the forward again as well
  std::string device = "cpu";     // or "cuda"
  std::string dtype = "float32";  // or "bfloat16"
  NanosecondClock clock = {};     // what layers are timed by; empty: the device's own
  std::string command;            // how it was made, kept in the profile
  std::filesystem::path partial;  // points so far, to go on after a kill; empty: none
};

// Three sizes up to max_tokens (a sixteenth, a quarter and all of it), each as one segment and as
// several; nothing else. Seconds.
ProfileOptions quick_options(std::int64_t max_tokens);
// Powers of two from 64 to max_tokens, in 1, 4 and 16 segments, with recomputation. Minutes.
ProfileOptions full_options(std::int64_t max_tokens);

struct ProfileRun {
  Profile profile;
  MeasuredPoints points;
};

// Every layer kind on one CPU thread in processor time, which other programs disturb little (or on
// CUDA by events). Backward is measured with and without trainable weights; the difference is
// backward_weight, whose errors are relative to the whole backward. Curves are fitted to the
// means of points (fit_layer.h); `range` and `spread` of each entry say what they rest on. Layers
// take turns, a round of repeats each, as far as memory holds several: what slows the machine for
// seconds slows all of them alike.
//
// At tensor_parallel > 1 an entry is one rank's slice (heads, MLP, projector and vocabulary divided
// by the degree), what its ranks say to each other is added from the measured link (fit_layer.h),
// and its activation bytes are those of the layer run as one rank of its group (lone_rank.h).
// Windowed attention is not measured: no layer of the engine has it.
//
// With `lanes` above 1 that many lanes less one run the same layer beside the one that is measured,
// each on a core of its own, as the lanes of a run do: they take memory bandwidth and shared cache
// from it. CPU only.
//
// With `partial`, all points are written there after every layer and at least every few seconds,
// and measuring goes on from a file that is there already; the caller removes it when it has what
// it wants.
//
// Ensures   validate(result.profile, model, …) holds; one entry per layer kind and degree of every
//           module; uses one thread and restores torch's thread count.
// Throws    InvalidInput for options out of range, points of other settings or a model with an
//           encoder that cannot run; SystemFailure for a device that is not there.
// Cost      options.seconds and a few more on a quiet machine; memory of one layer, or of several
//           that come to 512 MiB with what one more takes, and of the largest point.
ProfileRun measure_profile(const ModelSpec& model, const ProfileOptions& options);

}  // namespace entrain::engine
