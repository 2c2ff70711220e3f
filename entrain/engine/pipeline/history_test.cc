#include "entrain/engine/pipeline/history.h"

#include <gtest/gtest.h>

namespace entrain::engine {
namespace {

TEST(History, KeepsTheLastOldestFirst) {
  History history(3);
  EXPECT_TRUE(history.positions().empty());
  history.add(0);
  history.add(1);
  EXPECT_EQ(history.positions(), (std::vector<int>{0, 1}));
  history.add(2);
  history.add(3);
  history.add(5);
  EXPECT_EQ(history.positions(), (std::vector<int>{2, 3, 5}));
}

TEST(History, NamesOperations) {
  Program program;
  program.num_stages = {1, 1};
  program.module_names = {"vision", "llm"};
  const std::vector<Operation> operations = {{OperationKind::kForward, {0, 0, 2, 0}, -1},
                                             {OperationKind::kSend, {0, 0, 2, 0}, 1}};
  History history(4);
  history.add(0);
  history.add(1);
  EXPECT_EQ(history.to_text(program, operations),
            "forward vision 0 slot 2 group 0; send vision 0 slot 2 group 0 channel 1");
}

}  // namespace
}  // namespace entrain::engine
