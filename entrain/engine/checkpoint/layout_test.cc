#include "entrain/engine/checkpoint/layout.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"

#include "tests/oracle/expect_error.h"
#include "tests/oracle/shards.h"

namespace entrain::engine {
namespace {

using oracle::error_of;
using Steps = std::vector<std::int64_t>;

TEST(CheckpointLayout, NamesCarryTheirStep) {
  EXPECT_EQ(checkpoint_name(20), "step-00000020");
  EXPECT_EQ(checkpoint_name(123'456'789'012), "step-123456789012");
  for (const std::int64_t step : {0L, 7L, 99'999'999L, 123'456'789'012L}) {
    EXPECT_EQ(step_of(checkpoint_name(step)), step);
  }
  for (const char* name :
       {"step-20", "step-00000020x", ".step-00000020.partial", "step--0000020", "latest", ""}) {
    EXPECT_EQ(step_of(name), std::nullopt) << name;
  }
}

TEST(CheckpointLayout, FindsNamedCheckpointsInOrder) {
  const oracle::TemporaryFolder folder;
  EXPECT_EQ(checkpoint_steps(folder.path() / "absent"), Steps{});
  for (const char* name : {"step-00000030", "step-00000004", ".step-00000050.partial", "other"}) {
    std::filesystem::create_directories(folder.path() / name);
  }
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{4, 30}));
}

TEST(CheckpointLayout, LatestReadsBackAndRefusesEveryOtherContent) {
  const oracle::TemporaryFolder folder;
  EXPECT_FALSE(read_latest(folder.path()).has_value());
  const std::string digest(32, 'a');
  write_latest(folder.path(), {20, digest});
  EXPECT_EQ(read_latest(folder.path())->step, 20);
  EXPECT_EQ(read_latest(folder.path())->manifest_digest, digest);
  const std::string content = read_file(folder.path() / kLatestName);
  EXPECT_EQ(content, "step-00000020 " + digest + "\n");
  for (std::size_t size = 0; size < content.size(); ++size) {
    folder.write(kLatestName, content.substr(0, size));
    const std::string message = error_of<InvalidInput>([&] { read_latest(folder.path()); });
    EXPECT_NE(message.find("latest: damaged"), std::string::npos) << message;
  }
}

TEST(CheckpointLayout, PruneKeepsTheNewestAndDropsLaterSteps) {
  const oracle::TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30, 40, 50}) {
    std::filesystem::create_directories(folder.path() / checkpoint_name(step) / "inside");
  }
  prune(folder.path(), 40, 2);
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{30, 40}));
  prune(folder.path(), 40, 1);
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{40}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(CheckpointLayout, RemovesLeftoversOnly) {
  const oracle::TemporaryFolder folder;
  for (const char* name :
       {"step-00000030", "mine", ".step-00000050.partial", ".step-00000010.discarded", ".hidden"}) {
    std::filesystem::create_directories(folder.path() / name);
  }
  folder.write("latest.partial-77", "x");
  remove_leftovers(folder.path());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{".hidden", "mine", "step-00000030"}));
}

}  // namespace
}  // namespace entrain::engine
