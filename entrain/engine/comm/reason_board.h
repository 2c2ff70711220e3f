// Why ranks stop: a word in the group's store, which the first to fail leaves and all others look
// for; and what ranks say there that they wait for.
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

// One rank's sight of it. A store whose host is gone without closing its connections (a cable, a
// switch, power) answers nothing and lets go of nobody, so all that is said to it is said by a
// thread of this object's own, and nobody waits for that longer than they say.
class ReasonBoard {
 public:
  // Looks ten times a second, over a connection of its own. `found` is called at most once, on the
  // thread, with the reason that some rank left; not after this object's end.
  ReasonBoard(const c10::intrusive_ptr<c10d::Store>& store,
              std::function<void(const std::string&)> found);
  // A thread that the store does not let go is left behind.
  ~ReasonBoard();
  ReasonBoard(const ReasonBoard&) = delete;
  ReasonBoard& operator=(const ReasonBoard&) = delete;

  // Leaves `reason`, unless there is one. Returns when that is done, or after `patience`; it is
  // tried on then.
  void leave(const std::string& reason, std::chrono::milliseconds patience);

  // Tells the others what this rank waits for, or that it no longer does. Does not wait.
  void say(int rank, std::optional<Wait> wait);
  // What `rank` says it waits for, and what the rank does for which it waits, and so on; nothing
  // where there is a reason already, or the store does not answer within `patience`.
  std::optional<std::map<int, Wait>> waits_from(int rank, std::chrono::milliseconds patience);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // outlives this object with the thread
  std::thread thread_;
};

}  // namespace entrain::engine
