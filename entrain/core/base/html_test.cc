#include "entrain/core/base/html.h"

#include <gtest/gtest.h>

namespace entrain {
namespace {

TEST(HtmlText, IsTextWhateverItHolds) {
  EXPECT_EQ(html_text("a < b && c > \"d\" 'e' é"),
            "a &lt; b &amp;&amp; c &gt; &quot;d&quot; 'e' é");
  EXPECT_EQ(html_text("</script>"), "&lt;/script&gt;");
  EXPECT_EQ(html_text(""), "");
}

}  // namespace
}  // namespace entrain
