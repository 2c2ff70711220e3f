// Matrices and tables whose weight gradient can run separately from the input gradient.
//
// Read first: WeightGradients. Of a layer's parameters, matrices with their biases and embedding
// tables are deferred; norm gains are not. Deferred is what profiles charge as weight gradient:
// matrix products and the pass over a full table. A gain's gradient is one pass over rows that its
// input gradient reads anyway, which an analytic profile leaves out; deferring it would keep its
// input and output gradient, more than the activation bytes used for planning a lane's memory.
// A measured profile does charge it as weight gradient (docs/costs.md): by this amount a split
// backward's first half is longer than predicted, and its second half shorter.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/custom_class.h>

namespace entrain::engine {

// The weight gradients of one graph. Until defer() is called nothing is deferred, and a
// backward pass computes both gradients of a matrix at once.
//
// One thread at a time; the graph and its recomputed layers hold a reference.
class WeightGradients : public torch::CustomClassHolder {
 public:
  // From now on backward passes through the graph store the gradients of matrices and tables here
  // instead of adding them to their parameters.
  void defer() { deferred_ = true; }
  [[nodiscard]] bool deferred() const { return deferred_; }

  void add(const at::Tensor& parameter, std::function<at::Tensor()> gradient);

  // The parameters of deferred gradients, each as often as it is added to.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

  // Computes the deferred gradients in the order of the backward pass, adds them to the parameters'
  // gradients as autograd would, bit for bit, and releases each one's inputs afterwards. A bfloat16
  // parameter whose grad_dtype() is float32 accumulates in float32, either way. `added` is
  // called after each addition.
  void run(const std::function<void(const at::Tensor& parameter)>& added = {});

 private:
  struct Piece {
    at::Tensor parameter;
    std::function<at::Tensor()> gradient;  // keeps what it reads alive
  };
  bool deferred_ = false;
  std::vector<Piece> waiting_;
};
using WeightGradientsPtr = c10::intrusive_ptr<WeightGradients>;

// While it lives, the graphs that this thread records belong to `gradients` (null: none, no
// backward is split). Recomputed layers use the same object in their second forward.
class WeightGradientsScope {
 public:
  explicit WeightGradientsScope(WeightGradientsPtr gradients);
  ~WeightGradientsScope();
  WeightGradientsScope(const WeightGradientsScope&) = delete;
  WeightGradientsScope& operator=(const WeightGradientsScope&) = delete;

  [[nodiscard]] static const WeightGradientsPtr& current();

 private:
  WeightGradientsPtr outer_;
};

// An input of matrices that is cheaper to recompute than to keep: their weight gradients read() it
// again.
//
// One thread at a time.
class RecomputedInput : public torch::CustomClassHolder {
 public:
  // `make` keeps what it needs alive, and returns the same values every time.
  explicit RecomputedInput(std::function<at::Tensor()> make) : make_(std::move(make)) {}

  void add_reader() { ++readers_; }
  // Computed when the first reader calls, released after the last one.
  at::Tensor read();

 private:
  std::function<at::Tensor()> make_;
  at::Tensor made_;
  int readers_ = 0;
};
using RecomputedInputPtr = c10::intrusive_ptr<RecomputedInput>;

// at::linear(), bit for bit in forward and backward, except for when its weight gradient runs. With
// `recomputed`, `input` is recomputed once per backward instead of kept.
//
// Shapes  input: [T, in]; weight: [out, in], or of more axes that hold `in` values together, as in
//         a convolution; bias: [out]; result: [T, out].
// Cost    keeps what at::linear() keeps: the input if the weight is trainable, and not even that
//         with `recomputed`. A deferred gradient also keeps the output's gradient.
at::Tensor split_linear(const at::Tensor& input,
                        const at::Tensor& weight,
                        const std::optional<at::Tensor>& bias = {},
                        const RecomputedInputPtr& recomputed = {});

// at::embedding(), likewise.
// Shapes  weight: [V, D]; ids: [T] int64; result: [T, D].
at::Tensor split_embedding(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace entrain::engine
