// Files that were made to cost more than they say: refused with words, in bounded time and memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "program.h"
#include "repro/check/check.h"

namespace regather::check {
namespace {

std::string repeated(const std::string& text, size_t bytes) {
  std::string all;
  while (all.size() + text.size() <= bytes) all += text;
  return all;
}

// What it is refused with.
std::string refusal(const std::string& text) {
  try {
    parse_file("hostile", text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return {};
}

TEST(Hostile, BombOfAliases) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i) + repeated(fmt::format("*a{}, ", i - 1), 70) + "x]\n";
  }
  EXPECT_NE(refusal(bomb).find("aliases"), std::string::npos) << refusal(bomb);
}

TEST(Hostile, BombOfMergeKeys) {
  std::string bomb = "a0: &a0 {x: [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n";
  for (int i = 1; i < 30; ++i)
    bomb += fmt::format("a{}: &a{}\n  y: *a{}\n  z: *a{}\n  <<: *a{}\n", i, i, i - 1, i - 1, i - 1);
  EXPECT_NE(refusal(bomb), "");
}

TEST(Hostile, Depth) {
  constexpr size_t kMany = kLargestFile - 100;
  for (const std::string& text :
       {repeated("[", kMany), "{\"a\":" + repeated("{\"a\":", kMany), "a: " + repeated("[", kMany),
        repeated("- ", kMany), repeated("? ", kMany), "a: " + repeated("{b: ", kMany)}) {
    EXPECT_NE(refusal(text), "") << text.substr(0, 20);
  }
}

TEST(Hostile, ManyValues) {
  EXPECT_NE(refusal("a: [" + repeated("b, ", kLargestFile - 100) + "]").find("values"), std::string::npos);
  EXPECT_NE(refusal(R"({"a":[)" + repeated("1,", kLargestFile - 100) + "1]}").find("values"), std::string::npos);
}

TEST(Hostile, BytesThatAreNoText) {
  EXPECT_NE(refusal("learning_rate: 1\xff\xfe\n").find("UTF-8"), std::string::npos);
  EXPECT_NE(refusal(std::string("learning_rate: 1\0\n", 18)).find("zero byte"), std::string::npos);
  EXPECT_NE(refusal("\xff\xfe{\0}\0").find("UTF-8"), std::string::npos);
  EXPECT_NE(refusal(""), "");
  EXPECT_NE(refusal(" \n\t"), "");
}

TEST(Hostile, VariablesThatGrow) {
  EXPECT_NE(refusal("X=" + std::string(4000, 'y') + "\naccelerate launch " + repeated("$X ", 100000) + "a.py\n")
                .find("variables"),
            std::string::npos);
}

TEST(Hostile, MessagesShowNoControlCharactersAndStayShort) {
  const std::string said = refusal("\x1b[31mfoo: 1\n" + std::string(100000, 'k') + ": 2\n");
  EXPECT_NE(said, "");
  EXPECT_LT(said.size(), 2000U);
  EXPECT_EQ(said.find('\x1b'), std::string::npos);
}

// The program itself, in a little memory: a line of 100 MB, and each of the costly texts.
TEST(Hostile, ProgramStaysSmallAndQuick) {
  const TemporaryFolder folder;
  const std::string long_line = folder / "line.yaml";
  {
    std::ofstream file(long_line);
    const std::string part(1 << 20, 'x');
    for (int i = 0; i < 100; ++i) file << part;
  }
  const std::string nested = folder / "nested.yaml";
  std::ofstream(nested) << "a: " << repeated("[", kLargestFile - 100);
  for (const std::string& file : {long_line, nested}) {
    const auto start = std::chrono::steady_clock::now();
    const Ended ended = regather({"check", file});
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
  rusage usage{};
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &usage), 0);
  EXPECT_LT(usage.ru_maxrss, 300 * 1024) << "KiB, of the largest child";
}

}  // namespace
}  // namespace regather::check
