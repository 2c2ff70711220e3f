#include "entrain/engine/profiler/measure_layer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_time.h"

#include "entrain/engine/models/live_bytes.h"
#include "entrain/engine/models/weight_gradients.h"

namespace entrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

// Points measured whatever the budget: enough for a line.
constexpr std::size_t kLeastPoints = 2;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Processor time of the work: on a shared CPU, wall time would skip sizes that
// fit.
double work_seconds(at::Device device) {
  return device.is_cpu() ? std::chrono::duration<double>(thread_time()).count()
                         : std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double kept_bytes_per_token(const LayerCases& cases, const LayerCase& layer_case) {
  set_trainable(cases, true);
  const at::Tensor input = fresh_leaf(layer_case.input);
  const LiveBytes live(input.device().type());
  const at::Tensor output = layer_case.forward(0);
  // Image features are counted separately, from their arrival to their last backward.
  const bool keeps_input = cases.keeps_input && cases.kind != LayerKind::kTokenEmbedding;
  const std::size_t input_bytes = keeps_input ? input.nbytes() : 0;
  const auto kept = static_cast<double>(live.bytes()) - static_cast<double>(output.nbytes()) +
                    static_cast<double>(input_bytes);
  return std::max(0.0, kept) / layer_case.tokens;
}

// Bytes that one rank of the lane keeps of a case.
double bytes_on_rank(const LayerCases& cases, std::size_t index) {
  const LayerCases on_rank = cases.on_rank ? cases.on_rank() : cases;
  return kept_bytes_per_token(on_rank, on_rank.cases[index]);
}

}  // namespace

class LayerTimer {
 public:
  LayerTimer(const LayerCases& cases, const LayerBudget& budget, at::Device device)
      : cases_(cases),
        budget_(budget),
        bytes_per_token_(kept_bytes_per_token(cases, cases.cases.front())),
        watch_(device, budget.clock) {}

  // Bytes that a case keeps, including its gradients.
  [[nodiscard]] double bytes(const LayerCase& layer_case) const {
    return 2 * bytes_per_token_ * layer_case.tokens;
  }

  // One repeat of one point: a layer's mean within its stage.
  void measure(const LayerCase& layer_case, MeasuredPoint& point) {
    set_trainable(cases_, true);
    double backward = 0;
    point.forward.push_back(run_stage(layer_case, backward));
    point.backward.push_back(backward);
    point.backward_halves.push_back(run_halves(layer_case));
    set_trainable(cases_, false);
    run_stage(layer_case, backward);
    point.backward_input.push_back(backward);
    set_trainable(cases_, true);
    if (budget_.recompute) {
      point.recompute.push_back(run_again(layer_case));
    }
  }

 private:
  // Layers that fit the memory.
  [[nodiscard]] int num_layers(const LayerCase& layer_case) const {
    const int layers = std::min(cases_.num_alike, kMostLayers);
    if (budget_.memory_bytes == 0) {
      return layers;
    }
    const double room = static_cast<double>(budget_.memory_bytes) / bytes(layer_case);
    return std::clamp(room < layers ? static_cast<int>(room) : layers, 1, layers);
  }

  double run_stage(const LayerCase& layer_case, double& backward) {
    std::vector<at::Tensor> outputs;
    const double forward = run_forwards(layer_case, outputs);
    const auto layers = static_cast<double>(outputs.size());
    backward = run_backwards(layer_case, outputs) / layers;
    return forward / layers;
  }

  // Backwards whose weight gradients are deferred until after all input gradients.
  double run_halves(const LayerCase& layer_case) {
    const auto waiting = c10::make_intrusive<WeightGradients>();
    std::vector<at::Tensor> outputs;
    {
      const WeightGradientsScope scope(waiting);
      run_forwards(layer_case, outputs);
    }
    const auto layers = static_cast<double>(outputs.size());
    waiting->defer();
    const double inputs = run_backwards(layer_case, outputs);
    watch_.start();
    waiting->run();
    return (inputs + watch_.stop()) / layers;
  }

  double run_forwards(const LayerCase& layer_case, std::vector<at::Tensor>& outputs) {
    double time = 0;
    for (int i = 0; i < num_layers(layer_case); ++i) {
      fresh_leaf(layer_case.input);
      watch_.start();
      outputs.push_back(layer_case.forward(i % static_cast<int>(std::ssize(cases_.layers))));
      time += watch_.stop();
    }
    return time;
  }

  // From the last to the first; empties `outputs`.
  double run_backwards(const LayerCase& layer_case, std::vector<at::Tensor>& outputs) {
    double time = 0;
    for (; !outputs.empty(); outputs.pop_back()) {
      const at::Tensor gradient = at::ones_like(outputs.back().detach());
      fresh_leaf(layer_case.input);
      watch_.start();
      outputs.back().backward(gradient);
      time += watch_.stop();
    }
    return time;
  }

  double run_again(const LayerCase& layer_case) {
    fresh_leaf(layer_case.input);
    {
      const at::NoGradGuard keeps_nothing;
      layer_case.forward(0);
    }
    watch_.start();
    const at::Tensor output = layer_case.forward(0);
    return watch_.stop();
  }

  const LayerCases& cases_;
  const LayerBudget& budget_;
  double bytes_per_token_;
  Stopwatch watch_;
};

namespace {

// Times of points of rising size, to estimate those of others.
class KnownTimes {
 public:
  void add(const LayerCase& layer_case, double seconds) {
    if (known_.empty() || layer_case.tokens > known_.back().tokens) {
      known_.push_back({layer_case.tokens, layer_case.attention_pairs, seconds});
    }
  }

  // Extrapolates from the two largest, which separate attention's share, growing with pairs, from
  // the rest; from one point: an upper estimate by the fastest-growing size.
  [[nodiscard]] double expected(const LayerCase& to) const {
    if (known_.empty()) {
      return 0;
    }
    const Known& last = known_.back();
    if (known_.size() > 1) {
      const Known& before = known_[known_.size() - 2];
      const double ratio = last.tokens / before.tokens;
      const double pairs = last.pairs - ratio * before.pairs;
      if (pairs > 0) {
        const double per_pair = std::clamp(
            (last.seconds - ratio * before.seconds) / pairs, 0.0, last.seconds / last.pairs);
        return per_pair * to.attention_pairs +
               (last.seconds - per_pair * last.pairs) / last.tokens * to.tokens;
      }
    }
    return last.seconds * std::max(to.tokens / last.tokens,
                                   last.pairs > 0 ? to.attention_pairs / last.pairs : 0.0);
  }

 private:
  struct Known {
    double tokens = 0;
    double pairs = 0;
    double seconds = 0;
  };
  std::vector<Known> known_;  // rising tokens
};

// Every second size, each in its fewest segments: tried first, with half of the time, so
// that a short budget still covers large sizes.
std::vector<char> tried_first(const std::vector<LayerCase>& cases) {
  std::vector<char> first(cases.size(), 0);
  bool wanted = true;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (i == 0 || cases[i].num_segments <= cases[i - 1].num_segments) {  // a new size
      first[i] = wanted ? 1 : 0;
      wanted = !wanted;
    }
  }
  return first;
}

// Warms up and decides which cases fit the budget.
class WarmUp {
 public:
  WarmUp(const LayerCases& cases,
         const LayerBudget& budget,
         at::Device device,
         LayerTimer& timer,
         const std::function<void()>& on_point)
      : cases_(cases),
        budget_(budget),
        device_(device),
        timer_(timer),
        on_point_(on_point),
        start_(work_seconds(device)) {}

  // Positions in `cases.cases`, rising; `skipped` names the others.
  std::vector<std::size_t> run(std::vector<std::string>& skipped) {
    const std::vector<char> first = tried_first(cases_.cases);
    for (const bool now : {true, false}) {
      for (std::size_t i = 0; i < cases_.cases.size(); ++i) {
        const bool kept = std::find(kept_.begin(), kept_.end(), i) != kept_.end();
        if (!kept && (first[i] != 0 || !now)) {
          consider(i, now ? budget_.seconds / 2 : budget_.seconds, now ? nullptr : &skipped);
        }
      }
    }
    std::sort(kept_.begin(), kept_.end());
    return kept_;
  }

  // The largest case of which one forward fits memory and a quarter of the time, whether or not its
  // repeats do. Requires  run() was called.
  [[nodiscard]] std::size_t largest() const {
    constexpr double kForwardsOfRepeat = 9;  // at least: three passes, backwards twice as long
    std::size_t result = kept_.back();
    for (std::size_t i = result + 1; i < cases_.cases.size(); ++i) {
      const double forward = known_.expected(cases_.cases[i]) / kForwardsOfRepeat;
      if (forward <= budget_.seconds / 4 && !too_large(cases_.cases[i])) {
        result = i;
      }
    }
    return result;
  }

 private:
  [[nodiscard]] bool too_large(const LayerCase& layer_case) const {
    return budget_.memory_bytes > 0 &&
           timer_.bytes(layer_case) > static_cast<double>(budget_.memory_bytes);
  }

  // Runs the case, or returns why it is skipped.
  void consider(std::size_t i, double seconds, std::vector<std::string>* skipped) {
    const LayerCase& layer_case = cases_.cases[i];
    const double expected = known_.expected(layer_case);
    const double rest =
        work_seconds(device_) - start_ + expected + kLeastRepeats * (repeat_ + expected);
    const std::size_t least = skipped != nullptr ? kLeastPoints : 1;
    if (kept_.size() < least || (rest <= seconds && !too_large(layer_case))) {
      run_case(i);
    } else if (skipped != nullptr) {
      skipped->push_back(concat(static_cast<std::int64_t>(layer_case.tokens),
                                " tokens, segments ",
                                layer_case.num_segments,
                                too_large(layer_case) ? ": more activation bytes than allowed"
                                                      : ": more time than is left"));
    }
  }

  void run_case(std::size_t i) {
    const double began = work_seconds(device_);
    MeasuredPoint unused;
    timer_.measure(cases_.cases[i], unused);
    const double taken = work_seconds(device_) - began;
    repeat_ += taken;
    known_.add(cases_.cases[i], taken);
    kept_.push_back(i);
    on_point_();
  }

  const LayerCases& cases_;
  const LayerBudget& budget_;
  at::Device device_;
  LayerTimer& timer_;
  const std::function<void()>& on_point_;
  double start_;
  std::vector<std::size_t> kept_;
  KnownTimes known_;
  double repeat_ = 0;  // seconds of one repeat of all points so far
};

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

LayerMeasurement::LayerMeasurement(LayerCases cases,
                                   const LayerBudget& budget,
                                   at::Device device,
                                   MeasuredLayer& layer,
                                   std::function<void()> on_point)
    : cases_(std::move(cases)), budget_(budget), layer_(layer), on_point_(std::move(on_point)) {
  ENTRAIN_INVARIANT(budget.repeats >= kLeastRepeats, "too few repeats");
  timer_ = std::make_unique<LayerTimer>(cases_, budget_, device);
  const Clock::time_point start = Clock::now();
  layer_.skipped.clear();
  WarmUp warm_up(cases_, budget_, device, *timer_, on_point_);
  kept_ = warm_up.run(layer_.skipped);
  layer_.points = points_of(cases_, kept_, layer_);
  layer_.activation_bytes_per_token = bytes_on_rank(cases_, warm_up.largest());
  seconds_ = seconds_since(start);
  round_seconds_ = seconds_;
  complete_if_done();
}

LayerMeasurement::~LayerMeasurement() = default;

bool LayerMeasurement::wants_more(const MeasuredPoint& point) const {
  const int repeats = static_cast<int>(point.forward.size());
  return repeats < kLeastRepeats || (repeats < budget_.repeats && seconds_ < budget_.seconds);
}

void LayerMeasurement::run_round() {
  const double before = seconds_;
  for (std::size_t i = 0; i < layer_.points.size(); ++i) {
    if (wants_more(layer_.points[i])) {
      const Clock::time_point start = Clock::now();
      timer_->measure(cases_.cases[kept_[i]], layer_.points[i]);
      seconds_ += seconds_since(start);
      on_point_();
    }
  }
  round_seconds_ = seconds_ - before;
  complete_if_done();
}

void LayerMeasurement::complete_if_done() {
  if (std::any_of(layer_.points.begin(), layer_.points.end(), [&](const MeasuredPoint& point) {
        return wants_more(point);
      })) {
    return;
  }
  layer_.output_bytes_per_token = cases_.output_bytes_per_token;
  for (const NamedParameter& parameter : cases_.layers[0]) {
    layer_.parameters += parameter.tensor.numel();
  }
  layer_.parameter_bytes += static_cast<double>(weight_bytes(cases_.layers[0]));
  layer_.complete = true;
}

double LayerMeasurement::progress() const {
  return wants_more()
             ? std::max(seconds_ / budget_.seconds,
                        static_cast<double>(layer_.points.front().forward.size()) / budget_.repeats)
             : 1;
}

double LayerMeasurement::wanted_seconds() const {
  if (!wants_more()) {
    return 0;
  }
  const int repeats = static_cast<int>(layer_.points.front().forward.size());
  const double all = round_seconds_ * std::max(0, budget_.repeats - repeats);
  const double least = round_seconds_ * std::max(0, kLeastRepeats - repeats);
  return std::max(least, std::min(all, budget_.seconds - seconds_));
}

}  // namespace entrain::engine
