// Communication between ranks that are threads of one process, by mailboxes and locks.
//
// Read first: ThreadCommGroup. Messages are moved, not copied; collectives add in rank order.
// Ranks may have devices of their own: the receiver copies a tensor from another device.
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
// - A receive gets the message at its position in its channel's order, whatever the order of the
//   waits.
// - A wait that passes the deadline throws SystemFailure naming rank, peer and channel, or the
//   ranks missing from a collective.
// - After an abort every call throws CommAborted.
class ThreadCommGroup {
 public:
  // Requires  num_ranks >= 1; deadline > 0, which applies to every single wait.
  // Throws    InvalidInput otherwise.
  explicit ThreadCommGroup(int num_ranks,
                           std::chrono::milliseconds deadline = std::chrono::seconds(60));
  ~ThreadCommGroup();
  ThreadCommGroup(const ThreadCommGroup&) = delete;
  ThreadCommGroup& operator=(const ThreadCommGroup&) = delete;

  [[nodiscard]] int size() const;
  // The rank's view; it and its pending receives must not outlive the group.
  Comm& comm(int rank);

  // Ends the communicator for all ranks; the first reason wins.
  void abort(const std::string& reason);

 private:
  std::shared_ptr<ThreadCommState> state_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

}  // namespace entrain::engine
