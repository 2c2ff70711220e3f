#include "entrain/core/base/mapped_file.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/shards.h"

namespace entrain {
namespace {

TEST(MappedFile, HoldsTheBytesOfAFile) {
  const oracle::TemporaryFolder folder;
  EXPECT_EQ(MappedFile(folder.write("a", "some bytes")).bytes(), "some bytes");
  EXPECT_EQ(MappedFile(folder.write("empty", "")).bytes(), "");
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const oracle::TemporaryFolder folder;
  EXPECT_THROW(MappedFile(folder.path()), InvalidInput);
  EXPECT_THROW(MappedFile(folder.path() / "none"), InvalidInput);
}

}  // namespace
}  // namespace entrain
