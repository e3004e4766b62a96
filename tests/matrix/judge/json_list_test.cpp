#include "matrix/judge/json_list.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace regather::matrix {
namespace {

std::string error_of(const std::string& text) {
  try {
    read_json_list(text, "cases");
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(JsonList, CutsTheListIntoItsElements) {
  const JsonList list =
      read_json_list("{\"a\":[{}],\n \"cases\": [\n{\"id\":\"x\\n}\"} ,\n\n {\"b\":[1,{}]}\n], \"z\":3}", "cases");
  EXPECT_EQ(list.head, nlohmann::json::parse(R"({"a":[{}],"cases":[],"z":3})"));
  ASSERT_EQ(list.elements.size(), 2U);
  EXPECT_EQ(list.elements[0].text, "{\"id\":\"x\\n}\"}");
  EXPECT_EQ(list.elements[0].line, 3U);
  EXPECT_EQ(list.elements[1].text, "{\"b\":[1,{}]}");
  EXPECT_EQ(list.elements[1].line, 5U);
}

TEST(JsonList, WithoutTheMemberThereAreNoElements) {
  const JsonList list = read_json_list(R"({"other":[{"cases":[{}]}]})", "cases");
  EXPECT_TRUE(list.elements.empty());
  EXPECT_EQ(list.head.size(), 1U);
}

TEST(JsonList, SaysWhatIsWrongAndOnWhichLine) {
  EXPECT_NE(error_of("").find("line 1: not JSON"), std::string::npos);
  EXPECT_NE(error_of("{\n\"cases\":[{}\n").find("line 3: not JSON"), std::string::npos)
      << error_of("{\n\"cases\":[{}\n");
  EXPECT_NE(error_of("{\"cases\":[\"\xff\"]}").find("not JSON"), std::string::npos);
  EXPECT_NE(error_of("{\"cases\":[1e999]}").find("not JSON"), std::string::npos);
  EXPECT_EQ(error_of("[]"), "expected a JSON object");
  EXPECT_EQ(error_of("3"), "expected a JSON object");
  EXPECT_EQ(error_of(R"({"cases":{}})"), "'cases': expected a list");
  EXPECT_EQ(error_of(R"({"cases":3})"), "'cases': expected a list");
  EXPECT_EQ(error_of(R"({"cases":[],"cases":[]})"), "'cases' stands twice");
  EXPECT_EQ(error_of("{\"cases\":[{},\n3]}"), "line 2: 'cases': expected objects in the list");
  EXPECT_EQ(error_of("{\"cases\":[[]]}"), "line 1: 'cases': expected objects in the list");
}

TEST(JsonList, DepthAndSizeAreBounded) {
  const std::string deep(100000, '[');
  EXPECT_EQ(error_of("{\"x\":" + deep), "line 1: nested deeper than 64, the limit here");
  EXPECT_EQ(error_of("{\"cases\":[{\"x\":" + deep), "line 1: nested deeper than 64, the limit here");
  EXPECT_NE(error_of("{\"x\":\"" + std::string(2 << 20, 'y') + "\"}").find("more than 1048576 bytes"),
            std::string::npos);
  EXPECT_EQ(error_of("{\"cases\":[{\"x\":\"" + std::string(2 << 20, 'y') + "\"}]}"), "no error");
  EXPECT_NE(error_of("{\"cases\":[{\"x\":\"" + std::string(17 << 20, 'y') + "\"}]}").find("at most 16777216"),
            std::string::npos);
  std::string many = "{\"cases\":[{}";
  for (int i = 0; i < 1'000'000; ++i) many += ",{}";
  EXPECT_NE(error_of(many).find("more than 1000000 objects"), std::string::npos);
}

}  // namespace
}  // namespace regather::matrix
