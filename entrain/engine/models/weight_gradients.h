// Matrices and tables whose weight gradient may run apart from the input gradient.
//
// Read first: WeightGradients. Of a layer's parameters, matrices with their biases and embedding
// tables wait; norm gains do not. What waits is what profiles charge as weight gradient: matrix
// products and the pass over a whole table. A gain's gradient is one pass over rows that its input
// gradient reads anyway, which an analytic profile leaves out; waiting for it would keep a norm's
// input and output gradient, more than the activation bytes that a lane's memory is planned with.
// A measured profile does charge it as weight gradient (docs/costs.md): by so much a split
// backward's first half is longer than predicted, and its second shorter.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/custom_class.h>

namespace entrain::engine {

// The weight gradients of one graph. As long as defer() is not called, nothing waits, and a
// backward pass computes both gradients of a matrix at once.
//
// One thread at a time; the graph and its recomputed layers hold a reference.
class WeightGradients : public torch::CustomClassHolder {
 public:
  // From now on backward passes through the graph leave the gradients of matrices and tables here
  // instead of adding them to their parameters.
  void defer() { deferred_ = true; }
  [[nodiscard]] bool deferred() const { return deferred_; }

  void add(const at::Tensor& parameter, std::function<at::Tensor()> gradient);

  // The parameters of what waits, one as often as it is to be added to.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;

  // Computes what waits in the order in which the backward pass came by, adds it to the parameters'
  // gradients as autograd would, bit for bit, and frees each piece's inputs behind it. A bfloat16
  // parameter whose grad_dtype() is float32 has them added up in that, either way. `added` is
  // called behind each addition.
  void run(const std::function<void(const at::Tensor& parameter)>& added = {});

 private:
  struct Piece {
    at::Tensor parameter;
    std::function<at::Tensor()> gradient;  // holds what it reads
  };
  bool deferred_ = false;
  std::vector<Piece> waiting_;
};
using WeightGradientsPtr = c10::intrusive_ptr<WeightGradients>;

// While it lives, the graphs that this thread records belong to `gradients` (none: null, where no
// backward is split). Recomputed layers take theirs along to their second forward.
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

// An input of matrices that is dearer to keep than to make once more: their weight gradients read()
// it again.
//
// One thread at a time.
class RemadeInput : public torch::CustomClassHolder {
 public:
  // `make` holds what it needs, and gives the same values every time.
  explicit RemadeInput(std::function<at::Tensor()> make) : make_(std::move(make)) {}

  void add_reader() { ++readers_; }
  // Made when the first reader asks, let go of when the last one has it.
  at::Tensor read();

 private:
  std::function<at::Tensor()> make_;
  at::Tensor made_;
  int readers_ = 0;
};
using RemadeInputPtr = c10::intrusive_ptr<RemadeInput>;

// at::linear(), bit for bit forward and backward, but for the time of its weight gradient. With
// `remade`, which makes `input` again, that is read once a backward instead of kept.
//
// Shapes  input: [T, in]; weight: [out, in], or of more axes that hold `in` values together, as a
//         convolution's do; bias: [out]; result: [T, out].
// Cost    keeps what at::linear() keeps: the input where the weight is trainable, and not even that
//         with `remade`. What waits keeps the output's gradient too.
at::Tensor split_linear(const at::Tensor& input,
                        const at::Tensor& weight,
                        const std::optional<at::Tensor>& bias = {},
                        const RemadeInputPtr& remade = {});

// at::embedding(), likewise.
// Shapes  weight: [V, D]; ids: [T] int64; result: [T, D].
at::Tensor split_embedding(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace entrain::engine
