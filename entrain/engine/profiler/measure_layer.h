// Times one layer at all its sizes.
//
// Read first: LayerMeasurement.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "entrain/engine/profiler/layer_cases.h"
#include "entrain/engine/profiler/points.h"
#include "entrain/engine/profiler/stopwatch.h"

namespace entrain::engine {

// Bounds of one layer's measuring.
struct LayerBudget {
  int repeats = 15;     // most measurements per point, >= kLeastRepeats
  double seconds = 10;  // ends repeats, in wall time; two points at least are measured thrice
  std::int64_t memory_bytes = 0;  // activations of the largest point; 0 = any
  bool recompute = true;
  NanosecondClock clock = {};  // of the Stopwatch; empty: its own
};
inline constexpr int kLeastRepeats = 3;

// Fills a MeasuredLayer (which may hold repeats of an earlier run) with times of `cases`, a round
// at a time.
//
// Every point first runs once to warm up caches and allocator: every second size in its fewest
// segments within half of the time, then all others, each by rising size. A point whose three
// repeats would not fit what is left of the time, judged by others, is left out, and so is one
// whose activations exceed the memory (`skipped` says which). On the CPU this counts processor
// time, so that a busy machine takes longer and leaves out no more. Then rounds visit all points in
// turn, so that a busy moment of the machine disturbs many points once instead of one point often.
//
// A round times: forward and backward with trainable weights; the same with the weight gradients of
// all layers after all input gradients (`backward_halves`); with frozen weights, whose backward is
// the input gradient; and, for `recompute`, the forward again after one that recorded
// no graph. Weight gradients stay and are added to, as over the microbatches of a step; the input
// is a fresh leaf each time, as a received activation is.
//
// A repeat imitates a stage: as many forwards as the module has layers of this kind (kMostLayers at
// most, as far as memory allows), each with weights of its own and every one keeping its graph,
// then their backwards from the last to the first; the time is a layer's mean. A layer that runs
// alone, again and again in the same memory, is up to a tenth faster than in a stage whose
// activations no cache holds.
//
// activation_bytes_per_token: bytes that the forward leaves allocated, without its output (which
// the layer after counts as its input) and with its input (the image features of a token embedding
// excepted, which count by themselves), at the largest size of which one forward fits memory and a
// quarter of the time.
class LayerMeasurement {
 public:
  // Warms up. `on_point` is called after every point, here and in rounds, and may throw to stop.
  //
  // Requires  budget.repeats >= kLeastRepeats; gradients enabled; torch at one thread on the CPU;
  //           `layer` and what `on_point` refers to outlive this object.
  LayerMeasurement(LayerCases cases,
                   const LayerBudget& budget,
                   at::Device device,
                   MeasuredLayer& layer,
                   std::function<void()> on_point);
  ~LayerMeasurement();
  LayerMeasurement(const LayerMeasurement&) = delete;
  LayerMeasurement& operator=(const LayerMeasurement&) = delete;

  // Whether some point has too few repeats, or fewer than asked for while there is time. Where not,
  // the layer is complete.
  [[nodiscard]] bool wants_more() const;
  // One more repeat of every point that wants one. Behind it `layer` is fit to be kept.
  void run_round();

  // Of its time or of its repeats, whichever is further; 1 and more: complete, or behind.
  [[nodiscard]] double progress() const;
  [[nodiscard]] double wanted_seconds() const;  // about what its rounds to come take

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace entrain::engine
