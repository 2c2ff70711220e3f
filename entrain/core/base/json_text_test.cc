#include "entrain/core/base/json_text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace entrain {
namespace {

TEST(JsonText, WritesWhatIsNotUtf8) {
  const Json document = {{"id",
                          "a\xff\xfe"
                          "b"},
                         {"n", 1}};
  EXPECT_EQ(json_text(document),
            "{\"id\":\"a\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\",\"n\":1}");
  EXPECT_NO_THROW(parse_json(json_text(document, 1), "again"));
}

TEST(JsonText, KeepsWhatIsUtf8AsDumpDoes) {
  const Json document = {{"µ", "größe"}, {"list", {1, 2.5, nullptr}}};
  EXPECT_EQ(json_text(document), document.dump());
  EXPECT_EQ(json_text(document, 1), document.dump(1));
}

}  // namespace
}  // namespace entrain
