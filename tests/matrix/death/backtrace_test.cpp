#include "matrix/death/backtrace.h"

#include <gtest/gtest.h>

namespace regather::matrix {
namespace {

TEST(Backtrace, NamesFunctionsAndHidesAddresses) {
  EXPECT_EQ(
      readable_backtrace("regather-worker: fatal signal, stack of rank 1:\n"
                         "/opt/bin/regather-worker(_ZN8regather4comm7Meeting4waitERNS0_8ExchangeE+0x2f) [0x55aa]\n"
                         "/lib/x86_64-linux-gnu/libc.so.6(+0x3c050) [0x7f12]\n"
                         "/lib/libc.so.6(abort+0xd3)[0x7f0ab]\n"
                         "lost pointer 0xdeadBEEF, 0x\n\n"),
      "regather-worker: fatal signal, stack of rank 1:\n"
      "    regather::comm::Meeting::wait\n"
      "    libc.so.6+0x3c050\n"
      "    abort\n"
      "lost pointer 0x?, 0x?");
}

TEST(Backtrace, WhatOnlyLooksLikeAFrameIsLeftAlone) {
  for (const char* text : {"f(x) = 3", "(", ")(", "call(]", "[0x12]", "a(b)c]"}) {
    EXPECT_EQ(readable_backtrace(text).find("    "), std::string::npos) << text;
  }
  EXPECT_EQ(readable_backtrace(""), "");
}

TEST(Backtrace, AnUnnamedNamespaceIsNoListOfArguments) {
  EXPECT_EQ(readable_backtrace("w(_ZN8regather12_GLOBAL__N_13fooIiEEvT_+0x1) [0x2]"),
            "    void regather::(anonymous namespace)::foo<int>");
}

TEST(Backtrace, ALongSymbolIsCut) {
  const std::string line = "x(" + std::string(100'000, 'y') + "+0x1) [0x2]";
  EXPECT_LT(readable_backtrace(line).size(), 200U);
}

TEST(TakeApart, TellsStacksFromWords) {
  const TakenApart parts = take_apart(
      "warning: slow\nregather-worker: fatal signal, stack of rank 1:\n    f\n    g\nstack of rank 0:\nnot a frame\n"
      "    nor this\na stack of plates");
  ASSERT_EQ(parts.stacks.size(), 2U);
  EXPECT_EQ(parts.stacks[0].head, "regather-worker: fatal signal, stack");
  EXPECT_EQ(parts.stacks[0].thread, "rank 1");
  EXPECT_EQ(parts.stacks[0].frames, (std::vector<std::string>{"f", "g"}));
  EXPECT_EQ(parts.stacks[1].head, "stack");
  EXPECT_EQ(parts.stacks[1].thread, "rank 0");
  EXPECT_TRUE(parts.stacks[1].frames.empty());
  EXPECT_EQ(parts.words, "warning: slow\nnot a frame\n    nor this\na stack of plates");
  EXPECT_TRUE(take_apart("").stacks.empty());
}

TEST(LastLines, AreWhole) {
  EXPECT_EQ(last_lines("one\ntwo\nthree", 100), "one\ntwo\nthree");
  EXPECT_EQ(last_lines("one\ntwo\nthree", 9), "three");
}

}  // namespace
}  // namespace regather::matrix
