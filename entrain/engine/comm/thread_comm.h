// Communication between ranks that are threads of one process: mailboxes and meetings under locks.
//
// Read first: ThreadCommGroup. Messages are handed over, not copied; collectives add in rank order.
// Ranks may have devices of their own: what goes from one to another is copied by who takes it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "entrain/engine/comm/comm.h"

namespace entrain::engine {

class ThreadCommState;

// The shared state of all ranks and one Comm a rank.
//
// - send() hands the tensor over without a copy (a non-contiguous one is packed first): sender and
//   receiver then share its memory, so neither may write to it.
// - A receive takes the message of its place in its channel's order, whatever order they are waited
//   for.
// - A wait that passes the deadline throws SystemFailure naming rank, peer and channel, or the
//   ranks that a collective still misses.
// - A call of an aborted communicator throws CommAborted.
class ThreadCommGroup {
 public:
  // Requires  num_ranks >= 1; deadline > 0, for every single wait.
  // Throws    InvalidInput otherwise.
  explicit ThreadCommGroup(int num_ranks,
                           std::chrono::milliseconds deadline = std::chrono::seconds(60));
  ~ThreadCommGroup();
  ThreadCommGroup(const ThreadCommGroup&) = delete;
  ThreadCommGroup& operator=(const ThreadCommGroup&) = delete;

  [[nodiscard]] int size() const;
  // The rank's view; it and its pending receives live no longer than the group.
  Comm& comm(int rank);

  // Ends the communicator for all ranks; the first reason wins.
  void abort(const std::string& reason);

 private:
  std::shared_ptr<ThreadCommState> state_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

}  // namespace entrain::engine
