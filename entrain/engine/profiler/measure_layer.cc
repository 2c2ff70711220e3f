#include "entrain/engine/profiler/measure_layer.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <span>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/models/live_bytes.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

// Points that no budget leaves out: what a line needs.
constexpr std::size_t kLeastPoints = 2;

// Bytes that stay between forwards and backwards: more than a cache holds.
constexpr double kFlightBytes = 256.0 * (1 << 20);

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What the work itself takes: on a CPU that others use too, wall time would leave out sizes that
// fit.
double work_seconds(at::Device device) {
  return device.is_cpu() ? static_cast<double>(std::clock()) / CLOCKS_PER_SEC
                         : std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void set_trainable(const LayerCases& cases, bool trainable) {
  for (const NamedParameter& parameter : cases.parameters) {
    parameter.tensor.set_requires_grad(trainable);
  }
}

at::Tensor fresh_leaf(const LayerCase& layer_case) {
  at::Tensor input = layer_case.input;
  input.set_requires_grad(true);
  input.mutable_grad() = at::Tensor();
  return input;
}

// A case with the point that keeps its times.
struct Timed {
  const LayerCase* layer_case;
  MeasuredPoint* point;
};

class LayerTimer {
 public:
  LayerTimer(const LayerCases& cases, const LayerBudget& budget, at::Device device)
      : cases_(cases), recompute_(budget.recompute), watch_(device, budget.clock) {}

  // One repeat of every point of a flight: all forwards, then all backwards.
  void measure(std::span<const Timed> flight) {
    set_trainable(cases_, true);
    const std::vector<at::Tensor> outputs = forwards(flight, true);
    for (std::size_t i = 0; i < flight.size(); ++i) {
      flight[i].point->backward.push_back(backward(outputs[i]));
    }
    set_trainable(cases_, false);
    const std::vector<at::Tensor> frozen = forwards(flight, false);
    for (std::size_t i = 0; i < flight.size(); ++i) {
      flight[i].point->backward_input.push_back(backward(frozen[i]));
    }
    set_trainable(cases_, true);
    for (const Timed& timed : flight) {
      if (recompute_) {
        timed.point->recompute.push_back(run_again(*timed.layer_case));
      }
    }
  }

 private:
  std::vector<at::Tensor> forwards(std::span<const Timed> flight, bool keep_times) {
    std::vector<at::Tensor> outputs;
    for (const Timed& timed : flight) {
      fresh_leaf(*timed.layer_case);
      watch_.start();
      outputs.push_back(timed.layer_case->forward());
      const double time = watch_.stop();
      if (keep_times) {
        timed.point->forward.push_back(time);
      }
    }
    return outputs;
  }

  // The graph is freed; the output, a message that has been sent, stays until the flight is over.
  double backward(const at::Tensor& output) {
    const at::Tensor gradient = at::ones_like(output.detach());
    watch_.start();
    output.backward(gradient);
    return watch_.stop();
  }

  double run_again(const LayerCase& layer_case) {
    fresh_leaf(layer_case);
    {
      const at::NoGradGuard keeps_nothing;
      layer_case.forward();
    }
    watch_.start();
    const at::Tensor output = layer_case.forward();
    return watch_.stop();
  }

  const LayerCases& cases_;
  bool recompute_;
  Stopwatch watch_;
};

// How many of these points make the next flight; 1 at least.
std::size_t flight_size(std::span<const Timed> rest,
                        double bytes_per_token,
                        const LayerBudget& budget) {
  // Gradients stand beside the activations, as in warm_up().
  const double most = budget.memory_bytes > 0 ? static_cast<double>(budget.memory_bytes) / 2
                                              : std::numeric_limits<double>::max();
  double bytes = 0;
  std::size_t count = 0;
  while (count < rest.size() && bytes < kFlightBytes) {
    bytes += bytes_per_token * rest[count].layer_case->tokens;
    if (count > 0 && bytes > most) {
      break;
    }
    ++count;
  }
  return count;
}

double kept_bytes_per_token(const LayerCases& cases, const LayerCase& layer_case) {
  set_trainable(cases, true);
  const at::Tensor input = fresh_leaf(layer_case);
  const LiveBytes live;
  const at::Tensor output = layer_case.forward();
  // Image features count by themselves, from their arrival to their last backward.
  const std::size_t input_bytes = cases.kind == LayerKind::kTokenEmbedding ? 0 : input.nbytes();
  const auto kept = static_cast<double>(live.bytes()) - static_cast<double>(output.nbytes()) +
                    static_cast<double>(input_bytes);
  return std::max(0.0, kept) / layer_case.tokens;
}

// What a point takes at most, by one that was measured: attention's share grows with pairs.
double expected_seconds(const LayerCase& from, double seconds, const LayerCase& to) {
  const double tokens = to.tokens / from.tokens;
  const double pairs = from.attention_pairs > 0 ? to.attention_pairs / from.attention_pairs : 0.0;
  return seconds * std::max(tokens, pairs);
}

// Warms up and decides which cases fit the budget: positions in `cases.cases`, rising.
std::vector<std::size_t> warm_up(const LayerCases& cases,
                                 const LayerBudget& budget,
                                 at::Device device,
                                 LayerTimer& timer,
                                 MeasuredLayer& layer,
                                 const std::function<void()>& on_point) {
  const double start = work_seconds(device);
  const double bytes_per_token = kept_bytes_per_token(cases, cases.cases.front());
  std::vector<std::size_t> kept;
  std::size_t known = 0;     // the last point of one segment that ran …
  double known_seconds = 0;  // … and what it took
  double repeat = 0;         // seconds of one repeat of all points so far
  for (std::size_t i = 0; i < cases.cases.size(); ++i) {
    const LayerCase& layer_case = cases.cases[i];
    const double expected = expected_seconds(cases.cases[known], known_seconds, layer_case);
    const double rest =
        work_seconds(device) - start + expected + kLeastRepeats * (repeat + expected);
    const double bytes = 2 * bytes_per_token * layer_case.tokens;  // its gradients beside it
    const bool too_large =
        budget.memory_bytes > 0 && bytes > static_cast<double>(budget.memory_bytes);
    if (kept.size() >= kLeastPoints && (rest > budget.seconds || too_large)) {
      layer.skipped.push_back(
          concat(static_cast<std::int64_t>(layer_case.tokens),
                 " tokens, segments ",
                 layer_case.num_segments,
                 too_large ? ": more activation bytes than allowed" : ": more time than there is"));
      continue;
    }
    const double began = work_seconds(device);
    MeasuredPoint unused;
    const Timed once[] = {{&layer_case, &unused}};
    timer.measure(once);
    const double taken = work_seconds(device) - began;
    repeat += taken;
    if (kept.empty() || layer_case.num_segments == 1) {
      known = i;
      known_seconds = taken;
    }
    kept.push_back(i);
    on_point();
  }
  return kept;
}

// Points of the cases that are kept, with the times that `layer` had of them.
std::vector<MeasuredPoint> points_of(const LayerCases& cases,
                                     const std::vector<std::size_t>& kept,
                                     const MeasuredLayer& layer) {
  std::vector<MeasuredPoint> points;
  for (const std::size_t i : kept) {
    MeasuredPoint point;
    point.tokens = cases.cases[i].tokens;
    point.attention_pairs = cases.cases[i].attention_pairs;
    point.num_segments = cases.cases[i].num_segments;
    const auto same = [&](const MeasuredPoint& other) {
      return other.tokens == point.tokens && other.num_segments == point.num_segments;
    };
    const auto earlier = std::find_if(layer.points.begin(), layer.points.end(), same);
    points.push_back(earlier == layer.points.end() ? point : *earlier);
  }
  return points;
}

}  // namespace

void measure_layer(const LayerCases& cases,
                   const LayerBudget& budget,
                   at::Device device,
                   MeasuredLayer& layer,
                   const std::function<void()>& on_point,
                   const std::function<void()>& on_round) {
  ENTRAIN_INVARIANT(budget.repeats >= kLeastRepeats, "too few repeats");
  const Clock::time_point start = Clock::now();
  LayerTimer timer(cases, budget, device);
  layer.skipped.clear();
  const std::vector<std::size_t> kept = warm_up(cases, budget, device, timer, layer, on_point);
  layer.points = points_of(cases, kept, layer);
  const auto wants_more = [&](const MeasuredPoint& point) {
    const int repeats = static_cast<int>(point.forward.size());
    return repeats < kLeastRepeats ||
           (repeats < budget.repeats && seconds_since(start) < budget.seconds);
  };
  layer.activation_bytes_per_token = kept_bytes_per_token(cases, cases.cases[kept.back()]);
  while (std::any_of(layer.points.begin(), layer.points.end(), wants_more)) {
    std::vector<Timed> wanted;
    for (std::size_t i = 0; i < layer.points.size(); ++i) {
      if (wants_more(layer.points[i])) {
        wanted.push_back({&cases.cases[kept[i]], &layer.points[i]});
      }
    }
    for (std::span<const Timed> rest = wanted; !rest.empty();) {
      const std::size_t count = flight_size(rest, layer.activation_bytes_per_token, budget);
      timer.measure(rest.first(count));
      rest = rest.subspan(count);
      for (std::size_t i = 0; i < count; ++i) {
        on_point();
      }
    }
    on_round();
  }
  layer.output_bytes_per_token = cases.output_bytes_per_token;
  for (const NamedParameter& parameter : cases.parameters) {
    layer.parameters += parameter.tensor.numel();
    layer.parameter_bytes += static_cast<double>(parameter.tensor.nbytes());
  }
  layer.complete = true;
  on_round();
}

}  // namespace entrain::engine
