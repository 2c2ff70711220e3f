// Times one layer at all its sizes.
//
// Read first: LayerMeasurement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "entrain/engine/profiler/layer_cases.h"
#include "entrain/engine/profiler/points.h"
#include "entrain/engine/profiler/stopwatch.h"

namespace entrain::engine {

// Limits for measuring one layer.
struct LayerBudget {
  int repeats = 15;     // most repeats per point, >= kLeastRepeats
  double seconds = 10;  // ends repeats, in wall time; at least two points get three repeats
  std::int64_t memory_bytes = 0;  // activations of the largest point; 0 = no limit
  bool recompute = true;
  NanosecondClock clock = {};  // of the Stopwatch; empty: the Stopwatch's own
};
inline constexpr int kLeastRepeats = 3;

class LayerTimer;

// Adds times of `cases` to a MeasuredLayer (which may hold repeats of an earlier run), one round at
// a time.
//
// Every point first runs once to warm up caches and allocator: every second size in its fewest
// segments within half of the time, then all others, each by rising size. A point is skipped if its
// three repeats would not fit into the remaining time, estimated from other points, or if its
// activations exceed the memory (`skipped` names it). On the CPU this counts processor
// time, so a busy machine takes longer but skips no more points. Then rounds visit all points in
// turn, so that a slow moment affects many points once instead of one point often.
//
// A round times: forward and backward with trainable weights; the same with the weight gradients of
// all layers after all input gradients (`backward_halves`); with frozen weights, whose backward is
// the input gradient; and, for `recompute`, a second forward after one without a graph.
// Weight gradients accumulate, as over the microbatches of a step; the input
// is a fresh leaf each time, like a received activation.
//
// A repeat imitates a stage: as many forwards as the module has layers of this kind (at most
// kMostLayers, if memory allows), each with its own weights and graph,
// then their backwards from last to first; the time is the mean per layer. A single layer that runs
// repeatedly in the same memory is up to a tenth faster than in a stage, because its
// activations stay in cache.
//
// activation_bytes_per_token: bytes still allocated after the forward, excluding its output (which
// the next layer counts as its input) and including its input (except the image features of a token
// embedding, which count separately), at the largest size whose forward fits into memory and a
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

  // Whether some point has too few repeats, or fewer than requested while there is time. If not,
  // the layer is complete.
  [[nodiscard]] bool wants_more() const { return !layer_.complete; }
  // One more repeat of every point that needs one. Afterwards `layer` can be stored.
  void run_round();

  // Fraction of its time or of its repeats, whichever is larger; >= 1: complete, or over its time.
  [[nodiscard]] double progress() const;
  [[nodiscard]] double wanted_seconds() const;  // estimated time of the remaining rounds

 private:
  [[nodiscard]] bool wants_more(const MeasuredPoint& point) const;
  void complete_if_done();

  LayerCases cases_;
  LayerBudget budget_;
  MeasuredLayer& layer_;
  std::function<void()> on_point_;
  std::unique_ptr<LayerTimer> timer_;
  std::vector<std::size_t> kept_;  // [point] its case
  double seconds_ = 0;
  double round_seconds_ = 0;  // of the last one; warming up is about one
};

}  // namespace entrain::engine
