// Sends and receives around a given compute order.
//
// Read first: add_communication(). One rule serves every schedule:
// - a stage's output travels once per group to the stage after it, if that is on another lane, and
//   its gradient comes back once where the producing stage takes part in backward;
// - a send stands directly behind the operation that makes the message: a forward, or the backward
//   (input half) that completes the gradient. An encoder group that serves several LLM groups gets
//   its gradient after the last of their backwards on the LLM's first stage. Keys and values of
//   chunks and their gradients stay on their stage's lane and need no message;
// - a receive is posted one compute operation before the first operation that needs it (so that the
//   message can arrive while the lane works), or earlier if a later message of the same channel is
//   needed earlier: receives keep the sender's order.
#pragma once

#include <vector>

#include "entrain/core/schedule/order.h"

namespace entrain {

// The lanes and channels of a plan, equal for all its replicas.
struct ChannelTable {
  std::vector<int> activation_of;  // [stage number]: channel of its output; -1 on one lane
  std::vector<Channel> channels;   // activation and gradient of an edge: n and n + 1
};

// One activation and one gradient channel per edge of the stage graph that crosses lanes, in order
// of the producing stage.
ChannelTable channel_table(const StageGraph& stages);

// Shapes    compute: [lane][position], compute operations only.
// Ensures   result: the same lists with sends and receives in place, room for three more
//           operations reserved.
// Cost      O(operations + parts).
LaneOrders add_communication(const OrderInputs& inputs,
                             const ChannelTable& channels,
                             const LaneOrders& compute);

}  // namespace entrain
