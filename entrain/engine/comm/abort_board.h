// Why ranks stop: the first rank that fails publishes a reason in the group's store, and all others
// poll for it. Ranks also publish there what they wait for.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "entrain/engine/comm/waits.h"

namespace entrain::engine {

// One rank's view of the board. Calls to a store whose host died without closing its connections (a
// cable, a switch, power) block for ever. A thread of this object therefore makes all calls to the
// store, and callers wait for it no longer than the patience they pass.
class AbortBoard {
 public:
  // Polls ten times a second, over its own connection. `found` is called at most once, on the
  // thread, with the reason that another rank published; never after this object's end.
  AbortBoard(const c10::intrusive_ptr<c10d::Store>& store,
             std::function<void(const std::string&)> found);
  // Detaches the thread if a call to the store still blocks.
  ~AbortBoard();
  AbortBoard(const AbortBoard&) = delete;
  AbortBoard& operator=(const AbortBoard&) = delete;

  // Publishes `reason` unless there is one. Returns when that is done, or after `patience`; the
  // attempt then continues.
  void publish(const std::string& reason, std::chrono::milliseconds patience);

  // Publishes what this rank waits for, or that it no longer waits. Does not block.
  void publish_wait(int rank, std::optional<Wait> wait);
  // The chain of published waits from `rank` on: what it waits for, what that peer waits for, and
  // so on. Nothing if there is a reason already or the store does not answer within `patience`.
  std::optional<std::map<int, Wait>> waits_from(int rank, std::chrono::milliseconds patience);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace entrain::engine
