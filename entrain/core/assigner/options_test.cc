#include <gtest/gtest.h>

#include "entrain/core/assigner/assigner.h"
#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

TEST(EntrainOptionsWithout, LeavesOutWhatIsNamed) {
  const EntrainOptions all = entrain_options_without({}, "here");
  EXPECT_TRUE(all.joint && all.chunks && all.replica_balance && all.shape && all.slot_order &&
              all.choose_slots && all.defer && all.split_segments && all.search);
  const EntrainOptions some = entrain_options_without({"shape", "search"}, "here");
  EXPECT_FALSE(some.shape);
  EXPECT_FALSE(some.search);
  EXPECT_TRUE(some.joint && some.replica_balance && some.slot_order && some.choose_slots &&
              some.defer && some.split_segments);
}

TEST(EntrainOptionsWithout, SuggestsTheNameThatWasMeant) {
  EXPECT_EQ(
      oracle::error_of<InvalidInput>([] { entrain_options_without({"deferal"}, "plan.without"); }),
      "plan.without: unknown part 'deferal', did you mean 'deferral'?");
}

}  // namespace
}  // namespace entrain
