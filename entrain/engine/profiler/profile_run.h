// Measures a profile: layer costs, memory and machine rates of a model on this machine's device.
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
  std::vector<int> tensor_parallel = {1};  // degrees; those that do not divide a module are skipped
  int repeats = 15;                        // most repeats per point, >= 3
  double seconds = 60;            // for all layers together, > 0; a busy machine takes longer
  std::int64_t memory_bytes = 0;  // activations of the largest point; 0 = no limit
  int lanes = 1;                  // that run at once on the machine, >= 1; see measure_profile()
  bool recompute = true;          // also time the second forward
  std::string device = "cpu";     // or "cuda"
  std::string dtype = "float32";  // or "bfloat16"
  NanosecondClock clock = {};     // clock of the layer times; empty: the device's own
  std::string command;            // how it was made, kept in the profile
  std::filesystem::path partial;  // points so far, to continue after a kill; empty: none
};

// Three sizes up to max_tokens (a sixteenth, a quarter and all of it), each as one segment and as
// several. Takes seconds.
ProfileOptions quick_options(std::int64_t max_tokens);
// Powers of two from 64 to max_tokens, in 1, 4 and 16 segments, with recomputation. Takes minutes.
ProfileOptions full_options(std::int64_t max_tokens);

struct ProfileRun {
  Profile profile;
  MeasuredPoints points;
};

// Measures every layer kind on one CPU thread in processor time, which other programs affect little
// (on CUDA by events). Backward is measured with and without trainable weights; the difference is
// backward_weight, whose errors are relative to the whole backward. Curves are fitted to the
// means of points (fit_layer.h); `range` and `spread` of each entry describe their data. Layers
// are measured in turn, a round of repeats each, as many at a time as fit into memory: a slow
// moment of the machine slows all of them alike.
//
// At tensor_parallel > 1 an entry is one rank's slice (heads, MLP, projector and vocabulary divided
// by the degree). The cost of its collectives is added from the measured link (fit_layer.h),
// and its activation bytes come from the layer run as one rank of its group (single_rank.h).
// Windowed attention is not measured: no layer of the engine has it.
//
// With `lanes` above 1, lanes - 1 threads run the same layer while one is measured,
// each on its own core, as the lanes of a run do: they compete for memory bandwidth and shared
// cache. CPU only.
//
// With `partial`, all points are written there after every layer and at least every few seconds,
// and a measurement continues from an existing file; the caller removes it after a successful
// run.
//
// Ensures   validate(result.profile, model, …) holds; one entry per layer kind and degree of every
//           module; uses one thread and restores torch's thread count.
// Throws    InvalidInput for options out of range, points of other settings or a model with an
//           encoder that cannot run; SystemFailure for a device that does not exist.
// Cost      options.seconds and a few more on a quiet machine; memory of one layer, or of as many
//           as fit into 512 MiB with their temporaries, and of the largest point.
//
// Layers are measured without adapters (core/cost/trained_profile.h adds them).
ProfileRun measure_profile(const ModelSpec& model, const ProfileOptions& options);

}  // namespace entrain::engine
