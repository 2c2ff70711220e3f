// Decodes the samples of a rank on threads of its own, ahead of the executor.
//
// Read first: ReadAhead::queue(). Steps are queued in the order in which they will run; the next
// step's images and clips are decoded while the current step computes. A segment that a consumer
// waits for is decoded first, regardless of the memory limit, so no order of use can deadlock.
// Pieces of one sample are left to one thread, as far as nobody waits: it has read and decoded
// their image.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "entrain/core/dataset/index.h"
#include "entrain/core/spec/model.h"

#include "entrain/engine/data/step_data.h"
#include "entrain/engine/data/step_needs.h"

namespace entrain::engine {

struct FeedOptions;

struct ReadAheadOptions {
  int threads = 1;  // that decode, >= 1
  std::int64_t memory_bytes = std::int64_t{256}
                              << 20;  // decoded segments waiting for use, >= 1; one segment
                                      // larger than that is still read
  // Decode every piece of a step once before the step, so that StepData::problem() can report it;
  // pieces that exceed memory_bytes are dropped and decoded again when used.
  bool check_steps = false;
  bool blank = false;  // white pixels and silence, lengths kept: what a model knows without input
  // Who decodes ahead instead of these threads while it can be reached (feed_client.h); may be
  // null. What it does not send within half of its deadline is decoded here none the less.
  std::shared_ptr<const FeedOptions> feed;
};

class ReadAhead {
 public:
  // Requires  `index` and `model` outlive the reader.
  // Throws    InvalidInput when memory_bytes < 1 or threads < 1, or the index's lengths were made
  // by another
  //           tokenizer or chat layout.
  ReadAhead(const Index& index, const ModelSpec& model, const ReadAheadOptions& options);
  // Stops after the piece being decoded; consumers still waiting for data get SystemFailure.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Starts (or queues) the decoding of a step. A decoding error is thrown by the StepData call
  // that needs the sample, naming sample, shard and offset. Each segment may be taken once; a
  // request not in `needs` is an InternalError. Destroying the StepData cancels the rest. May be
  // called by several threads; those of one lane (StepNeeds::readers) share what is decoded.
  std::shared_ptr<StepData> queue(StepNeeds needs);

  // Bytes of segments decoded and not yet taken.
  [[nodiscard]] std::int64_t ready_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace entrain::engine
