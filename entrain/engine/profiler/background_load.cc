#include "entrain/engine/profiler/background_load.h"

#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/ops/ones_like.h>

namespace entrain::engine {

BackgroundLoad::BackgroundLoad(const std::vector<LayerCases>& lanes) {
  for (const LayerCases& cases : lanes) {
    threads_.emplace_back([this, &cases] { run(cases); });
  }
}

BackgroundLoad::~BackgroundLoad() {
  stop_ = true;
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void BackgroundLoad::run(const LayerCases& cases) {
  at::set_num_threads(1);
  set_trainable(cases, true);
  for (std::size_t i = 0; !stop_; i = (i + 1) % cases.cases.size()) {
    const LayerCase& layer_case = cases.cases[i];
    fresh_leaf(layer_case.input);
    std::vector<at::Tensor> outputs;
    for (int layer = 0; layer < static_cast<int>(cases.layers.size()) && !stop_; ++layer) {
      outputs.push_back(layer_case.forward(layer));
      ++passes_;
    }
    for (; !outputs.empty() && !stop_; outputs.pop_back()) {
      fresh_leaf(layer_case.input);
      outputs.back().backward(at::ones_like(outputs.back().detach()));
    }
  }
}

}  // namespace entrain::engine
