#include "entrain/engine/train/lane_feed.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/text.h"
#include "entrain/core/base/thread_priority.h"

namespace entrain::engine {
namespace {

constexpr const char* kSocketName = "lane";

FeedServerOptions listening_at(const FeedAddress& address) {
  FeedServerOptions options;
  options.listen = address;
  return options;
}

}  // namespace

SocketFolder::SocketFolder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) {
    throw SystemFailure(concat("no folder for temporary files: ", error.message()));
  }
  std::string pattern = (parent / "entrain-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {  // mode 0700
    throw SystemFailure(concat("cannot make the folder '", pattern, "': ", std::strerror(errno)));
  }
  path_ = pattern;
}

SocketFolder::~SocketFolder() {
  std::error_code error;
  std::filesystem::remove(path_ / kSocketName, error);
  std::filesystem::remove(path_, error);  // unless it holds anything else
}

FeedAddress lane_feed_address(const std::filesystem::path& folder, const std::string& name) {
  FeedAddress address = read_feed_address(
      concat("ipc://", (folder / kSocketName).string()), "lane", /*listens=*/false);
  address.text = name;
  return address;
}

LaneFeed::LaneFeed(const RunSetup& setup, ReadAhead& reader)
    : server_(
          setup, listening_at(lane_feed_address(folder_.path(), folder_.path())), steps_, reader) {
  thread_ = std::thread([this] {
    run_in_background();  // and so the threads that send
    server_.run(stop_);
  });
}

LaneFeed::~LaneFeed() {
  stop_ = true;
  thread_.join();
}

}  // namespace entrain::engine
