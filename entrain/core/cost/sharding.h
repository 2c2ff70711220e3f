// How a layer is sharded over the tensor_parallel × context_parallel devices of a lane.
//
// One layout is modelled, that of Megatron-LM with sequence parallelism. Context parallelism cuts
// every span into equal shares of tokens (a causal one from both ends, so that pairs are equal
// too). Tensor parallelism cuts the matrices of transformer layers, projector, token embedding and
// output head: attention by heads, MLP and projector by columns and then rows, embedding and head
// by vocabulary; between them norms and residuals run on a further share of the tokens. Replicated
// on every device are the weights of norms, of the projector's last bias and of patch and audio
// embeddings; the patch embedding cuts tokens alone, the audio embedding those of context
// parallelism alone: its convolutions reach over the cut.
//
// Source    Korthikanti et al. 2022 (sequence parallelism); Llama 3, section 3.3.2 (context
//           parallelism by gathered keys and values).
#pragma once

#include <cstdint>
#include <string>

#include "entrain/core/cost/layer_work.h"
#include "entrain/core/spec/model.h"

namespace entrain {

// Why a module cannot run at this tensor parallelism: "num_kv_heads 8 of 'llm' is not
// divisible by 3"; empty if it can. Any context parallelism of at least 1 is possible.
std::string sharding_obstacle(const ModelSpec& model, int module, int tensor_parallel);

// layer_work() per device, still per token of the whole lane: everything divides by both
// degrees, except in the token and audio embeddings, whose devices look up, or convolve, all tokens
// of their context share.
// Requires  no sharding_obstacle().
LayerWork device_work(const ModelSpec& model,
                      int module,
                      int layer,
                      double bytes,
                      int tensor_parallel,
                      int context_parallel);

// Bytes that a device receives from the others of its lane during one operation.
struct Exchange {
  double bytes_per_token = 0;  // per token of the lane (output head: target token)
  int collectives = 0;         // each adds the link's latency once
};

struct LayerExchange {
  Exchange forward;
  Exchange backward_input;
  Exchange backward_weight;
};

// With t and c the degrees, w the hidden width and b the size of a number, a gather or a
// reduce-scatter among the tensor ranks brings a device G(w) = w · b · (t - 1) / (t · c) bytes a
// token; two of them equal an all-reduce.
//   transformer layers  forward 4 G, backward_input 4 G; backward_weight 2 G (the inputs of both
//                       column-parallel products are kept sharded and gathered again)
//   projector           forward G(in) + G(out), backward_input the same; backward_weight G(in)
//   token embedding     forward G, backward_weight G
//   output head         forward G and three all-reduces of one float32 (maximum, sum, target's
//                       logit); backward_input and backward_weight G each
// Context ranks exchange keys and values in transformer layers: K = 2 · key width · b / t ·
// (c - 1) / c forward, and 2 K in backward_input (again, and their gradients).
//
// Requires  no sharding_obstacle().
LayerExchange layer_exchange(const ModelSpec& model,
                             int module,
                             int layer,
                             double bytes,
                             int tensor_parallel,
                             int context_parallel);

}  // namespace entrain
