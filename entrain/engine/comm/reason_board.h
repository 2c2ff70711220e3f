// Why ranks stop: a word in the group's store, which the first to fail leaves and all others look
// for.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <torch/csrc/distributed/c10d/Store.hpp>

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

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // outlives this object with the thread
  std::thread thread_;
};

}  // namespace entrain::engine
