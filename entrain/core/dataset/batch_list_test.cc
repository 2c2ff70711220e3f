#include "entrain/core/dataset/batch_list.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

const std::vector<std::string> kIds = {"train/0001", "train/0002", "x #3", "other"};

std::string refusal(const std::string& text) {
  return error_of<InvalidInput>([&] { rows_of_batch_list(text, "ids.txt", kIds); });
}

TEST(BatchList, KeepsTheOrderOfItsLines) {
  EXPECT_EQ(rows_of_batch_list("other\ntrain/0001\n", "ids.txt", kIds), (std::vector<int>{3, 0}));
  EXPECT_EQ(rows_of_batch_list("other", "ids.txt", kIds), (std::vector<int>{3}));
}

TEST(BatchList, SkipsBlankLinesCommentsAndWhiteSpace) {
  EXPECT_EQ(rows_of_batch_list("# step 7\n\n  other \r\n\t# none\nx #3\n", "ids.txt", kIds),
            (std::vector<int>{3, 2}));
}

TEST(BatchList, NamesLineAndIdOfAMistake) {
  EXPECT_EQ(refusal("# a\ntrain/0001\n\ntrain/000l\n"),
            "ids.txt, line 4: 'train/000l' is not among the 4 samples, did you mean 'train/0001'?");
  EXPECT_EQ(refusal("absolutely-unknown"),
            "ids.txt, line 1: 'absolutely-unknown' is not among the 4 samples");
  EXPECT_EQ(refusal("other\n\nother\n"),
            "ids.txt, line 3: 'other' is on line 1 already; a batch holds a sample once");
  EXPECT_EQ(refusal("# nothing\n\n"), "ids.txt: no sample ids; one a line is needed");
}

}  // namespace
}  // namespace entrain
