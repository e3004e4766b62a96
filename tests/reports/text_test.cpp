#include "reports/text.h"

#include <gtest/gtest.h>

namespace regather::reports {
namespace {

TEST(Text, IsCutBetweenCharacters) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc...");
  EXPECT_EQ(shortened("a\xC3\xA9z", 2), "a...");
}

TEST(Text, XmlHoldsOnlyItsCharacters) {
  EXPECT_EQ(for_xml("a\tb\xC3\xA9\xF0\x9F\x98\x80"), "a\tb\xC3\xA9\xF0\x9F\x98\x80");
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(for_xml(std::string("a\0b", 3)), "a" + bad + "b");
  EXPECT_EQ(for_xml("\x1B[31m"), bad + "[31m");
  EXPECT_EQ(for_xml("\xEF\xBF\xBF"), bad) << "U+FFFF";
  EXPECT_EQ(for_xml("\xED\xA0\x80").find("\xED"), std::string::npos) << "half a surrogate pair";
  EXPECT_EQ(for_xml("\xC0\xAF").find("\xC0"), std::string::npos) << "an overlong slash";
  EXPECT_EQ(for_xml("\xF4\x90\x80\x80").find("\xF4"), std::string::npos) << "beyond the last character";
  EXPECT_EQ(for_xml("\xE2\x82"), bad + bad) << "cut short";
}

TEST(Text, MarkdownShowsItself) {
  EXPECT_EQ(for_markdown("a|b\n<img> *x* _y_ `z` [l](u) @me #1 https://x"),
            "a\\|b &lt;img&gt; \\*x\\* \\_y\\_ \\`z\\` \\[l\\]\\(u\\) &#64;me &#35;1 https&#58;//x");
}

TEST(Text, AWorkflowCommandStaysOneLine) {
  EXPECT_EQ(for_workflow_message("50%\r\n::error::x"), "50%25%0D%0A::error::x");
  EXPECT_EQ(for_workflow_property("a:b,c\n%"), "a%3Ab%2Cc%0A%25");
}

}  // namespace
}  // namespace regather::reports
