// A feed: decodes the samples of a run's ranks for them, on another host or process.
//
// Read first: FeedServer. What a rank needs is a pure function of the run's setup, the step and the
// rank's place, so a feed computes it for itself and pushes it in the order of use.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "entrain/engine/data/feed_client.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/feed_steps.h"
#include "entrain/engine/train/run_setup.h"

namespace entrain::engine {

struct FeedServerOptions {
  FeedAddress listen;
  std::optional<FeedKey> key;                          // required unless `listen` is of this host
  int workers = 1;                                     // threads that decode, >= 1
  std::int64_t memory_bytes = std::int64_t{1} << 30U;  // decoded and not yet sent, >= 1
  std::function<void(const std::string& line)> note;   // who came, and what goes on
};

class FeedServer {
 public:
  // Listens from here on, with steps and a reader of its own. Requires  `setup` outlives the
  // server.
  //
  // Throws  InvalidInput for an address that others reach and no key; SystemFailure when the
  //         address is taken.
  FeedServer(const RunSetup& setup, const FeedServerOptions& options);
  // Serves what `reader` decodes for its own process, too: `options` without workers and memory.
  // Requires  steps and reader outlive the server.
  FeedServer(const RunSetup& setup,
             const FeedServerOptions& options,
             FeedSteps& steps,
             ReadAhead& reader);
  ~FeedServer();
  FeedServer(const FeedServer&) = delete;
  FeedServer& operator=(const FeedServer&) = delete;

  // With the port, where port 0 was asked for.
  [[nodiscard]] std::string address() const;
  // Serves until told to stop, then says goodbye.
  void run(const std::atomic<bool>& stop);

 private:
  struct State;
  std::unique_ptr<FeedSteps> own_steps_;
  std::unique_ptr<ReadAhead> own_reader_;
  std::unique_ptr<State> state_;
};

}  // namespace entrain::engine
