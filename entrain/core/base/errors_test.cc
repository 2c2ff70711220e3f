#include "entrain/core/base/errors.h"

#include <string>

#include <gtest/gtest.h>

namespace entrain {
namespace {

TEST(Errors, AreTheStandardClassesThatBindingsTranslate) {
  EXPECT_THROW(throw InvalidInput("x"), std::invalid_argument);
  EXPECT_THROW(throw SystemFailure("x"), std::runtime_error);
  EXPECT_THROW(throw InternalError("x"), std::logic_error);
  EXPECT_THROW(throw NothingFits("x"), std::runtime_error);
}

TEST(Errors, TellANoFromAMistakeAndFromAFailure) {
  const NothingFits no("x");
  const std::exception& error = no;
  EXPECT_EQ(dynamic_cast<const std::invalid_argument*>(&error), nullptr);
  EXPECT_EQ(dynamic_cast<const SystemFailure*>(&error), nullptr);
}

TEST(Errors, KeepTheirMessage) {
  try {
    throw InvalidInput("plan.json: replicas: 0 given");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "plan.json: replicas: 0 given");
  }
}

TEST(Invariant, PassesWhenTheConditionHolds) {
  int evaluated = 0;
  const auto message = [&] {
    ++evaluated;
    return std::string("unused");
  };
  EXPECT_NO_THROW(ENTRAIN_INVARIANT(1 + 1 == 2, message()));
  EXPECT_EQ(evaluated, 0) << "the message is built on failure only";
}

TEST(Invariant, NamesMessageConditionAndPlace) {
  try {
    ENTRAIN_INVARIANT(1 + 1 == 3, std::string("arithmetic is broken"));
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("arithmetic is broken"), std::string::npos) << text;
    EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos) << text;
    EXPECT_NE(text.find("errors_test.cc:"), std::string::npos) << text;
  }
}

TEST(Invariant, IsOneStatement) {
  bool reached = false;
  if (reached)
    ENTRAIN_INVARIANT(false, "not taken");
  else
    reached = true;
  EXPECT_TRUE(reached);
}

}  // namespace
}  // namespace entrain
