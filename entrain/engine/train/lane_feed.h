// One decode for the ranks of a lane that are processes of one host: the first of them feeds the
// others what it decodes for itself.
//
// Read first: LaneFeed. The others take it as their feed (feed_client.h), and so decode for
// themselves what it does not send within its deadline.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "entrain/engine/data/feed_socket.h"
#include "entrain/engine/data/read_ahead.h"
#include "entrain/engine/train/feed_server.h"
#include "entrain/engine/train/feed_steps.h"

namespace entrain::engine {

// A new folder that only this user enters, in the one for temporary files, for a socket: whoever
// may connect is this user, so no key is needed. Removed with the object, in every process that has
// one, so that it goes even if the process that made it was killed.
class SocketFolder {
 public:
  // Throws  SystemFailure.
  SocketFolder();
  // One that another process has made.
  explicit SocketFolder(std::filesystem::path path) : path_(std::move(path)) {}
  ~SocketFolder();
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Of the socket in a SocketFolder. `name`: as it is shown to people.
FeedAddress lane_feed_address(const std::filesystem::path& folder, const std::string& name);

// The first rank's side: a server on a thread of its own.
class LaneFeed {
 public:
  // Listens from here on. Requires  setup and reader outlive it.
  //
  // Throws  SystemFailure, also if the folder's path is too long for a socket.
  LaneFeed(const RunSetup& setup, ReadAhead& reader);
  // Says goodbye.
  ~LaneFeed();
  LaneFeed(const LaneFeed&) = delete;
  LaneFeed& operator=(const LaneFeed&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  // What this rank has just queued at its reader.
  void add(StepNeeds needs) { steps_.add(std::move(needs)); }

 private:
  SocketFolder folder_;
  QueuedSteps steps_;
  FeedServer server_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace entrain::engine
