#include "tests/oracle/autograd_graph.h"

#include <utility>

#include "entrain/core/base/errors.h"

namespace entrain::oracle {
namespace {

struct Node {
  std::vector<int> inputs;  // nodes; none: read from the data
  bool trainable = false;   // has weights, and they are
  int module = 0;
  int layer = 0;
};

// Nodes in an order in which inputs come first.
class Graph {
 public:
  void enter(int module, int layer, bool trainable) {
    module_ = module;
    layer_ = layer;
    trainable_ = trainable;
  }
  int weighted(std::vector<int> inputs) { return add(std::move(inputs), true); }
  int plain(std::vector<int> inputs) { return add(std::move(inputs), false); }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }

 private:
  int add(std::vector<int> inputs, bool weights) {
    nodes_.push_back({std::move(inputs), weights && trainable_, module_, layer_});
    return static_cast<int>(nodes_.size()) - 1;
  }

  std::vector<Node> nodes_;
  int module_ = 0;
  int layer_ = 0;
  bool trainable_ = false;
};

// Norm, attention, norm and gated MLP around a residual stream.
int transformer_layer(Graph& graph, int input) {
  const int norm = graph.weighted({input});
  const int query = graph.plain({graph.weighted({norm})});  // rotated
  const int key = graph.plain({graph.weighted({norm})});
  const int value = graph.weighted({norm});
  const int attention = graph.plain({query, key, value});
  const int stream = graph.plain({input, graph.weighted({attention})});
  const int second_norm = graph.weighted({stream});
  const int gate = graph.plain({graph.weighted({second_norm})});
  const int product = graph.plain({gate, graph.weighted({second_norm})});
  return graph.plain({stream, graph.weighted({product})});
}

int encoder_layer(Graph& graph, LayerKind kind, int input) {
  switch (kind) {
    case LayerKind::kPatchEmbedding:
      return graph.weighted({});
    case LayerKind::kAudioEmbedding: {
      const int first = graph.plain({graph.weighted({})});
      return graph.plain({graph.weighted({first})});
    }
    case LayerKind::kProjector: {
      const int merged = graph.weighted({input});
      const int inner = graph.plain({graph.weighted({merged})});
      return graph.weighted({inner});
    }
    default:
      return transformer_layer(graph, input);
  }
}

int llm_layer(Graph& graph, LayerKind kind, int input, const std::vector<int>& features) {
  switch (kind) {
    case LayerKind::kTokenEmbedding:
      return graph.weighted(features);  // rows looked up beside rows copied
    case LayerKind::kOutputHead: {
      const int norm = graph.weighted({input});
      return graph.plain({graph.weighted({norm})});
    }
    default:
      return transformer_layer(graph, input);
  }
}

Graph graph_of(const ModelSpec& model) {
  Graph graph;
  std::vector<int> features;
  for (int module = 0; module < model.num_modules(); ++module) {
    const bool llm = module == model.llm_module();
    int last = -1;
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      const LayerKind kind = layer_kind(model, module, layer);
      graph.enter(module, layer, layer_trainable(model, module, layer));
      last = llm ? llm_layer(graph, kind, last, features) : encoder_layer(graph, kind, last);
    }
    features.push_back(last);
  }
  return graph;
}

}  // namespace

ModuleCounts autograd_counts(const ModelSpec& model) {
  const Graph graph = graph_of(model);
  ModuleCounts counts;
  for (int module = 0; module < model.num_modules(); ++module) {
    counts.emplace_back(static_cast<std::size_t>(num_layers(model, module)));
  }
  std::vector<char> takes_gradient;  // [node]
  for (const Node& node : graph.nodes()) {
    bool of_input = false;
    for (const int input : node.inputs) {
      ENTRAIN_INVARIANT(static_cast<std::size_t>(input) < takes_gradient.size(), "order of nodes");
      of_input = of_input || takes_gradient[static_cast<std::size_t>(input)] != 0;
    }
    takes_gradient.push_back(of_input || node.trainable ? 1 : 0);
    // Every result leads to the loss.
    LayerCounts& layer =
        counts[static_cast<std::size_t>(node.module)][static_cast<std::size_t>(node.layer)];
    ++layer.operations;
    layer.input_gradients += of_input ? 1 : 0;
    layer.weight_gradients += node.trainable ? 1 : 0;
  }
  return counts;
}

}  // namespace entrain::oracle
