#include "entrain/engine/data/feed_socket.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using oracle::TemporaryFolder;

TEST(FeedAddress, SaysWhereAndWhetherOthersReachIt) {
  const auto endpoint = [](const std::string& text, bool listens) {
    return read_feed_address(text, "data.feed", listens).endpoint;
  };
  EXPECT_EQ(endpoint("host:7000", false), "tcp://host:7000");
  EXPECT_EQ(endpoint(":7000", true), "tcp://*:7000");
  EXPECT_EQ(endpoint("127.0.0.1:0", true), "tcp://127.0.0.1:0");
  EXPECT_EQ(endpoint("ipc:///tmp/feed", false), "ipc:///tmp/feed");
  EXPECT_EQ(endpoint("[::1]:7000", false), "tcp://[::1]:7000");
  for (const char* local : {"127.0.0.1:1", "localhost:1", "[::1]:1", "ipc:///x"}) {
    EXPECT_TRUE(read_feed_address(local, "x", false).local) << local;
  }
  for (const char* reached : {"host:1", "10.0.0.1:1", "0.0.0.0:1", "[::]:1"}) {
    EXPECT_FALSE(read_feed_address(reached, "x", false).local) << reached;
  }
  EXPECT_FALSE(read_feed_address(":1", "x", true).local);
}

TEST(FeedAddress, OfNoSenseIsRefusedByName) {
  for (const char* text : {"",
                           "host",
                           "host:",
                           "host:x",
                           "host:70000",
                           "host:0",
                           ":7000",
                           "tcp://host:7000",
                           "::1:7000",
                           "ho st:1",
                           "host:1x",
                           "ipc://"}) {
    const std::string message =
        error_of<InvalidInput>([&] { read_feed_address(text, "data.feed", false); });
    EXPECT_NE(message.find("data.feed: '" + std::string(text) + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("HOST:PORT"), std::string::npos) << message;
  }
}

TEST(FeedKey, ReadsBackFromAFileOfItsOwnerAlone) {
  const TemporaryFolder folder;
  const FeedKey key = new_feed_key();
  const std::filesystem::path path = folder.write("feed.key", text_of(key));
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const FeedKey read = read_feed_key(path);
  EXPECT_EQ(read.feed_secret, key.feed_secret);
  EXPECT_EQ(read.rank_secret, key.rank_secret);
  EXPECT_EQ(read.feed_public, key.feed_public);
  EXPECT_EQ(read.rank_public, key.rank_public);
  EXPECT_NE(new_feed_key().feed_secret, key.feed_secret);

  std::filesystem::permissions(
      path, std::filesystem::perms::group_read, std::filesystem::perm_options::add);
  EXPECT_NE(error_of<InvalidInput>([&] { read_feed_key(path); }).find("chmod 600"),
            std::string::npos);
}

TEST(FeedKey, OfOtherFilesIsRefused) {
  const TemporaryFolder folder;
  const std::string text = text_of(new_feed_key());
  for (const std::string& other :
       {std::string(), std::string("feed\nrank\n"), text.substr(0, text.size() - 2)}) {
    const std::filesystem::path path = folder.write("feed.key", other);
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    EXPECT_NE(error_of<InvalidInput>([&] { read_feed_key(path); }).find("--new-key"),
              std::string::npos);
  }
  error_of<InvalidInput>([&] { read_feed_key(folder.path() / "none.key"); });
}

}  // namespace
}  // namespace entrain::engine
