#include "entrain/core/base/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

namespace entrain {
namespace {

constexpr std::int64_t kGibibyte = std::int64_t{1} << 30;

// A file system as the kernel would show it.
class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest()
      : root_(std::filesystem::temp_directory_path() / concat("host-memory-", ::getpid())) {
    write("proc/meminfo", "MemTotal: 33554432 kB\nMemFree: 1024 kB\nMemAvailable: 8388608 kB\n");
  }
  ~HostMemoryTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& content) const {
    write_file(root_ / path, content);
  }
  [[nodiscard]] HostMemory memory() const { return host_memory(root_); }

 private:
  std::filesystem::path root_;
};

TEST_F(HostMemoryTest, IsWhatTheSystemHasLeftWithoutGroups) {
  EXPECT_EQ(memory().available_bytes, 8 * kGibibyte);
  EXPECT_EQ(memory().source, "MemAvailable of /proc/meminfo");
}

TEST_F(HostMemoryTest, IsUnknownWhereNothingSays) {
  write("proc/meminfo", "MemTotal: 33554432 kB\n");
  EXPECT_EQ(memory().available_bytes, -1);
}

TEST_F(HostMemoryTest, KeepsTheLimitOfAGroupOfVersion2) {
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", "4294967296\n");
  write("sys/fs/cgroup/jobs/one/memory.current", "3221225472\n");
  EXPECT_EQ(memory().available_bytes, kGibibyte);
  write("sys/fs/cgroup/jobs/one/memory.stat", "anon 5\ninactive_file 1073741824\n");
  EXPECT_EQ(memory().available_bytes, 2 * kGibibyte) << "files it could drop";
  EXPECT_NE(memory().source.find("limit of 4.0 GiB"), std::string::npos) << memory().source;
  write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  EXPECT_EQ(memory().available_bytes, 8 * kGibibyte);
}

TEST_F(HostMemoryTest, KeepsTheLimitOfTheGroupsAround) {
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/one/memory.current", "0\n");
  write("sys/fs/cgroup/jobs/memory.max", "2147483648\n");
  write("sys/fs/cgroup/jobs/memory.current", "3221225472\n");
  EXPECT_EQ(memory().available_bytes, 0) << "already above its limit";
}

TEST_F(HostMemoryTest, KeepsTheLimitOfAGroupOfVersion1) {
  write("proc/self/cgroup", "9:cpu:/x\n4:memory:/docker/abc\n0::/\n");
  // As a container sees it: its group is the mount.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  EXPECT_EQ(memory().available_bytes, kGibibyte);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory().available_bytes, 8 * kGibibyte) << "no limit";
}

TEST(HostMemory, IsKnownHere) {
  EXPECT_GT(host_memory().available_bytes, 0);
}

}  // namespace
}  // namespace entrain
